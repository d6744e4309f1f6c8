"""A prediction of reads on a terminal, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracer.analysis.findings.finding import name
from tracer.analysis.memory.answer import KERNEL, MemoryAnswer
from tracer.analysis.memory.words import (
    HEADINGS,
    LEAST_AND_MOST,
    NOTE,
    basis,
    rows,
    sum_rows,
    together,
)
from tracer.cli.output import console, print_table, safe, show

_COLUMNS = ("memory", "cache", "epoch", "used", "recorded", *HEADINGS.values())
_EPOCH = _COLUMNS.index("epoch")
_KERNEL = _COLUMNS.index(HEADINGS[KERNEL])


def print_answer(trace: str, found: MemoryAnswer) -> None:
    """Prints what each target would read, and those that share the memory together, and what the
    prediction rests on."""
    out = console()
    out.print(safe(trace), style="bold")
    for sentence in basis(found):
        out.print(safe(sentence))
    tables = [
        (f"Reads of {name(target)}, with other memory", rows(reads, found.page_bytes))
        for target, reads in found.reads.groupby("target", sort=True)
    ]
    for names in found.shared:
        mine = found.sums[[one == names for one in found.sums["targets"]]]
        title = f"Reads of {together(names)}, with other memory for all of them"
        tables.append((title, sum_rows(mine, found.page_bytes)))
    for title, given in tables:
        lines = [line for row in given for line in _lines(row)]
        note = NOTE if len(lines) == len(given) else f"{NOTE} Least, most: {LEAST_AND_MOST}"
        out.print()
        print_table(out, title, _COLUMNS, lines, left=("memory", "cache", "epoch"), note=note)


def _lines(row: Sequence[object]) -> Iterator[Sequence[object]]:
    """Yields a row, and two more with the least and the most of the kernel's model, unless they are
    shown with the same digits."""
    *cells, least, most = row
    yield cells
    ends = {"least": least, "most": most}
    if {show(end).plain for end in ends.values()} == {show(cells[_KERNEL]).plain}:
        return
    for label, end in ends.items():
        line: list[object] = [""] * len(cells)
        line[_EPOCH], line[_KERNEL] = label, end
        yield line
