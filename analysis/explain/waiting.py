"""Waiting time on the critical paths of steps, by thread, Python function and kind."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tracer.analysis.exchange.folded import NO_LOOK, leaf
from tracer.analysis.explain.words import line_name
from tracer.analysis.findings.finding import name
from tracer.analysis.views.critical_path import RUN, main_steps
from tracer.store.trace import Trace

_LEAST_SHARE = 0.002
"""Smallest share of all waiting time that a box is drawn for."""
_MOST_STACKS = 2000
"""Most stacks that are drawn, those with the most time."""

_QUERY = f"""
SELECT comm, stack, kind, call, detail, by_comm, sum(dur_ns)::DOUBLE / 1e6 AS ms
FROM critical_path WHERE {{main}} AND kind != '{RUN}' AND dur_ns > 0 GROUP BY ALL
ORDER BY ms DESC LIMIT {_MOST_STACKS}
"""


def waiting_boxes(trace: Trace) -> pd.DataFrame:
    """Returns the boxes of a flame graph of waiting time, the root's depth being 0.

    Columns: depth, from_ms, ms, name (short), said (the whole name). Empty if the trace has no
    looks at Python stacks.
    """
    columns = ["depth", "from_ms", "ms", "name", "said"]
    if "python_stacks" not in trace.tables:
        return pd.DataFrame(columns=columns)
    stacks = [
        (_frames(comm, stack, *wait), ms)
        for comm, stack, *wait, ms in trace.rows(_QUERY.format(main=main_steps(trace)))
    ]
    least = _LEAST_SHARE * sum(ms for _, ms in stacks)
    found = [one for one in _boxes(sorted(stacks), 0, 0.0) if one[2] >= least]
    return pd.DataFrame(found, columns=columns)


def _frames(comm: str | None, stack: str | None, *wait: str) -> tuple[str, ...]:
    functions = [NO_LOOK] if stack is None else stack.split(";")
    return (comm or "[unnamed]", *functions, leaf(*wait))


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
