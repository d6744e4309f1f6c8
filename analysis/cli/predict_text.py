"""A prediction of reads on a terminal, in at most 80 columns."""

from __future__ import annotations

from tracer.analysis.findings.finding import name
from tracer.analysis.memory.answer import MemoryAnswer
from tracer.analysis.memory.words import HEADINGS, NOTE, basis, rows, sum_rows, together
from tracer.cli.output import console, print_table, safe


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
    for title, lines in tables:
        out.print()
        print_table(
            out,
            title,
            ("memory", "cache", "epoch", "used", "recorded", *HEADINGS.values()),
            lines,
            left=("memory", "cache", "epoch"),
            note=NOTE,
        )
