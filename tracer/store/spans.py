"""Marks of one process into spans: what began and ended on which of its threads.

Marks come in order of time, and spans are handed on as they end. What is held meanwhile are open
spans, and those within what PyTorch is doing just now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, END

COMPUTE = ("forward", "backward", "optimizer")
LEARNS = ("backward", "optimizer")

_MOST_OPEN = 1000
"""Deepest nesting of spans on one thread; deeper is a marks file gone wild."""
_MOST_WITHIN = 10_000
"""Facts within another one. More: an exception has skipped the mark at its end."""
_MOST_THREADS = 4096
"""Of one process; of more, the one that has not marked for the longest time is taken to be over."""
_MOST_NAMES = 4096
_MAX_GPU_NS = 1 << 50
"""Thirteen days; more is no time that was measured."""
_MOST_UNMEASURED = 1000
"""Computations that the GPU may be behind: `_MAX_PENDING` in `phases.automatic.cuda`."""


@dataclass(slots=True, eq=False)
class Span:
    """Something that a thread did for a time. An end of None: it had not ended it.

    Negative pids and tids are those of a container, whose names here are not known.
    """

    start: int
    pid: int
    tid: int
    name: str
    epoch: int | None = None
    step: int | None = None
    end: int | None = None
    source: str = "script"
    gpu_ns: int | None = None
    """What the GPU took for it, where that was measured."""
    around: tuple[int | None, int | None] | None = None
    """Epoch and step of the script's own phase that it began in, where that has any."""
    loop: int = -1
    """Where given, the epoch is that of cycle `cycle` of this loop (`training.Epochs`)."""
    cycle: int = -1


class Takes(Protocol):
    """What is done with spans."""

    def phase(self, span: Span) -> None:
        """Take a phase that the script marked: it has ended, or never does."""
        ...

    def facts(self, tid: int, spans: list[Span]) -> None:
        """Take what PyTorch was made to mark: spans of a thread in order of their start.

        What lies within one of them is among them, too.
        """
        ...

    def ended(self, tid: int) -> None:
        """Nothing more comes of a thread."""
        ...


class Spans:
    """The spans of one process."""

    def __init__(self, pid: int, takes: Takes, leading: Collection[int], measured: bool) -> None:
        """`leading` are the threads that fetch or learn; where there are any, others help them.

        `measured`: whether marks tell what the GPU took.
        """
        self.pid = pid
        self.takes = takes
        self.measured = measured
        self._leading = leading
        self._threads: dict[int, _Thread] = {}
        self._leaders: list[_Thread] = []
        self._names: dict[bytes, str] = {}

    def add(self, records: np.ndarray[Any, Any]) -> None:
        """Take marks (`tracer.phases.format`), in order of time."""
        seen: dict[int, _Thread] = {}
        for ts, tid, epoch, step, kind, raw in zip(
            *(records[name].tolist() for name in ("ts", "tid", "epoch", "step", "kind", "name")),
            strict=True,
        ):
            thread = seen.get(tid)
            if thread is None:
                thread = seen[tid] = self._thread(tid)
            name = self._names.get(raw) or self._name(raw)
            if kind == BEGIN | AUTOMATIC:
                thread.fact(ts, name, epoch, step)
            elif kind == END | AUTOMATIC:
                thread.end_fact(ts, name)
            elif kind == BEGIN:
                thread.begin(ts, name, epoch, step)
            elif kind == END:
                thread.end(ts, name)
            else:
                thread.measure(ts, epoch, step, name)
        # The latest ones last.
        for tid in seen:
            self._threads[tid] = self._threads.pop(tid)
        for tid in [*self._threads][: max(0, len(self._threads) - _MOST_THREADS)]:
            self._end(tid)

    def _thread(self, tid: int) -> _Thread:
        thread = self._threads.get(tid)
        if thread is None:
            helps = bool(self._leading) and tid not in self._leading
            thread = self._threads[tid] = _Thread(self, tid, helps)
            if not helps:
                self._leaders.append(thread)
        return thread

    def _name(self, raw: bytes) -> str:
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        name = self._names[raw] = raw.rstrip(b"\0").decode("utf-8", "backslashreplace")
        return name

    def helped(self, span: Span) -> bool:
        """Whether a span that ends now lies within a computation of a thread that leads.

        So it is a helper of PyTorch's: a replica's forward, or one computed anew by a backward.
        """
        return any(
            around.start <= span.start and around.name in COMPUTE
            for thread in self._leaders
            for around in thread.open_facts
        )

    def finish(self) -> None:
        """Hand on what has not ended."""
        for tid in [*self._threads]:
            self._end(tid)

    def _end(self, tid: int) -> None:
        thread = self._threads.pop(tid)
        if thread in self._leaders:
            self._leaders.remove(thread)
        thread.finish()
        self.takes.ended(tid)


class _Thread:
    """The open spans of one thread, and what is held back."""

    def __init__(self, process: Spans, tid: int, helps: bool) -> None:
        self.open_facts: list[Span] = []
        self._process = process
        self._takes = process.takes
        self._pid, self._tid = process.pid, tid
        self._helps = helps
        self._open: list[Span] = []
        """Phases of the script."""
        self._within: list[Span] = []
        """Facts since none was open."""
        self._computed = 0
        self._held: deque[tuple[int, Span | list[Span]]] = deque()
        """What the GPU may still be measured for: as much was computed when it ended."""
        self._begun: dict[tuple[bool, str], deque[Span]] = {}
        """The latest spans, by kind and name, where the GPU is measured."""

    def begin(self, ts: int, name: str, epoch: int, step: int) -> None:
        """A phase of the script begins; it inherits the numbers that it is not given."""
        around = self._open[-1] if self._open else None
        if len(self._open) >= _MOST_OPEN:
            self._hand_on(self._open.pop(0))
        span = Span(ts, self._pid, self._tid, name)
        span.epoch = epoch if epoch != ABSENT else around.epoch if around else None
        span.step = step if step != ABSENT else around.step if around else None
        self._open.append(span)
        if self._process.measured:
            self._remember(False, span)

    def end(self, ts: int, name: str) -> None:
        """The innermost phase of this name ends, and what was left open inside it."""
        for span in _closed(self._open, ts, name):
            self._hand_on(span)

    def fact(self, ts: int, name: str, epoch: int, step: int) -> None:
        """PyTorch begins something."""
        if len(self.open_facts) >= _MOST_OPEN:
            del self.open_facts[0]
        span = Span(ts, self._pid, self._tid, name)
        span.epoch = epoch if epoch != ABSENT else None
        span.step = step if step != ABSENT else None
        if self._open:
            around = self._open[-1]
            if around.epoch is not None or around.step is not None:
                span.around = (around.epoch, around.step)
        self.open_facts.append(span)
        self._within.append(span)
        if self._process.measured:
            self._remember(True, span)
        if len(self._within) > _MOST_WITHIN:
            self._end_outermost()

    def end_fact(self, ts: int, name: str) -> None:
        """PyTorch ends something."""
        closed = _closed(self.open_facts, ts, name)
        if self._helps:
            helped = [span for span in closed if self._process.helped(span)]
            self._within = [span for span in self._within if span not in helped]
        self._computed += sum(span.name in COMPUTE for span in closed)
        if not self.open_facts and self._within:
            self._hand_on(self._within)
            self._within = []

    def _end_outermost(self) -> None:
        """End a fact that an exception has left, where the first one within it began."""
        outermost = self._within[0]
        outermost.end = self._within[1].start
        if self.open_facts and self.open_facts[0] is outermost:
            del self.open_facts[0]
        still = self.open_facts[0] if self.open_facts else None
        at = next((n for n, span in enumerate(self._within) if span is still), len(self._within))
        self._hand_on(self._within[: max(1, at)])
        self._within = self._within[max(1, at) :]

    def measure(self, ts: int, at: int, took: int, name: str) -> None:
        """Add what the GPU took to the spans of this name that went on at a time before."""
        if at > ts or not 0 <= took < _MAX_GPU_NS:
            return
        for automatic in (False, True):
            for span in reversed(self._begun.get((automatic, name), ())):
                if span.start <= at:
                    if span.end is None or at <= span.end:
                        span.gpu_ns = (span.gpu_ns or 0) + took
                    break

    def _remember(self, automatic: bool, span: Span) -> None:
        known = self._begun.get((automatic, span.name))
        if known is None:
            if len(self._begun) >= _MOST_NAMES:
                self._begun.clear()
            known = self._begun[automatic, span.name] = deque(maxlen=2 * _MOST_UNMEASURED)
        known.append(span)

    def _hand_on(self, what: Span | list[Span]) -> None:
        if not self._process.measured:
            self._give(what)
            return
        self._held.append((self._computed, what))
        while self._held and self._held[0][0] < self._computed - _MOST_UNMEASURED:
            self._give(self._held.popleft()[1])

    def _give(self, what: Span | list[Span]) -> None:
        if isinstance(what, Span):
            self._takes.phase(what)
        else:
            self._takes.facts(self._tid, what)

    def finish(self) -> None:
        """Hand on everything."""
        for _, what in self._held:
            self._give(what)
        self._held.clear()
        for span in self._open:
            self._give(span)
        if self._within:
            self._give(self._within)


def _closed(stack: list[Span], ts: int, name: str) -> list[Span]:
    """End the innermost span of a name, and what was left open inside it by an exception.

    Nothing where none is open: it began before the marks were kept.
    """
    for at in range(len(stack) - 1, -1, -1):
        if stack[at].name == name:
            closed = stack[at:]
            del stack[at:]
            for span in closed:
                span.end = ts
            return closed
    return []
