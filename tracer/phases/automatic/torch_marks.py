"""Marks that PyTorch itself makes, in a process whose script does not know about tracer.

These marks are facts, recorded as they happen. Steps, epochs, evaluation and the grouping of
forward calls are inferred when the recording is finalized (`tracer.store.training`):

    name        from                               epoch          step
    data_load   DataLoader.__iter__
    fetch       the DataLoader's iterator          iteration
    ... its end                                                   batch, if a worker made it
    exhausted   ... inside a fetch that found the end
    worker      a worker's first fetch             iteration      pid of the process it serves
    fetch       a worker, in its own process       iteration      batch that it makes
    forward     the outermost nn.Module call                      1 with gradients, else 0
    backward    torch.autograd.backward and grad
    optimizer   Optimizer.step
    model_load  torch.load, load_state_dict, Module.to, safetensors' load_file
    checkpoint  torch.save, safetensors' save_file, Lightning's checkpoint writer

With CUDA, the GPU time of each forward, backward and optimizer is marked too (`.cuda`).

`iteration` distinguishes passes over the data. Its high bits count the iterators of the process;
its low 20 bits count how often persistent workers were restarted.
"""

from __future__ import annotations

import multiprocessing
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
"""Attribute of a DataLoader's iterator that holds its iteration."""


class _Nesting(threading.local):
    """State of this thread. Flags are true inside a call of which only the outermost is marked."""

    def __init__(self) -> None:
        self.computing = False
        self.moving = False
        self.stepping = 0
        """Number of optimizers that make a step."""
        self.batch = ABSENT
        """Number of the batch that the current fetch returns, if a worker made the batch."""


_nesting = _Nesting()


def install(torch: ModuleType) -> list[str]:
    """Makes `torch` mark its phases. Returns the parts that could not be marked, and why."""
    failures: list[str] = []
    gpu = GpuTimes(torch)
    installers: dict[str, Callable[[], None]] = {
        "modules": lambda: _install_modules(torch, gpu),
        "autograd": lambda: _install_autograd(torch, gpu),
        "optimizer": lambda: _install_optimizers(torch, gpu),
        "an optimizer's step that raises": lambda: _install_failed_steps(torch, gpu),
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
_STEP = "Optimizer.step#"
"""Beginning of PyTorch's names for the steps of optimizers."""


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
            _nesting.stepping += 1
            gpu.begin(b"optimizer")
            _mark(_BEGIN, b"optimizer", ABSENT, ABSENT)

    def after(optimizer: object, args: object, kwargs: object) -> None:
        if not compiling():
            _end_step(gpu)

    optimizer.register_optimizer_step_pre_hook(before)
    optimizer.register_optimizer_step_post_hook(after)


def _install_failed_steps(torch: ModuleType, gpu: GpuTimes) -> None:
    """Marks the end of an optimizer's step that raises: PyTorch calls no hook after it.

    PyTorch leaves the step's `record_function` in any case. A `try` around the step itself would
    change what torch.compile compiles.
    """

    def leave(record: Any, error: object) -> bool:
        if error is not None and _nesting.stepping > 0 and record.name.startswith(_STEP):
            _end_step(gpu)
        return False

    weave(torch.autograd.profiler.record_function.__exit__, leave, given=["self", "exc_type"])


def _end_step(gpu: GpuTimes) -> None:
    _nesting.stepping -= 1
    gpu.end(b"optimizer")
    _mark(_END, b"optimizer", ABSENT, ABSENT)


def _install_modules(torch: ModuleType, gpu: GpuTimes) -> None:
    with_gradients: Callable[[], bool] = torch.is_grad_enabled
    enter, leave = _computing(torch, gpu, b"forward", lambda: int(with_gradients()))
    # PyTorch's global module hooks would cost several us per submodule and change what
    # torch.compile compiles. Module.__call__ is this function.
    weave(torch.nn.Module._wrapped_call_impl, enter, leave)


def _install_autograd(torch: ModuleType, gpu: GpuTimes) -> None:
    enter, leave = _computing(torch, gpu, b"backward", lambda: ABSENT)
    weave(torch.autograd.backward, enter, leave)
    weave(torch.autograd.grad, enter, leave)


def _computing(
    torch: ModuleType, gpu: GpuTimes, name: bytes, step: Callable[[], int]
) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Returns the calls to make before and after a computation. Only the outermost is marked.

    A forward that is recomputed during a backward belongs to the backward. A gradient that a
    model computes inside its forward belongs to the forward. Calls that torch.compile makes to
    trace the model are not marked.
    """
    compiling: Callable[[], bool] = torch.compiler.is_compiling
    tracing: Callable[[], object] = torch._guards.TracingContext.try_get

    def enter() -> bool:
        # compiling() comes first: torch.compile may trace this code, and folds it to a constant.
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
    """Returns the calls to make around loading or saving. Only the outermost is marked."""

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
    """Makes `safetensors.torch` mark the files that it loads and saves. Raises as `weave` does."""
    weave(module.save_file, *_moving(b"checkpoint"))
    weave(module.load_file, *_moving(b"model_load"))


def install_lightning(module: ModuleType) -> None:
    """Makes Lightning's `cloud_io` mark its checkpoints. Raises as `weave` does.

    Lightning calls torch.save into memory and writes the file afterwards.
    """
    weave(module._atomic_save, *_moving(b"checkpoint"))


class _Iterations:
    """The passes over data that this process has begun, or that it serves as a worker."""

    def __init__(self) -> None:
        self.begun = 0
        self.served = 0
        """Number of the iterator that this worker serves, in the count of its process; 0: none."""
        self.fetchers = 0
        """Fetchers made in a DataLoader worker: one per pass over the data."""

    def begin(self) -> None:
        """Counts an iterator, and tells its number to the workers that it starts next.

        A forked worker inherits the count. The others get this dictionary of `multiprocessing`.
        """
        self.begun += 1
        _told()[_ITERATION] = self.begun

    def fetch(self) -> None:
        """Counts a worker's fetcher."""
        if not self.fetchers:
            self.served = _told().get(_ITERATION, self.begun)
        self.fetchers += 1


def _told() -> dict[str, Any]:
    """Returns the values that a process hands to the processes that it starts, by fork or not."""
    told: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    return told


def _starter() -> int:
    """Returns the pid of the process that has started this one, which may not be its parent."""
    starter = multiprocessing.parent_process()
    pid = None if starter is None else starter.pid
    return os.getppid() if pid is None else pid


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
        iterations.begin()
        iterator.__dict__[_ITERATION] = (iterations.begun << _AGAIN_BITS) - 1
        return False

    def begun_anew(iterator: Any) -> bool:
        if _ITERATION in iterator.__dict__:
            iterator.__dict__[_ITERATION] += 1
        return False

    weave(dataloader._BaseDataLoaderIter.__init__, made, given=["self"])
    weave(dataloader._BaseDataLoaderIter._reset, begun_anew, given=["self"])

    def fetch(iterator: Any) -> bool:
        _nesting.batch = ABSENT
        return _begin(b"fetch", iterator.__dict__.get(_ITERATION, ABSENT))

    def fetched() -> None:
        batch, _nesting.batch = _nesting.batch, ABSENT
        _mark(_END, b"fetch", ABSENT, batch)

    weave(
        dataloader._BaseDataLoaderIter.__next__,
        fetch,
        fetched,
        lambda: _mark(_BEGIN, b"exhausted", ABSENT, ABSENT),
        given=["self"],
    )

    def fetcher_made(fetcher: Any) -> bool:
        if worker._worker_info is not None:
            iterations.fetch()
        return False

    def work() -> bool:
        if worker._worker_info is None:
            return False
        iteration = ABSENT
        if iterations.served:
            iteration = (iterations.served << _AGAIN_BITS) + iterations.fetchers - 1
        if os.getpid() not in announced:
            announced.add(os.getpid())
            _begin(b"worker", iteration, _starter())
            _end(b"worker")
        # The calling loop holds the batch number in its local variable `idx`.
        number = sys._getframe(2).f_locals.get("idx")
        return _begin(b"fetch", iteration, number if isinstance(number, int) else ABSENT)

    def worked() -> None:
        _end(b"fetch")

    weave(_utils.fetch._BaseDatasetFetcher.__init__, fetcher_made, given=["self"])
    weave(_utils.fetch._MapDatasetFetcher.fetch, work, worked)
    weave(_utils.fetch._IterableDatasetFetcher.fetch, work, worked)

    process_data = dataloader._MultiProcessingDataLoaderIter._process_data
    # Before PyTorch 2.6, this function itself counts the batch that it is called for.
    counted = int("_rcvd_idx" not in process_data.__code__.co_names)

    def received(iterator: Any) -> bool:
        # Batches are numbered in the order in which workers are asked for them. An exception or
        # a worker's end takes a number, too, so the count of batches would be another one.
        state = iterator.__dict__
        number = state.get("_rcvd_idx", -1) - counted
        if not state.get("_in_order", True):
            # The calling function holds the number in its local variable `idx`.
            number = sys._getframe(2).f_locals.get("idx")
        _nesting.batch = number if isinstance(number, int) and number >= 0 else ABSENT
        return False

    weave(process_data, received, given=["self"])
