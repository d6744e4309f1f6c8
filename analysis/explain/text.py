"""An explanation on a terminal, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracer.analysis.explain.explanation import Explanation, Part, SlowStep
from tracer.analysis.explain.words import (
    ALONE,
    LOST,
    compared,
    duration,
    kernel_function,
    lost,
    meanwhile,
    step_called,
    steps_name,
    together,
    what,
    where,
)
from tracer.analysis.findings.finding import name, percent
from tracer.analysis.report.text import print_findings
from tracer.cli.output import console, print_table, safe

_MOST_PARTS = 12
_MOST_MORE = 5
_LEAST_SHARE = 0.005
_LEAST_MORE = 0.01
"""Smallest share of a step's time that is worth a row."""


def print_explanation(title: str, found: Explanation) -> None:
    """Prints what all steps depended on, then the slowest steps."""
    out = console()
    out.print(safe(title), style="bold")
    out.print(
        safe(
            f"{found.steps:,} {steps_name(found.stage, found.steps)}:"
            f" median {duration(found.median_ns)},"
            f" 95 % within {duration(found.p95_ns)}, the longest {duration(found.longest_ns)}."
        )
    )
    if (said := together(found)) is not None:
        out.print(safe(said))
    if found.lossy:
        out.print(safe(lost(found)), style="red")
    if found.unknown_share or found.inferred_share:
        out.print(
            safe(
                f"The cause of {percent(100 * found.unknown_share)} of their time is unknown, that"
                f" of {percent(100 * found.inferred_share)} is inferred."
            )
        )
    out.print()
    print_findings([one.sentence for one in found.findings])
    if not found.findings:
        out.print("No kind of wait takes 2 % of the steps' time.\n")
    shown = [part for part in found.parts if part.share >= _LEAST_SHARE][:_MOST_PARTS]
    rest = 1 - sum(part.share for part in shown)
    print_table(
        out,
        "What the time of all steps depended on",
        ("share", "where", "what the thread does"),
        (
            *(
                (percent(100 * part.share), where(part.group, found.targets), what(part.group))
                for part in shown
            ),
            *([(percent(100 * rest), "elsewhere", "")] if rest > _LEAST_SHARE else []),
        ),
        left=("where", "what the thread does"),
    )
    for step in found.slowest:
        _print_step(out, step, found)


def _print_step(out: Any, step: SlowStep, found: Explanation) -> None:
    called = step_called(step, found)
    times = step.total_ns / found.median_ns
    head = f"{called} took {duration(step.total_ns)}, {times:.1f} times the median."
    least = _LEAST_MORE * step.total_ns
    more = [part for part in step.parts if part.more_ns > least][:_MOST_MORE]
    out.print(safe(head), style="bold")
    if step.lossy:
        out.print(LOST, style="red")
    if more:
        out.print(safe(compared(step, more[0], found.targets)))
    _print_longest_storage(out, step)
    shown = more
    if not more:
        said = ALONE if step.alone else "It has no more of anything than a typical step."
        out.print(said, style="italic")
        if step.alone:
            out.print()
            return
        longest = sorted(step.parts, key=lambda part: -part.ns)[:_MOST_MORE]
        shown = [part for part in longest if part.ns > least]
    print_table(
        out,
        "",
        ("time", "more", "where", "what the thread does"),
        _rows(step, shown, found),
        left=("where", "what the thread does"),
    )


def _print_longest_storage(out: Any, step: SlowStep) -> None:
    """Says where in the kernel the step's longest wait for storage was, and what disks served."""
    longest = step.storage
    if longest is None or longest["dur_ns"] <= _LEAST_MORE * step.total_ns:
        return
    function = kernel_function(longest["kernel_stack"])
    if function is None and not longest["meanwhile"]:
        return
    said = f"Its longest wait for storage took {duration(longest['dur_ns'])}"
    said += f", in the kernel's {name(function)}." if function is not None else "."
    if longest["meanwhile"]:
        said += f" Meanwhile disks served {meanwhile(longest['meanwhile'])}."
    out.print(safe(said))


def _rows(step: SlowStep, parts: Sequence[Part], found: Explanation) -> Iterator[tuple[str, ...]]:
    """Yields the rows of these parts of a step, and one for the rest of its time."""
    for part in parts:
        yield (
            duration(part.ns),
            _difference(part.more_ns),
            where(part.group, found.targets),
            what(part.group),
        )
    rest = step.total_ns - sum(part.ns for part in parts)
    more = step.total_ns - step.typical_ns - sum(part.more_ns for part in parts)
    if max(rest, abs(more)) > _LEAST_MORE * step.total_ns:
        yield duration(rest), _difference(more), "elsewhere", ""


def _difference(ns: float) -> str:
    sign = "-" if ns < 0 else "+" if ns > 0 else ""
    return f"{sign}{duration(abs(ns))}"
