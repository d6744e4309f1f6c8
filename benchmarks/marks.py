"""Cost of a mark, and cost of automatic marks for a training step.

    python benchmarks/marks.py --json [--windows N] [--seconds S]

Prints one JSON object: `ns_on` and `ns_off`, nanoseconds of one mark with a recording's folder and
without; `step_ratio`, the median step of LeNet with automatic marks over that without, from
alternating windows in one process. A window without marks has PyTorch's original functions.
`step_low` and `step_high`: the 95 % bootstrap interval of the ratio.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parts.steps import steps
from parts.window_ratios import interval, ratios
from torch.optim import optimizer as optimizers
from torch.utils.data import _utils, dataloader

from tracer import phases
from tracer.phases.automatic.torch_marks import install

_MARKS = 200_000


def main() -> None:
    """Measures, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--windows", type=int, default=40, help="windows with and without")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {**_marks(Path(folder)), **_steps(Path(folder), options.windows, options.seconds)}
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))


def _marks(folder: Path) -> dict[str, float]:
    def of_one() -> float:
        begun = time.perf_counter_ns()
        for step in range(_MARKS // 2):
            phases.begin("forward", step=step)
            phases.end("forward")
        return (time.perf_counter_ns() - begun) / _MARKS

    on, off = [], []
    for _ in range(5):
        phases.enable(str(folder))
        on.append(of_one())
        phases.disable()
        off.append(of_one())
    for path in folder.iterdir():
        path.unlink()
    return {"ns_on": round(float(np.median(on)), 1), "ns_off": round(float(np.median(off)), 1)}


_WOVEN: list[Callable[..., Any]] = [
    torch.nn.Module._wrapped_call_impl,
    torch.autograd.backward,
    torch.autograd.profiler.record_function.__exit__,
    dataloader.DataLoader.__iter__,
    dataloader._BaseDataLoaderIter.__init__,
    dataloader._BaseDataLoaderIter._reset,
    dataloader._BaseDataLoaderIter.__next__,
    dataloader._MultiProcessingDataLoaderIter._process_data,
    _utils.fetch._BaseDatasetFetcher.__init__,
    _utils.fetch._IterableDatasetFetcher.fetch,
]


def _steps(folder: Path, windows: int, seconds: float) -> dict[str, float]:
    plain = [function.__code__ for function in _WOVEN]
    if failures := install(torch):
        raise SystemExit(f"marks of {failures} failed")
    woven = [function.__code__ for function in _WOVEN]
    hooks: list[tuple[Any, Any]] = [
        (known, dict(known))
        for known in (
            optimizers._global_optimizer_pre_hooks,
            optimizers._global_optimizer_post_hooks,
        )
    ]

    def switch(on: bool) -> None:
        for function, code in zip(_WOVEN, woven if on else plain, strict=True):
            function.__code__ = code
        for known, ours in hooks:
            known.clear()
            known.update(ours if on else {})
        phases.enable(str(folder)) if on else phases.disable()

    switch(False)
    job = steps("lenet", folder)
    _window(job, seconds)
    medians = [_window(job, seconds)]
    for _ in range(windows):
        for on in (True, False):
            switch(on)
            medians.append(_window(job, seconds))
    median, low, high = interval(ratios(medians))
    return {"step_ratio": round(median, 4), "step_low": round(low, 4), "step_high": round(high, 4)}


def _window(job: Iterator[int], seconds: float) -> float:
    """Returns the median time of a step."""
    times = [time.perf_counter()]
    while times[-1] < times[0] + seconds:
        next(job)
        times.append(time.perf_counter())
    return float(np.median(np.diff(times)))


if __name__ == "__main__":
    main()
