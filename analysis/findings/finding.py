"""The class of findings: a sentence with a number, and the query that gives the number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tracer.analysis.findings.window import Scope, Window, lossy
from tracer.store.trace import Trace

EXACT, AT_MOST, AT_LEAST, INFERRED = "exact", "at most", "at least", "inferred"
"""Certainty of a finding: as recorded, an upper bound, a lower bound, or inferred."""

ELSEWHERE = 0.25
"""Weight of a share of events, or of a time other than the training's, relative to a share of the
training's own time. It is below 1 because the cost of such an event to the training is unknown."""
FEW_EVENTS = 20
"""Least number of events for a share to have a weight. Shares of fewer events are chance."""

_LOST = "events were lost in this time, so the number is incomplete"
_MOST_CHARACTERS = 80
_ROUNDS_TO_1 = 0.9995
"""The least number that is 1 with three digits."""


@dataclass(frozen=True)
class Finding:
    """A sentence about a trace.

    `value` (in `unit`) is the first cell of the result of `query`, run by `tracer query` on the
    same trace. `weight` (0 to 1) ranks findings: it is the share of the training's time that the
    finding is about, or `ELSEWHERE` times the share of something else. `lossy`: events were lost
    in the finding's time, and the sentence says so. `certainty`: exact, at most, at least, or
    inferred.
    """

    topic: str
    sentence: str
    value: float
    unit: str
    weight: float
    query: str
    lossy: bool
    certainty: str


@dataclass(frozen=True)
class Answer:
    """The first row of a query's result. `value` is its first cell, in the finding's unit."""

    query: str
    value: float
    row: dict[str, Any]

    def number(self, name: str) -> float:
        """Returns a cell as a number; 0 if it holds none."""
        found = _number(self.row[name])
        return 0.0 if found is None else found

    def count(self, name: str) -> int:
        """Returns a cell as a whole number; 0 if it holds none."""
        return int(self.number(name))


def ask(trace: Trace, query: str, quick: str = "") -> Answer | None:
    """Returns the first row of a query, or None if there is no row or its first cell is no number.

    `quick` is another query with the same result, which is run instead.

    A query that bounds a share by `least(1, x)` needs a HAVING, because DuckDB's least ignores
    nulls.

    Raises BadTrace if a table is damaged.
    """
    frame = trace.sql(quick or query)
    if not len(frame):
        return None
    row = {str(name): value for name, value in frame.iloc[0].items()}
    value = _number(next(iter(row.values())))
    return None if value is None else Answer(query, value, row)


def finding(
    trace: Trace,
    window: Window,
    scopes: tuple[Scope, ...],
    topic: str,
    answer: Answer,
    sentence: str,
    unit: str,
    weight: float,
    certainty: str = EXACT,
) -> Finding:
    """Makes the finding of an answer. `scopes` are the scopes of the events that it counts.

    The finding is lossy if events of these scopes were lost in `window`.
    """
    lost = lossy(trace, window, scopes)
    said = f"{sentence}; {_LOST}" if lost else sentence
    bounded = min(1.0, max(0.0, weight))
    return Finding(topic, said, answer.value, unit, bounded, answer.query, lost, certainty)


def of_events(share: float, events: float) -> float:
    """Returns the weight of a finding about a share (0 to 1) of a number of events."""
    return ELSEWHERE * share if events >= FEW_EVENTS else 0.0


_ALMOST_ALL = 99.5
"""Percentage that would round to 100."""


def percent(value: float) -> str:
    """Formats a percentage with the digits that matter: "71 %", "0.4 %", "less than 0.1 %"."""
    if value == 0:
        return "0 %"
    if 0 < value < 0.1:
        return "less than 0.1 %"
    if -0.05 <= value < 0:
        return "slightly below 0 %"
    if _ALMOST_ALL <= value < 100:
        return "more than 99 %"
    return f"{value:.0f} %" if abs(value) >= 10 else f"{value:.1f} %"


def at_most(value: float) -> str:
    """Formats a percentage that is an upper bound: "at most 71 %", "less than 0.1 %"."""
    said = bound(value)
    return said if said.startswith("less") else f"at most {said}"


def bound(value: float) -> str:
    """Formats a percentage that is an upper bound, without a word: 99.7 is below "100 %"."""
    return "100 %" if _ALMOST_ALL <= value < 100 else percent(value)


def seconds(value: float) -> str:
    """Formats a time (s) in s, ms, us or ns, with three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        shown = abs(value) * size
        if shown >= _ROUNDS_TO_1:
            return f"{value * size:,.3g} {unit}" if shown < 999.5 else f"{value:,.0f} s"
    return "0 s" if value == 0 else f"{value * 1e9:.0f} ns"


def size(value: float) -> str:
    """Formats bytes in KiB, MiB, GiB or TiB."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if value >= 1 << power:
            return f"{value / (1 << power):,.1f} {unit}"
    return f"{value / 1024:,.1f} KiB"


def name(value: object, otherwise: str = "an unknown file") -> str:
    """Returns a name from the trace for use in a sentence: short, without control characters.

    A long name keeps its end, which for a path is the file name. A null gives `otherwise`.
    """
    if value is None or value != value:
        return otherwise
    text = str(value)
    if len(text) > _MOST_CHARACTERS:
        text = f"...{text[-_MOST_CHARACTERS:]}"
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def file_name(value: object) -> str:
    """Returns the last part of a path from the trace, or the whole of a name such as [anon]."""
    known = value is not None and value == value
    return name(str(value).rpartition("/")[2] or value if known else None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
