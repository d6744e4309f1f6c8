"""Marks that PyTorch itself makes, in a process whose script knows nothing of us.

What is marked are facts, as they happen; what they mean (steps, epochs, evaluation, which forward
calls are one) is inferred when the recording is finalized (`tracer.store.training`):

    name        from                               epoch          step
    data_load   DataLoader.__iter__
    fetch       the DataLoader's iterator          iteration      batch in it; 0, 1, ...
    exhausted   ... inside a fetch that found the end
    worker      a worker's first fetch             iteration      the process it serves
    fetch       a worker, on its own process       iteration      batch that it makes
    forward     the outermost nn.Module call                      1 with gradients, else 0
    backward    torch.autograd.backward and grad
    optimizer   Optimizer.step
    model_load  torch.load, load_state_dict, Module.to, safetensors' load_file
    checkpoint  torch.save, safetensors' save_file, what Lightning saves a checkpoint with

and, where CUDA is used, how long the GPU took for each forward, backward and optimizer (`.cuda`).

`iteration` tells the passes over data apart: the number of the iterator in its process, and, in
the low 20 bits, how often persistent workers were set to work anew.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import marks
from ..format import ABSENT, AUTOMATIC, BEGIN, END
from .cuda import GpuTimes
from .weave import NotWoven, weave

_AGAIN_BITS = 20
_ITERATION = "_tracer_iteration"
"""Attribute of a DataLoader's iterator and of what fetches for it."""


class _Nesting(threading.local):
    """Whether this thread is in calls of which only the outermost is marked."""

    def __init__(self) -> None:
        self.computing = False
        self.moving = False


_nesting = _Nesting()


def install(torch: ModuleType) -> list[str]:
    """Have `torch` mark what it does; returns what could not be made to, and why."""
    failures: list[str] = []
    gpu = GpuTimes(torch)
    installers: dict[str, Callable[[], None]] = {
        "modules": lambda: _install_modules(torch, gpu),
        "autograd": lambda: _install_autograd(torch, gpu),
        "optimizer": lambda: _install_optimizers(torch, gpu),
        "files": lambda: _install_files(torch),
        "data": lambda: _install_data(torch),
    }
    for name, install_one in installers.items():
        try:
            install_one()
        except (NotWoven, AttributeError, ImportError) as error:
            failures.append(f"{name}: {error}")
    return failures


_BEGIN = BEGIN | AUTOMATIC
_END = END | AUTOMATIC
_mark = marks.mark


def _begin(name: bytes, epoch: int = ABSENT, step: int = ABSENT) -> bool:
    _mark(_BEGIN, name, epoch, step)
    return True


def _end(name: bytes) -> None:
    _mark(_END, name, ABSENT, ABSENT)


def _install_optimizers(torch: ModuleType, gpu: GpuTimes) -> None:
    from torch.optim import optimizer

    compiling: Callable[[], bool] = torch.compiler.is_compiling

    def before(optimizer: object, args: object, kwargs: object) -> None:
        if not compiling():
            gpu.begin(b"optimizer")
            _mark(_BEGIN, b"optimizer", ABSENT, ABSENT)

    def after(optimizer: object, args: object, kwargs: object) -> None:
        if not compiling():
            gpu.end(b"optimizer")
            _mark(_END, b"optimizer", ABSENT, ABSENT)

    optimizer.register_optimizer_step_pre_hook(before)
    optimizer.register_optimizer_step_post_hook(after)


def _install_modules(torch: ModuleType, gpu: GpuTimes) -> None:
    with_gradients: Callable[[], bool] = torch.is_grad_enabled
    enter, leave = _computing(torch, gpu, b"forward", lambda: int(with_gradients()))
    # The global hooks of modules would cost several us a submodule, and change what
    # torch.compile makes of it. Module.__call__ is this function.
    weave(torch.nn.Module._wrapped_call_impl, enter, leave)


def _install_autograd(torch: ModuleType, gpu: GpuTimes) -> None:
    enter, leave = _computing(torch, gpu, b"backward", lambda: ABSENT)
    weave(torch.autograd.backward, enter, leave)
    weave(torch.autograd.grad, enter, leave)


def _computing(
    torch: ModuleType, gpu: GpuTimes, name: bytes, step: Callable[[], int]
) -> tuple[Callable[[], bool], Callable[[], None]]:
    """What to call around a computation, of which only the outermost is marked.

    A forward that a backward computes anew belongs to the backward, a gradient that a model
    takes of itself to its forward. What torch.compile runs to see what it does is none.
    """
    compiling: Callable[[], bool] = torch.compiler.is_compiling
    tracing: Callable[[], object] = torch._guards.TracingContext.try_get

    def enter() -> bool:
        # First, since torch.compile may come by here: it knows the answer, and sees no more.
        if compiling() or _nesting.computing:
            return False
        if tracing() is not None:
            return False
        _nesting.computing = True
        gpu.begin(name)
        _mark(_BEGIN, name, ABSENT, step())
        return True

    def leave() -> None:
        _nesting.computing = False
        gpu.end(name)
        _mark(_END, name, ABSENT, ABSENT)

    return enter, leave


def _moving(name: bytes) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Two functions to call around loading or saving, of which only the outermost is marked."""

    def enter() -> bool:
        if _nesting.moving:
            return False
        _nesting.moving = True
        return _begin(name)

    def leave() -> None:
        _nesting.moving = False
        _end(name)

    return enter, leave


def _install_files(torch: ModuleType) -> None:
    weave(torch.save, *_moving(b"checkpoint"))
    weave(torch.load, *_moving(b"model_load"))
    weave(torch.nn.Module.load_state_dict, *_moving(b"model_load"))
    weave(torch.nn.Module.to, *_moving(b"model_load"))


def install_safetensors(module: ModuleType) -> None:
    """Have `safetensors.torch` mark the files that it reads and writes. Raises as `weave` does."""
    weave(module.save_file, *_moving(b"checkpoint"))
    weave(module.load_file, *_moving(b"model_load"))


def install_lightning(module: ModuleType) -> None:
    """Have Lightning's `cloud_io` mark its checkpoints. Raises as `weave` does.

    It has torch.save write into memory, and writes the file afterwards.
    """
    weave(module._atomic_save, *_moving(b"checkpoint"))


class _Iterations:
    """The passes over data that this process has begun; a forked worker inherits the number."""

    def __init__(self) -> None:
        self.begun = 0
        self.fetchers = 0
        """Of a worker: each stands for a pass over the data."""


def _install_data(torch: ModuleType) -> None:
    from torch.utils.data import _utils, dataloader

    worker = _utils.worker
    iterations = _Iterations()
    announced: set[int] = set()

    weave(
        dataloader.DataLoader.__iter__,
        lambda: _begin(b"data_load"),
        lambda: _end(b"data_load"),
    )

    def made(iterator: Any) -> bool:
        iterations.begun += 1
        iterator.__dict__[_ITERATION] = (iterations.begun << _AGAIN_BITS) - 1
        return False

    def begun_anew(iterator: Any) -> bool:
        if _ITERATION in iterator.__dict__:
            iterator.__dict__[_ITERATION] += 1
        return False

    weave(dataloader._BaseDataLoaderIter.__init__, made, given=["self"])
    weave(dataloader._BaseDataLoaderIter._reset, begun_anew, given=["self"])

    def fetch(iterator: Any) -> bool:
        state = iterator.__dict__
        return _begin(b"fetch", state.get(_ITERATION, ABSENT), state.get("_num_yielded", ABSENT))

    weave(
        dataloader._BaseDataLoaderIter.__next__,
        fetch,
        lambda: _end(b"fetch"),
        lambda: _mark(_BEGIN, b"exhausted", ABSENT, ABSENT),
        given=["self"],
    )

    def fetcher_made(fetcher: Any) -> bool:
        if worker._worker_info is not None:
            iterations.fetchers += 1
        return False

    def work() -> bool:
        if worker._worker_info is None:
            return False
        iteration = ABSENT
        if iterations.begun:  # else it was spawned, not forked
            iteration = (iterations.begun << _AGAIN_BITS) + iterations.fetchers - 1
        if os.getpid() not in announced:
            announced.add(os.getpid())
            _begin(b"worker", iteration, os.getppid())
            _end(b"worker")
        # The loop around this call knows which batch it is.
        number = sys._getframe(2).f_locals.get("idx")
        return _begin(b"fetch", iteration, number if isinstance(number, int) else ABSENT)

    def worked() -> None:
        _end(b"fetch")

    weave(_utils.fetch._BaseDatasetFetcher.__init__, fetcher_made, given=["self"])
    weave(_utils.fetch._MapDatasetFetcher.fetch, work, worked)
    weave(_utils.fetch._IterableDatasetFetcher.fetch, work, worked)
