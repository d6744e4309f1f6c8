"""The phases of a trace: what scripts marked, what PyTorch was made to mark, what follows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from probes.phases import TABLE
from tracer.store.lists import MarkFacts
from tracer.store.marks import Span, read_spans
from tracer.store.outside import UPROBE, read_calls
from tracer.store.training import phases_of, without_marked

_LAST = 1 << 62


def read_phases(
    folder: Path,
    start_ns: int,
    end_ns: int | None,
    tables: Path | None = None,
    names: Iterable[MarkFacts] = (),
) -> pa.RecordBatch | None:
    """The phases that overlap the recording; None without any.

    They are of every marks file in `folder` and, for processes that have none there, of the
    table `torch_calls` in `tables`. `names` are those of containers' processes.
    """
    script, automatic = read_spans(folder, names)
    inferred = phases_of(automatic)
    if tables is not None:
        marked = {span.pid for span in automatic}
        inferred += phases_of([s for s in read_calls(tables) if s.pid not in marked], UPROBE)
    found = script + _numbered(without_marked(inferred, script), script)
    found = [
        p
        for p in found
        if (end_ns is None or p.start <= end_ns) and (p.end is None or p.end >= start_ns)
    ]
    if not found:
        return None
    found.sort(key=lambda p: (p.start, -(p.end or _LAST)))
    schema = TABLE.arrow_schema()
    columns = {f.name: pa.array([getattr(p, f.name) for p in found]) for f in schema}
    for name in ("pid", "tid"):
        # A container's own name for it is nothing that other tables know.
        columns[name] = pc.if_else(pc.greater(columns[name], 0), columns[name], None)
    return pa.RecordBatch.from_arrays(
        [
            columns[f.name].cast(pa.string()).dictionary_encode()
            if pa.types.is_dictionary(f.type)
            else columns[f.name].cast(f.type)
            for f in schema
        ],
        schema=schema,
    )


def _numbered(found: list[Span], script: list[Span]) -> list[Span]:
    """With the numbers of the script's own phase around each, where it gives any."""
    by_thread: dict[tuple[int, int], list[Span]] = {}
    for span in script:
        if span.epoch is not None or span.step is not None:
            by_thread.setdefault((span.pid, span.tid), []).append(span)
    if not by_thread:
        return found
    numbered = []
    for thread, spans in _threads(found).items():
        marked = sorted(by_thread.get(thread, ()), key=lambda s: s.start)
        at = 0
        open_spans: list[Span] = []
        for span in sorted(spans, key=lambda s: s.start):
            while at < len(marked) and marked[at].start <= span.start:
                open_spans.append(marked[at])
                at += 1
            # A phase ends no earlier than what began inside it.
            while open_spans and _ended(open_spans[-1], span.start):
                open_spans.pop()
            around = open_spans[-1] if open_spans else span
            numbered.append(span.but(epoch=around.epoch, step=around.step))
    return numbered


def _ended(span: Span, at: int) -> bool:
    return span.end is not None and span.end <= at


def _threads(spans: list[Span]) -> dict[tuple[int, int], list[Span]]:
    found: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        found.setdefault((span.pid, span.tid), []).append(span)
    return found
