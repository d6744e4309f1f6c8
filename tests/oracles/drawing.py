"""Numbers drawn at random for the oracles: the same ones at every run, unless told otherwise."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.views.view import View
from tracer.store.trace import Trace

T = TypeVar("T")

FACTOR = float(os.environ.get("TRACER_ORACLE_FACTOR", "1"))
"""Tests draw their usual number of cases times this."""
SEED = int(os.environ.get("TRACER_ORACLE_SEED", "1"))
"""The first case's number; each case is drawn from its own."""

Row = dict[str, Any]


def seeds(usual: int) -> range:
    """Returns the numbers of a test's cases: `usual` of them, times FACTOR."""
    return range(SEED, SEED + max(1, round(usual * FACTOR)))


def batches(size: int, usual: int = 100) -> list[list[random.Random]]:
    """Returns the cases, `usual` of them times FACTOR, and `size` of them in a trace."""
    numbers = seeds(usual)
    return [[random.Random(n) for n in numbers[i : i + size]] for i in range(0, len(numbers), size)]


def first_with(
    has: Callable[[T], object], make: Callable[[int], T], seed: int, most: int = 1000
) -> T:
    """Returns the first case from a seed on that has what a test is about, by `has`.

    Mostly that is the seed's own case. Fails if none of so many cases (`most`) has it.
    """
    for number in range(seed, seed + most):
        if has(case := make(number)):
            return case
    raise AssertionError(f"none of {most} cases from {seed} on has what the test is about")


def answer_of(ask: Callable[[Trace], T], tables: dict[str, list[Row]], **manifest: Any) -> T:
    """Returns what a function tells of a trace with these tables."""
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", tables, **manifest) as trace,
    ):
        return ask(trace)


def rows_of_view(view: View, tables: dict[str, list[Row]], **manifest: Any) -> list[Row]:
    """Returns the rows of the view for a trace with these tables."""

    def rows(trace: Trace) -> list[Row]:
        view.make(trace)
        cursor = trace.connection.execute(f"SELECT * FROM {view.name}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return answer_of(rows, tables, **manifest)


def grouped(rows: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by their case, each case's in one order, whatever order they came in."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    for of_case in found.values():
        of_case.sort(key=lambda row: repr(sorted(row.items())))
    return found
