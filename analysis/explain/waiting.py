"""Waiting time on the critical paths of steps, by thread, function and kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tracer.analysis.exchange.folded import functions, leaf
from tracer.analysis.explain.words import line_name
from tracer.analysis.findings.finding import name
from tracer.analysis.views.waiting.critical_path import RUN, main_steps
from tracer.store.trace import Trace

_LEAST_SHARE = 0.002
"""Smallest share of all waiting time that a box is drawn for."""
_MOST_STACKS = 2000
"""Most stacks that are drawn, those with the most time."""

_QUERY = f"""
WITH stacks AS (
    SELECT comm, stack, kernel_stack, kind, call, detail, by_comm, sum(dur_ns)::DOUBLE / 1e6 AS ms
    FROM critical_path WHERE {{main}} AND kind != '{RUN}' AND dur_ns > 0 GROUP BY ALL
)
SELECT *, count(*) OVER () AS stacks, sum(ms) OVER () AS all_ms FROM stacks
ORDER BY ms DESC, comm, stack, kernel_stack, kind, call, detail, by_comm LIMIT {_MOST_STACKS}
"""

_KERNEL_STACK = "SELECT 1 FROM off_cpu WHERE kernel_stack IS NOT NULL LIMIT 1"


@dataclass(frozen=True)
class Waiting:
    """The waiting time of steps as a flame graph draws it."""

    boxes: pd.DataFrame
    """Columns: depth (the root's is 0), from_ms, ms, name (short), said (the whole name)."""
    more_stacks: int = 0
    """Stacks that are left out, those with the least time."""
    more_share: float = 0.0
    """Their share of all waiting time."""


def waiting_boxes(trace: Trace) -> Waiting:
    """Returns the waiting time on the critical paths of steps, as boxes of a flame graph.

    There are no boxes if the trace has neither looks at Python stacks nor stacks of the kernel.
    """
    columns = ["depth", "from_ms", "ms", "name", "said"]
    if "python_stacks" not in trace.tables and not trace.rows(_KERNEL_STACK):
        return Waiting(pd.DataFrame(columns=columns))
    rows = trace.rows(_QUERY.format(main=main_steps(trace)))
    stacks = [(_frames(*wait), ms) for *wait, ms, _, _ in rows]
    drawn_ms = sum(ms for _, ms in stacks)
    least = _LEAST_SHARE * drawn_ms
    found = [one for one in _boxes(sorted(stacks), 0, 0.0) if one[2] >= least]
    boxes = pd.DataFrame(found, columns=columns)
    if not rows or rows[0][-2] == len(rows):
        return Waiting(boxes)
    *_, count, all_ms = rows[0]
    return Waiting(boxes, count - len(rows), 1 - drawn_ms / all_ms)


def _frames(
    comm: str | None, stack: str | None, kernel_stack: str | None, *wait: str
) -> tuple[str, ...]:
    return (comm or "[unnamed]", *functions(stack, kernel_stack), leaf(*wait))


def _boxes(
    stacks: Sequence[tuple[tuple[str, ...], float]], depth: int, begin: float
) -> list[tuple[int, float, float, str, str]]:
    """Returns the boxes of sorted stacks from a depth on, side by side from `begin`."""
    boxes: list[tuple[int, float, float, str, str]] = []
    # Without recursion: a stack may be deep.
    todo = [(stacks, depth, begin)]
    while todo:
        group, depth, begin = todo.pop()
        first = 0
        while first < len(group):
            frames = group[first][0]
            if depth >= len(frames):  # the stack ends here
                begin += group[first][1]
                first += 1
                continue
            last = first
            while last < len(group) and group[last][0][: depth + 1] == frames[: depth + 1]:
                last += 1
            ms = sum(each for _, each in group[first:last])
            boxes.append((depth, begin, ms, _short(frames[depth]), name(frames[depth])))
            todo.append((group[first:last], depth + 1, begin))
            begin += ms
            first = last
    return boxes


def _short(frame: str) -> str:
    return line_name(frame) if " (" in frame and not frame.startswith("[") else name(frame)
