"""The view `steps`, worked out naively: each nanosecond of a step goes to its innermost part.

It is written from docs/phases.md, not from the view's code.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Phase = dict[str, Any]
STAGES = ("train", "eval", "inference")
PARTS = ("fetch", "forward", "backward", "optimizer", "checkpoint")
GPU_PARTS = ("forward", "backward", "optimizer")
NEVER = 1 << 62


def end_of(phase: Phase) -> int:
    return NEVER if phase["end"] is None else phase["end"]


def around(phases: list[Phase], place: int) -> list[Phase]:
    """The phases of a thread that the one at `place` lies in, the innermost first.

    They began no later, and are not over when it begins. Of two of the same time the one that
    was begun first is around the other one.
    """
    phase = phases[place]
    return [
        other
        for other in reversed(phases[:place])
        if end_of(other) >= end_of(phase) and end_of(other) > phase["start"]
    ]


def first(phases: list[Phase], *names: str) -> Phase | None:
    return next((phase for phase in phases if phase["name"] in names), None)


def steps_of(rows: list[Phase]) -> list[dict[str, Any]]:
    """The rows of `steps`: of the table phases, in order of start and latest end first."""
    threads: dict[Any, list[Phase]] = defaultdict(list)
    for row in rows:
        if row["tid"] is not None:
            threads[row["pid"], row["tid"]].append(row)
    steps = [step for phases in threads.values() for step in steps_of_thread(phases)]
    for step in steps:
        sources = {row["source"] for row in rows if row["pid"] == step["pid"]} - {"inferred"}
        if sources == {"uprobe"} and step["checkpoint_ns"] == 0:
            step["checkpoint_ns"] = None  # uprobes see none
    return steps


def steps_of_thread(phases: list[Phase]) -> list[dict[str, Any]]:
    outer = {id(phase): around(phases, place) for place, phase in enumerate(phases)}
    steps = [phase for phase in phases if phase["name"] == "step"]
    stage = {id(phase): first(outer[id(phase)], *STAGES) for phase in phases}
    parts: dict[int, list[Phase]] = {id(step): [] for step in steps}
    for part in phases:
        if part["name"] not in PARTS:
            continue
        step = owner(part, steps, outer, stage)
        if step is not None:
            parts[id(step)].append(part)
    return [row_of(step, parts[id(step)], stage[id(step)], outer) for step in steps]


def owner(part: Phase, steps: list[Phase], outer: Any, stage: Any) -> Phase | None:
    """The step that a part counts in: the one around it, or the one that takes its batch."""
    around_it = [phase for phase in outer[id(part)] if not is_left(phase, part, steps)]
    inside = first(around_it, "step")
    if inside is not None or part["name"] != "fetch" or part["end"] is None:
        return inside if part["end"] is not None else None
    later = [s for s in steps if s["start"] >= end_of(part) and stage[id(s)] is stage[id(part)]]
    if not later:
        return None
    step = later[0]
    marks = [first(outer[id(phase)], "epoch") for phase in (step, part)]
    numbers = [phase["epoch"] for phase in (step, part)]
    differ = [a is not b for a, b in (marks,) if a and b] + [
        a != b for a, b in (numbers,) if None not in numbers
    ]
    return None if any(differ) else step


def is_left(phase: Phase, part: Phase, steps: list[Phase]) -> bool:
    """Returns whether the phase is a step that never ended, and the part follows the next step's
    begin."""
    if phase["name"] != "step" or phase["end"] is not None:
        return False
    after = steps[next(n for n, step in enumerate(steps) if step is phase) + 1 :]
    return bool(after) and after[0]["start"] <= part["start"]


def directly_in(part: Phase, parts: list[Phase], outer: Any) -> list[Phase]:
    """Those of the parts that lie in this one, and in none that does so too."""
    return [p for p in parts if first(outer[id(p)], *PARTS) is part]


def own_time(part: Phase, parts: list[Phase], outer: Any) -> int:
    """The time of a part without what lies in it of other parts."""
    within = directly_in(part, parts, outer)
    return part["end"] - part["start"] - sum(p["end"] - p["start"] for p in within)


def own_gpu_time(part: Phase, parts: list[Phase], outer: Any) -> int | None:
    """Likewise; None where it, or a part in it that a GPU may compute, was not measured."""
    within = [p for p in directly_in(part, parts, outer) if p["name"] in GPU_PARTS]
    if None in [p["gpu_ns"] for p in [part, *within]]:
        return None
    return part["gpu_ns"] - sum(p["gpu_ns"] for p in within)


def row_of(step: Phase, parts: list[Phase], stage: Phase | None, outer: Any) -> dict[str, Any]:
    start = min([step["start"], *(part["start"] for part in parts)])
    row = {name: step[name] for name in ("pid", "tid", "epoch", "step", "end", "source")}
    row |= {"stage": stage and stage["name"], "start": start, "gpu_wait_ns": None}
    times = dict.fromkeys(
        ["total_ns", "fetch_stall_ns", "compute_ns", *(f"{p}_ns" for p in PARTS[1:])]
    )
    times |= {"overhead_ns": None} | {f"gpu_{name}_ns": None for name in GPU_PARTS}
    if step["end"] is None:
        return row | times
    spent = {n: sum(own_time(p, parts, outer) for p in parts if p["name"] == n) for n in PARTS}
    times = {f"{name}_ns": spent[name] for name in PARTS[1:]}
    times["fetch_stall_ns"] = spent["fetch"]
    times["compute_ns"] = sum(spent[name] for name in GPU_PARTS)
    times["total_ns"] = step["end"] - start
    times["overhead_ns"] = times["total_ns"] - sum(spent.values())
    for name in GPU_PARTS:
        measured = [own_gpu_time(p, parts, outer) for p in parts if p["name"] == name]
        told = measured and None not in measured
        times[f"gpu_{name}_ns"] = sum(measured) if told else None
    return row | times
