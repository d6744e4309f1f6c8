"""Streams of accesses for the models of a page cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.memory.page_runs import FAULT, READ, REMOVE, WRITE, PageRuns


def made(rows: list[tuple[int, ...]], sizes: list[int], **others: Any) -> PageRuns:
    """Makes runs from rows (file, index, pages, kind, reader, tenant, group); all but `pages` of
    the last four may be left out. Default of reader: the file, of the others: 0."""
    full = [(*row, *((READ, row[0], 0, 0)[len(row) - 3 :])) for row in rows]
    # Readers are numbered densely.
    readers = {reader: n for n, reader in enumerate(dict.fromkeys(row[4] for row in full))}
    size = np.array(sizes, np.int64)
    base = np.concatenate(([0], size.cumsum()[:-1])).astype(np.int64)[: len(size)]
    columns: dict[str, Any] = {
        "first": np.array([base[row[0]] + row[1] for row in full], np.int64),
        "pages": np.array([row[2] for row in full], np.int32),
        "file": np.array([row[0] for row in full], np.int32),
        "reader": np.array([readers[row[4]] for row in full], np.int32),
        "tenant": np.array([row[5] for row in full], np.int32),
        "kind": np.array([row[3] for row in full], np.int8),
        "group": np.array([row[6] for row in full], np.int32),
        "base": base,
        "size_pages": size,
    }
    return PageRuns(**(columns | others))


def drawn(
    seed: int,
    rows: int,
    sizes: list[int],
    kinds: tuple[int, ...] = (READ, READ, READ, READ, FAULT, WRITE, REMOVE),
    tenants: int = 1,
    groups: int = 3,
    longest: int = 6,
) -> PageRuns:
    """Draws a mixture: readers that go on where they were, jump, or begin a file again."""
    draw = np.random.default_rng(seed)
    files = len(sizes)
    at = [0] * (2 * files)
    made_rows = []
    for row in range(rows):
        reader = int(draw.integers(2 * files))
        file = reader % files
        way = draw.random()
        if way < 0.15:
            at[reader] = 0
        elif way < 0.4:
            at[reader] = int(draw.integers(sizes[file]))
        elif way < 0.5:
            at[reader] = max(at[reader] - 1, 0)
        index = at[reader] % sizes[file]
        pages = int(min(1 + draw.integers(longest), sizes[file] - index))
        kind = int(draw.choice(kinds))
        if kind == FAULT:
            pages = 1
        at[reader] = index + pages
        tenant = int(draw.integers(tenants))
        group = (row * groups // rows) if tenants == 1 else tenant
        made_rows.append((file, index, pages, kind, reader, tenant, group))
    return made(made_rows, sizes)
