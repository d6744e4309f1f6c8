"""A prediction of reads on a terminal, in at most 80 columns."""

from __future__ import annotations

from tracer.analysis.findings.finding import name
from tracer.analysis.memory.answer import MemoryAnswer
from tracer.analysis.memory.words import HEADINGS, NOTE, basis, rows
from tracer.cli.output import console, print_table, safe


def print_answer(title: str, found: MemoryAnswer) -> None:
    """Prints for each target what it would read, and what the prediction rests on."""
    out = console()
    out.print(safe(title), style="bold")
    for sentence in basis(found):
        out.print(safe(sentence))
    for target, reads in found.reads.groupby("target", sort=True):
        out.print()
        print_table(
            out,
            f"Reads of {name(target)}, with other memory",
            ("memory", "cache", "epoch", "used", "recorded", *HEADINGS.values()),
            rows(reads, found.page_bytes),
            left=("memory", "cache", "epoch"),
            note=NOTE,
        )
