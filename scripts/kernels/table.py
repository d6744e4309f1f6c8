"""The results as one table: a row per check, a column per kernel, and notes for all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

OK, SKIPPED, FAILS = "ok", "skipped", "FAILS"


@dataclass(frozen=True)
class Result:
    """The result of a check of one backend on one kernel."""

    outcome: str
    """OK, SKIPPED or FAILS."""
    why: str = ""


@dataclass
class Column:
    """Everything about one kernel."""

    kernel: str
    seconds: float
    cells: dict[str, dict[str, Result]] = field(default_factory=dict)
    """Results by title of the check and by backend."""

    @property
    def fails(self) -> bool:
        """Returns whether anything failed."""
        every = [result for cell in self.cells.values() for result in cell.values()]
        return not every or any(result.outcome == FAILS for result in every)


def lines(columns: Sequence[Column]) -> list[str]:
    """Returns the table as markdown that is also readable as it is."""
    notes: dict[str, int] = {}
    titles = list(dict.fromkeys(title for column in columns for title in column.cells))
    rows = [["check", *(column.kernel for column in columns)]]
    for title in titles:
        cells = [_cell(column.cells.get(title, {}), notes) for column in columns]
        rows.append([title, *cells])
    rows.append(["seconds", *(f"{column.seconds:.0f}" for column in columns)])
    told = [f"{number}. {why}" for why, number in notes.items()]
    return [*aligned(rows), *(["", *told] if told else [])]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a markdown table that is also readable as it is; the head is first."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return [head, rule, *body]


def _cell(results: dict[str, Result], notes: dict[str, int]) -> str:
    """Returns the outcomes of all backends in a few words, and numbers the reasons."""
    outcomes: dict[tuple[str, str], list[str]] = {}
    for backend, result in results.items():
        outcomes.setdefault((result.outcome, result.why), []).append(backend)
    said = []
    for (outcome, why), backends in outcomes.items():
        words = outcome if len(backends) == len(results) else f"{outcome} {'+'.join(backends)}"
        said.append(f"{words} [{notes.setdefault(why, len(notes) + 1)}]" if why else words)
    return "; ".join(said) or "-"
