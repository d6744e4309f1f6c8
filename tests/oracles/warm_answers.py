"""Answers of `tracer predict` about warm pages, and the same numbers from naive caches.

It is written from docs/predict.md, not from the code of `tracer predict`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.fuzz.verbs import called
from tests.oracles.called_jobs import NO_LIMIT, JobCall
from tests.oracles.nested_cgroups import PAGE
from tests.oracles.removing_caches import MODELS, Step, counts, steps_of
from tests.oracles.two_lists import READ
from tests.oracles.warm_caches import (
    NO_OWN,
    Limits,
    OwnMemory,
    enough,
    kernel_reads,
    steps_beside,
)
from tests.oracles.warm_pages import PIDS, SECOND, File, Page, Row
from tests.support.traces import make_trace

Key = tuple[int, str, int | None]
"""Pages of memory, target and epoch."""


class Jobs(Protocol):
    """Recorded calls, the pages that they read from the disk, and the pages of all files."""

    calls: list[JobCall]
    recorded: Counter[tuple[str | None, int | None]]
    sizes: Mapping[File, int]


DISKS = [
    {"dev": "8:0", "name": "sda"},
    *({"dev": f"8:{n}", "name": f"sda{n}", "partition_of": "8:0"} for n in (1, 2)),
]
CAPACITIES = (7, 40, 75, 300)
"""Pages: less than a batch of reclaim, some, and more than all jobs use."""
ROOMY = CAPACITIES[1:]
"""Those with room for what a call reads ahead."""
TIGHT = CAPACITIES[1:3]
CLOCKS = (0, SECOND // 2, SECOND, 3 * SECOND // 2, None)
"""Those of a recording whose accesses take 2 s or more."""
KERNEL = ("kernel", "clocks")


def containers(names: Iterable[str]) -> list[Row]:
    """The entries of containers in the manifest."""
    return [
        {"name": name, "role": "target", "kind": "container", "pid": PIDS[name]}
        | {"container": name * 64}
        for name in names
    ]


def recording(
    folder: Path, tables: Mapping[str, list[Row]], targets: Sequence[Row], **manifest: Any
) -> Path:
    """Makes a recording of these tables."""
    clock = {"name": "mono", "start_ns": 0, "end_ns": 600 * SECOND}
    given: dict[str, Any] = {"targets": targets, "disks": DISKS, "clock": clock}
    make_trace(folder, dict(tables), duration_s=600.0, **given, **manifest).close()
    return folder


def predicted(
    folder: Path, *options: str, pages: Iterable[int] = CAPACITIES, ahead: int = 0
) -> dict[str, Any]:
    """Returns the answer for these numbers of pages."""
    sizes = ",".join(str(number * PAGE) for number in pages)
    asked = "--memory", sizes, "--read-ahead", ahead * PAGE, *options
    answer: dict[str, Any] = json.loads(called("predict", folder, *asked, "--json"))
    return answer


def clocks_of(calls: Sequence[JobCall]) -> list[int | None]:
    """The clocks, in ns: in a short recording, they begin at the quarters of its time."""
    span = min(2 * SECOND, calls[-1].ts - calls[0].ts)
    return [*(quarter * (span // 4) for quarter in range(4)), None]


def rows_of(answer: Mapping[str, Any]) -> dict[Key, Row]:
    """The numbers of an answer."""
    return {
        (row["memory_bytes"] // PAGE, row["target"], row["epoch"]): {
            "cache": row["cache_bytes"],
            "used": row["used_pages"],
            "recorded": row["recorded_pages"],
            "kernel": row["two-lists_pages"],
            "clocks": row["two-lists_pages_by_clock"],
            "range": (row["two-lists_pages_low"], row["two-lists_pages_high"]),
            **{model: row[f"{model}_pages"] for model in MODELS},
        }
        for row in answer["reads"]
    }


def expected_rows(
    jobs: Jobs,
    below: Limits,
    warm: Collection[Page],
    pages: Iterable[int] = CAPACITIES,
    ahead: int = 0,
    calls: Sequence[JobCall] | None = None,
    payer: int = -1,
    beside: Callable[[Iterable[Step], Iterable[Page]], list[Step]] = steps_beside,
    own: OwnMemory = NO_OWN,
) -> dict[Key, Row]:
    """The same of the oracle; `calls`: others than those of the jobs."""
    calls = jobs.calls if calls is None else calls
    found: dict[Key, Row] = {}
    for number in pages:
        asked = calls, number, below, warm, ahead
        kernel = [kernel_reads(*asked, clock, payer, own, jobs.sizes) for clock in clocks_of(calls)]
        for target, steps in steps_by_target(calls, below).items():
            room = max(0, number - own.largest(below.beside(target)))
            read = {model: counts(beside(steps, warm), room, model) for model in MODELS}
            mine = [step for step in steps if step.target == target and step.kind == READ]
            for epoch, used in Counter(step.epoch for step in mine).items():
                group = target, epoch
                by_clock = [of_clock.get(group, 0) for of_clock in kernel]
                found[number, target, epoch] = {
                    "cache": room * PAGE,
                    "used": used,
                    "recorded": jobs.recorded[group],
                    "kernel": by_clock[0],
                    "clocks": by_clock,
                    "range": (min(by_clock), max(by_clock)),
                    **{model: read[model][group] for model in MODELS},
                }
    return found


def steps_by_target(calls: Iterable[JobCall], below: Limits) -> dict[str, list[Step]]:
    """The steps that go to the cache of each target."""
    steps = steps_of(calls)
    return {
        target: [step for step in steps if step.removes or step.target in below.beside(target)]
        for target in below.targets
    }


def agree(
    answer: Mapping[str, Any],
    jobs: Jobs,
    below: Limits,
    warm: Collection[Page],
    pages: Iterable[int] = CAPACITIES,
    ahead: int = 0,
    calls: Sequence[JobCall] | None = None,
    own: OwnMemory = NO_OWN,
    unlimited: bool = True,
) -> None:
    """Compares an answer with the oracle; `unlimited`: that of a recording without limits."""
    calls = jobs.calls if calls is None else calls
    expected = expected_rows(jobs, below, warm, pages, ahead, calls, own=own)
    assert rows_of(answer) == expected
    assert answer["clocks_s"] == [clock and clock / SECOND for clock in clocks_of(calls)]
    assert answer["enough_bytes"] == {
        target: (enough(steps_beside(steps, warm)) + own.largest(below.beside(target))) * PAGE
        for target, steps in steps_by_target(calls, below).items()
    }
    if unlimited:
        assert answer["error"] == pytest.approx(errors(jobs, calls, below, warm, ahead))


def errors(
    jobs: Jobs,
    calls: Sequence[JobCall],
    below: Limits,
    warm: Collection[Page],
    ahead: int = 0,
    pages: int = NO_LIMIT,
    clock: int | None = 0,
    own: OwnMemory = NO_OWN,
) -> dict[str, float]:
    """The share that the kernel's model reads more or less than was read, with a recorded limit."""
    asked = calls, pages, below, warm, ahead, clock
    read, told = kernel_reads(*asked, own=own, sizes=jobs.sizes), {}
    for target in below.targets:
        predicted = sum(n for (by, _), n in read.items() if by == target)
        recorded = sum(n for (by, _), n in jobs.recorded.items() if by == target)
        if recorded:
            told[target] = predicted / recorded - 1
    return told


def columns(rows: Mapping[Key, Row], *names: str) -> dict[Key, list[Any]]:
    """Some columns of the rows."""
    return {key: [row[name] for name in names] for key, row in rows.items()}
