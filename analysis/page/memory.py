"""The page of a prediction: what each target reads with another amount of memory."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.figures.memory import by_memory
from tracer.analysis.findings.finding import name, size
from tracer.analysis.memory.answer import BOUNDS, KERNEL, MemoryAnswer
from tracer.analysis.memory.words import HEADINGS, NOTE, basis, split, together
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.explanation import Section
from tracer.analysis.page.summary import Tile
from tracer.analysis.page.tables import page_table

_TEMPLATE = "memory.html.j2"
_MIB = 1 << 20
_DRAWN = {
    "none": "",
    "first": "The first epoch. ",
    "later": "Mean of the whole epochs after the first. ",
}


def memory_page(title: str, found: MemoryAnswer) -> str:
    """Returns the self-contained page."""
    sections = []
    for number, (target, reads) in enumerate(found.reads.groupby("target", sort=True)):
        label, drawn = split(reads)[-1]
        table = _table(reads, found.page_bytes)
        sections.append(
            Section(
                f"target-{number}",
                f"Reads of {name(target)}, with other memory",
                _DRAWN[label] + NOTE,
                by_memory(_means(drawn, found.page_bytes), HEADINGS),
                page_table(f"reads-{number}", table, "", NOTE),
            )
        )
    for number, names in enumerate(found.shared):
        reads = found.sums[[one == names for one in found.sums["targets"]]]
        table = _table(reads.assign(epoch="all"), found.page_bytes)
        sections.append(
            Section(
                f"together-{number}",
                f"Reads of {together(names)}, with other memory for all of them",
                f"All epochs together. {NOTE}",
                by_memory(_means(reads, found.page_bytes), HEADINGS),
                page_table(f"sums-{number}", table, "", NOTE),
            )
        )
    return render(
        _TEMPLATE,
        TEMPLATES,
        figures=True,
        name=title,
        tiles=_tiles(found),
        sections=sections,
        basis=basis(found),
    )


def _tiles(found: MemoryAnswer) -> list[Tile]:
    return [
        Tile("enough", size(amount), f"{name(target)} reads no page twice (LRU)")
        for target, amount in sorted(found.enough_bytes.items())
        if not any(target in names for names in found.shared)
    ] + [
        Tile(
            "enough together",
            size(found.enough_bytes[names[0]]),
            f"{together(names)} read no page twice (LRU)",
        )
        for names in found.shared
    ]


def _means(reads: pd.DataFrame, page_bytes: int) -> pd.DataFrame:
    models = (KERNEL, *BOUNDS)
    means = reads.groupby("memory_bytes")[[f"{model}_pages" for model in models]].mean()
    named = {f"{model}_pages": f"{model}_bytes" for model in models}
    return (means * page_bytes).rename(columns=named).reset_index()


def _table(reads: pd.DataFrame, page_bytes: int) -> pd.DataFrame:
    keys = [column for column in ("pass", "epoch") if column in reads]
    shown = reads[keys].copy()
    shown.insert(0, "memory_mib", reads["memory_bytes"] / _MIB)
    for column in ("used", "recorded", KERNEL, *BOUNDS):
        shown[f"{HEADINGS.get(column, column)}_mib"] = reads[f"{column}_pages"] * page_bytes / _MIB
    return shown.sort_values(["memory_mib", *keys], ignore_index=True)
