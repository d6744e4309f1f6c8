"""The page of a prediction: what each target reads with another amount of memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from tracer.analysis.figures.memory import by_memory
from tracer.analysis.findings.finding import name, size
from tracer.analysis.memory.answer import BOUNDS, KERNEL, MemoryAnswer
from tracer.analysis.memory.clocks import HIGH, LOW, summed
from tracer.analysis.memory.words import (
    HEADINGS,
    LEAST_AND_MOST,
    NOTE,
    basis,
    split,
    together,
    uses_no_page_twice,
)
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.cells import NOTHING, cell
from tracer.analysis.page.explanation import Section
from tracer.analysis.page.summary import Tile
from tracer.analysis.page.tables import Cell, PageTable, page_table

_TEMPLATE = "memory.html.j2"
_MIB = 1 << 20
_NO_EPOCHS = "none"
_DRAWN = {
    _NO_EPOCHS: "",
    "first": "The first epoch. ",
    "later": "Later epochs. ",
}
_SHOWN = f"{HEADINGS[KERNEL]}_mib"


def memory_page(title: str, found: MemoryAnswer) -> str:
    """Returns the self-contained page."""
    sections = []
    for number, (target, reads) in enumerate(found.reads.groupby("target", sort=True)):
        label, drawn = split(reads)[-1]
        sections.append(
            _section(
                (f"target-{number}", f"reads-{number}"),
                f"Reads of {name(target)}, with other memory",
                _DRAWN[label],
                _table(reads, found.page_bytes),
                _means(drawn, found.page_bytes),
                of_an_epoch=label != _NO_EPOCHS,
            )
        )
    for number, names in enumerate(found.shared):
        reads = found.sums[[one == names for one in found.sums["targets"]]]
        sections.append(
            _section(
                (f"together-{number}", f"sums-{number}"),
                f"Reads of {together(names)}, with other memory for all of them",
                "All epochs together. ",
                _table(reads.assign(epoch="all"), found.page_bytes),
                _means(reads, found.page_bytes),
                of_an_epoch=False,
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


def _section(
    ids: tuple[str, str],
    title: str,
    drawn: str,
    table: pd.DataFrame,
    means: pd.DataFrame,
    of_an_epoch: bool,
) -> Section:
    """Returns a section. `ids`: its own, and that of its table. `drawn` says what `means` are."""
    ranged = table[f"{_SHOWN}_low"].notna().any()
    note = f"{NOTE} In brackets, and as bars: {LEAST_AND_MOST}" if ranged else NOTE
    figure = by_memory(means, HEADINGS, of_an_epoch)
    shown = _with_names(page_table(ids[1], table, "", note))
    return Section(ids[0], title, drawn + note, figure, shown)


def _with_names(table: PageTable) -> PageTable:
    """Returns the table with a name for no epoch, which is sorted before epoch 0."""
    at = [column.label for column in table.columns].index("epoch")
    none = Cell(_NO_EPOCHS, -1.0)
    rows = [
        [*row[:at], none if row[at].text == NOTHING else row[at], *row[at + 1 :]]
        for row in table.rows
    ]
    return replace(table, rows=rows)


def _tiles(found: MemoryAnswer) -> list[Tile]:
    alone = [
        [target]
        for target in sorted(found.enough_bytes)
        if not any(target in names for names in found.shared)
    ]
    return [_enough("enough", names, found) for names in alone] + [
        _enough("enough together", names, found) for names in found.shared
    ]


def _enough(title: str, names: list[str], found: MemoryAnswer) -> Tile:
    who, use, read = (
        (together(names), "use", "read") if len(names) > 1 else (name(names[0]), "uses", "reads")
    )
    if uses_no_page_twice(names, found):
        return Tile(title, "any memory", f"{who} {use} no page twice")
    return Tile(title, size(found.enough_bytes[names[0]]), f"{who} {read} no page twice (LRU)")


def _means(reads: pd.DataFrame, page_bytes: int) -> pd.DataFrame:
    models = (KERNEL, *BOUNDS)
    groups = reads.groupby("memory_bytes")
    means = groups[[f"{model}_pages" for model in models]].mean()
    by_clock = np.array([summed(rows) / len(rows) for _, rows in groups])
    means = means.assign(**{LOW: by_clock.min(axis=1), HIGH: by_clock.max(axis=1)})
    named = {column: str(column).replace("_pages", "_bytes") for column in means}
    return (means * page_bytes).rename(columns=named).reset_index()


def _table(reads: pd.DataFrame, page_bytes: int) -> pd.DataFrame:
    keys = [column for column in ("pass", "epoch") if column in reads]
    shown = reads[keys].copy()
    shown.insert(0, "memory_mib", reads["memory_bytes"] / _MIB)
    shown.insert(1, "cache_mib", reads["cache_bytes"] / _MIB)
    for column in ("used", "recorded", KERNEL, *BOUNDS):
        shown[f"{HEADINGS.get(column, column)}_mib"] = reads[f"{column}_pages"] * page_bytes / _MIB
    ends = reads[[LOW, HIGH]].astype(np.float64) * page_bytes / _MIB
    # A range that has the same digits is none.
    texts = [column.map(cell) for column in (ends[LOW], ends[HIGH], shown[_SHOWN])]
    same = (texts[0] == texts[2]) & (texts[1] == texts[2])
    for end, column in (("low", LOW), ("high", HIGH)):
        shown[f"{_SHOWN}_{end}"] = ends[column].mask(same)
    return shown.sort_values(["memory_mib", *keys], ignore_index=True)
