"""Pages at which tests of several folders look. A process makes each once, which takes seconds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.compared import make_repeats
from tests.support.in_memory import PLACE
from tests.support.recordings import EVIL, make_hostile, make_recording
from tracer.analysis.compare.comparison import Comparison, compare
from tracer.analysis.page.comparison import comparison_page
from tracer.analysis.page.trace import trace_page
from tracer.analysis.report.tables import all_tables
from tracer.analysis.timeline.lanes import Timeline, timeline

IMAGE = "<img src=x onerror=alert(3)>"
"""The name of an enemy's trace."""


@dataclass(frozen=True)
class Drawn:
    """The page of a trace, its lanes, and the names of its tables."""

    html: str
    timeline: Timeline
    tables: list[str]


@cache
def training() -> Drawn:
    """The page of a minute of training, with a note."""
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_recording(Path(folder) / "run.trace") as trace,
    ):
        tables = all_tables(trace)
        return Drawn(trace_page(trace, tables, ["a note"]), timeline(trace), list(tables))


@cache
def hostile() -> Drawn:
    """The page of an enemy's trace, with a note, no findings, and none of the papers' tables."""
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_hostile(Path(folder) / "evil.trace") as trace,
    ):
        tables = all_tables(trace)
        return Drawn(trace_page(trace, tables, [EVIL], [], []), timeline(trace), list(tables))


@cache
def compared() -> Comparison:
    """Runs of a base beside slow ones and those that are like it, five of each."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        return compare([path for paths in make_repeats(Path(folder)).values() for path in paths])


@cache
def comparison() -> str:
    """The page of `compared`."""
    return comparison_page(compared())


@cache
def hostile_comparison() -> str:
    """The page of two traces of an enemy, with names of an enemy for groups and for a trace."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        places = [Path(folder) / name for name in (f"{IMAGE}.trace", "b.trace")]
        for place in places:
            make_hostile(place, processes=1000).close()
        groups = {f"{EVIL}{number}": [place] for number, place in enumerate(places, 1)}
        return comparison_page(compare([], groups))
