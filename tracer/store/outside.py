"""Converts calls into PyTorch's engine, seen by uprobes, into spans for `training`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.probes.events.torch_calls import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    RECORD_BEGIN,
    RECORD_END,
    TABLE,
)
from tracer.store.span import Span

UPROBE = "uprobe"

_MOST_OPEN = 1000
_MOST_WITHIN = 10_000
"""Most calls within another call. More: its end was not seen."""
_ROWS = 1 << 16
_OPTIMIZER = "Optimizer.step#"
_RECORDS = (
    ("enumerate(DataLoader)#", "fetch"),
    (_OPTIMIZER, "optimizer"),
    ("Optimizer.zero_grad#", "zero_grad"),
)
"""Beginnings of PyTorch's names, and ours."""

Take = Callable[[int, int, list[Span]], None]
"""Called with a process, a thread, and the thread's facts in order of their start."""


class Calls:
    """The table `torch_calls` in a folder; it may be missing."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{TABLE.name}.parquet"
        self.pids: set[int] = set()
        """Processes with calls."""
        self.learning: set[int] = set()
        """Processes that learn."""
        for rows in self._batches(["pid", "event", "name"]):
            pid = rows.column("pid")
            self.pids |= set(pc.unique(pid.drop_null()).to_pylist())
            learns = pc.or_kleene(
                pc.equal(rows.column("event").cast(pa.string()), BACKWARD_BEGIN),
                pc.starts_with(rows.column("name").cast(pa.string()), _OPTIMIZER),
            )
            self.learning |= set(pc.unique(pid.filter(learns).drop_null()).to_pylist())

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self._path.exists():
            with pq.ParquetFile(self._path) as file:
                yield from file.iter_batches(_ROWS, columns=columns)

    def read(self, take: Take, but: set[int]) -> None:
        """Passes on fetch, backward and optimizer of each thread, and the forward between them.

        Leaves out the processes in `but`.
        """
        threads: dict[tuple[int, int], _Thread] = {}
        for batch in self._batches(["ts", "pid", "tid", "event", "name", "object"]):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for ts, pid, tid, event, name, record in rows:
                if pid is not None and pid not in but:
                    thread = threads.get((pid, tid))
                    if thread is None:
                        thread = threads[pid, tid] = _Thread(pid, tid, take)
                    thread.call(ts, event, name, record)
        for thread in threads.values():
            thread.finish()


class _Thread:
    """The calls of one thread, in order of time."""

    def __init__(self, pid: int, tid: int, take: Take) -> None:
        self.pid = pid
        self.tid = tid
        self._take = take
        self._spans: list[Span] = []
        """Spans since the time when none was open."""
        self._backwards: list[Span] = []
        self._records: deque[Span | None] = deque()
        self._known = 0
        """Number of spans in `_records`."""
        self._ended: int | None = None
        """The record that ended last: its destructor ends it again."""
        self._idle: tuple[int, int] | None = None
        """The longest pause between calls since the last fetch, optimizer or backward."""
        self._begun: int | None = None
        self._busy = -1
        self._latest = ""
        """Name of the last fact."""

    def call(self, ts: int, event: str, name: str | None, record: int | None) -> None:
        """Takes one row of the table."""
        if event == BACKWARD_BEGIN:
            self._backwards.append(self._begin(ts, "backward"))
        elif event == BACKWARD_END and self._backwards:
            self._backwards.pop().end = ts
        elif event == RECORD_BEGIN:
            self._ended = None
            known = next((n for start, n in _RECORDS if (name or "").startswith(start)), None)
            if known == "fetch":
                self._backwards.clear()  # an exception has ended the open ones
            self._records.append(self._begin(ts, known) if known else None)
            self._known += known is not None
            if len(self._records) > _MOST_OPEN:
                self._known -= self._records.popleft() is not None
        elif event == RECORD_END and record != self._ended:
            self._ended = record
            if self._records and (span := self._records.pop()) is not None:
                span.end = ts
                self._known -= 1
        del self._backwards[:-_MOST_OPEN]
        if not self._backwards and not self._known:
            self._hand_on(None)

    def _begin(self, ts: int, name: str) -> Span:
        span = Span(ts, self.pid, self.tid, name)
        if len(self._spans) >= _MOST_WITHIN:
            self._backwards.clear()
            self._records = deque([None] * len(self._records))
            self._known = 0
        if not self._backwards and not self._known:
            self._hand_on(span)
        self._spans.append(span)
        return span

    def _hand_on(self, following: Span | None) -> None:
        """Passes on the spans so far, except nested ones, with the forwards between them."""
        found: list[Span] = []
        spans, self._spans = self._spans, []
        for span, after in zip(spans, [*spans[1:], following], strict=False):
            if span.end is None and after is not None:
                span.end = after.start  # an exception has ended it
            if span.start < self._busy:
                if span.name == "backward" and self._latest == "optimizer":
                    found.append(span)  # in the optimizer's closure
                    self._latest = span.name
                continue
            self._busy = (1 << 62) if span.end is None else span.end
            if self._begun is not None:
                idle = self._begun, span.start
                if self._idle is None or idle[1] - idle[0] > self._idle[1] - self._idle[0]:
                    self._idle = idle
            self._begun = span.end
            if span.name == "zero_grad":
                continue
            if span.name == "backward" and self._idle is not None:
                # Scripts zero the gradients before the forward or after it.
                start, end = self._idle
                found.append(Span(start, self.pid, self.tid, "forward", None, 1, end, "inferred"))
            self._idle = None
            self._latest = span.name
            found.append(span)
        if found:
            self._take(self.pid, self.tid, found)

    def finish(self) -> None:
        """Passes on open spans."""
        self._hand_on(None)
