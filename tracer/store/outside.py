"""Calls into PyTorch's engine, as uprobes saw them, into spans: what `training` infers from."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import pyarrow.parquet as pq

from probes.torch_calls import BACKWARD_BEGIN, BACKWARD_END, RECORD_BEGIN, RECORD_END, TABLE
from tracer.store.marks import Span

UPROBE = "uprobe"

_MOST_OPEN = 1000
_RECORDS = (
    ("enumerate(DataLoader)#", "fetch"),
    ("Optimizer.step#", "optimizer"),
    ("Optimizer.zero_grad#", "zero_grad"),
)
"""What PyTorch calls them, by its beginning."""


def read_calls(folder: Path) -> list[Span]:
    """fetch, backward and optimizer of each thread, and the forward inferred between them.

    In order of threads, then of time. `folder` holds the table `torch_calls`.
    """
    path = folder / f"{TABLE.name}.parquet"
    if not path.exists():
        return []
    columns = pq.read_table(path, columns=["ts", "pid", "tid", "event", "name", "object"])
    threads: dict[tuple[int, int], _Thread] = {}
    for batch in columns.to_batches():
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for ts, pid, tid, event, name, record in rows:
            if pid is not None:
                thread = threads.setdefault((pid, tid), _Thread(pid, tid))
                thread.call(ts, event, name, record)
    return [span for key in sorted(threads) for span in threads[key].facts()]


class _Thread:
    """The calls of one thread, in order of time."""

    def __init__(self, pid: int, tid: int) -> None:
        self.pid = pid
        self.tid = tid
        self.spans: list[Span] = []
        self._backwards: list[Span] = []
        self._records: list[Span | None] = []
        self._ended: int | None = None
        """The record that ended last: its destructor ends it once more."""

    def call(self, ts: int, event: str, name: str | None, record: int | None) -> None:
        """One row of the table."""
        if event == BACKWARD_BEGIN:
            self._backwards.append(self._begin(ts, "backward"))
        elif event == BACKWARD_END and self._backwards:
            self._backwards.pop().end = ts
        elif event == RECORD_BEGIN:
            self._ended = None
            known = next((n for start, n in _RECORDS if (name or "").startswith(start)), None)
            self._records.append(self._begin(ts, known) if known else None)
            del self._records[:-_MOST_OPEN]
        elif event == RECORD_END and record != self._ended:
            self._ended = record
            if self._records and (span := self._records.pop()) is not None:
                span.end = ts
        del self._backwards[:-_MOST_OPEN]

    def _begin(self, ts: int, name: str) -> Span:
        self.spans.append(Span(ts, self.pid, self.tid, name))
        return self.spans[-1]

    def facts(self) -> list[Span]:
        """The spans that are not within a like one, with the forwards."""
        found: list[Span] = []
        idle: list[tuple[int, int]] = []
        """Between the calls since the last fetch, optimizer or backward."""
        begun: int | None = None
        busy = -1
        for span, after in zip_longest(self.spans, self.spans[1:]):
            if span.end is None and after is not None:
                span.end = after.start  # an exception ended it
            if span.start < busy:
                if span.name == "backward" and found[-1].name == "optimizer":
                    found.append(span)  # in its closure
                continue
            busy = (1 << 62) if span.end is None else span.end
            if begun is not None:
                idle.append((begun, span.start))
            begun = span.end
            if span.name == "zero_grad":
                continue
            if span.name == "backward" and idle:
                # Gradients may be set to zero before the forward or after.
                start, end = max(idle, key=lambda gap: gap[1] - gap[0])
                found.append(Span(start, self.pid, self.tid, "forward", None, 1, end, "inferred"))
            idle = []
            found.append(span)
        return found
