"""Converts the marks of one process into spans: the phases of its threads, with begin and end.

Marks come in order of time. Spans are passed on as they end. Only open spans are held, and the
spans inside PyTorch's current outermost span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, END, STOPPED
from tracer.store.span import MOST_OPEN, OpenSpans, Span

COMPUTE = ("forward", "backward", "optimizer")
LEARNS = ("backward", "optimizer")

_MOST_WITHIN = 10_000
"""Most facts within one fact. More: an exception has skipped the mark at its end."""
_MOST_STOPS = 64
"""Most ends of marks that a process is believed to have: it has one for each writer."""
_MOST_THREADS = 4096
"""Most threads of one process. Beyond that, the thread silent for longest counts as ended."""
_MOST_SPANS = 1 << 17
"""Most spans held for one process. Beyond that, such a thread counts as ended, too."""
_MOST_NAMES = 4096
_MAX_GPU_NS = 1 << 50
"""Most GPU time: 13 days. Larger values are not real measurements."""
_MOST_UNMEASURED = 1000
"""Computations by which the GPU may lag behind: `_MAX_PENDING` in `phases.automatic.cuda`."""
_MOST_HELD = 10_000
"""Most phases of a thread that wait for GPU times while the thread computes nothing."""


class Takes(Protocol):
    """The receiver of spans."""

    def phase(self, span: Span) -> None:
        """Takes a phase that the script marked. It has ended or never ends."""
        ...

    def facts(self, tid: int, spans: list[Span]) -> None:
        """Takes facts that PyTorch marked: spans of a thread in order of their start.

        Spans nested in one of them are included.
        """
        ...

    def ended(self, tid: int) -> None:
        """Takes the news that a thread yields no more spans."""
        ...


class Spans:
    """The spans of one process."""

    def __init__(
        self, pid: int, takes: Takes, leading: Collection[int], measured: Collection[bytes]
    ) -> None:
        """`leading` are the threads that train or infer. If there are any, others help them.

        `measured` are names of phases with measured GPU times.
        """
        self.pid = pid
        self.takes = takes
        self.measured = {_text(raw) for raw in measured}
        self.computing: OrderedDict[Span, None] = OrderedDict()
        """Open computations of the leading threads, in order of their start."""
        self._ended = (-1, -1)
        """End of the latest of them, and the first start among those with that end."""
        self.begun = self.cut = 0
        """Numbers of spans begun, and of the script's phases that ended after the one around."""
        self._stops = 0
        self._leading = leading
        self._threads: dict[int, _Thread] = {}
        self._names: dict[bytes, str] = {}

    def add(self, records: np.ndarray[Any, Any]) -> None:
        """Takes marks (`tracer.phases.format`), in order of time."""
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
                thread.end_fact(ts, name, step)
            elif kind == BEGIN:
                thread.begin(ts, name, epoch, step)
            elif kind == END:
                thread.end(ts, name)
            elif kind == STOPPED:
                self._stop(ts, script=bool(epoch), facts=bool(step))
            else:
                thread.measure(ts, epoch, step, name)
        # Move the threads seen now to the end.
        for tid in seen:
            self._threads[tid] = self._threads.pop(tid)
        held = sum(thread.held for thread in self._threads.values())
        beyond = len(self._threads) - _MOST_THREADS
        for tid in [*self._threads]:
            if held <= _MOST_SPANS and beyond <= 0:
                break
            held -= self._threads[tid].held
            beyond -= 1
            self._end(tid)

    def _thread(self, tid: int) -> _Thread:
        thread = self._threads.get(tid)
        if thread is None:
            helps = bool(self._leading) and tid not in self._leading
            thread = self._threads[tid] = _Thread(self, tid, helps)
        return thread

    def _name(self, raw: bytes) -> str:
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        name = self._names[raw] = _text(raw)
        return name

    def helped(self, span: Span) -> bool:
        """Returns whether a span that ends now lies within a computation of a leading thread.

        Such a span is a helper's: a replica's forward, or a forward recomputed by a backward. A
        helper's other spans, such as a file that it saves meanwhile, are its own.
        """
        if span.name not in COMPUTE:
            return False
        first = next(iter(self.computing), None)
        if first is not None and first.start <= span.start:
            return True
        ended, start = self._ended
        return ended == span.end and start <= span.start

    def computed(self, span: Span) -> None:
        """Notes that a computation of a leading thread has ended or was dropped."""
        if span in self.computing and span.end is not None:
            ended, start = self._ended
            self._ended = span.end, min(start, span.start) if ended == span.end else span.start
        self.computing.pop(span, None)

    def _stop(self, ts: int, script: bool, facts: bool) -> None:
        """Ends the open spans of a writer that makes no more marks, in all threads."""
        self._stops += 1
        if self._stops <= _MOST_STOPS:
            for one in sorted(self._threads.values(), key=lambda one: not one.helps):
                one.stop(ts, script=script, facts=facts)

    def finish(self) -> None:
        """Passes on open spans: helpers first, because they may help computations still open."""
        for tid in sorted(self._threads, key=lambda tid: not self._threads[tid].helps):
            self._end(tid)

    def _end(self, tid: int) -> None:
        self._threads.pop(tid).finish()
        self.takes.ended(tid)


class _Thread:
    """The open and the waiting spans of one thread."""

    def __init__(self, process: Spans, tid: int, helps: bool) -> None:
        self.helps = helps
        self._process = process
        self._takes = process.takes
        self._pid, self._tid = process.pid, tid
        self._open = OpenSpans()
        """Phases of the script."""
        self._cut: set[str] = set()
        """Names of phases that ended with the phase around them and have not begun again."""
        self._facts = OpenSpans()
        self._within: list[Span] = []
        """Facts since the time when none was open."""
        self._helped: set[Span] = set()
        """Members of `_within` that are parts of another thread's computation."""
        self._computed = 0
        self._waiting: deque[tuple[int, Span | list[Span]]] = deque()
        """Spans that wait for GPU times, each with `_computed` at its end."""
        self._begun: dict[tuple[bool, str], deque[Span]] = {}
        """The latest spans with measured GPU times, by kind (automatic or not) and name."""

    @property
    def held(self) -> int:
        """Number of spans held; an upper bound."""
        begun = sum(map(len, self._begun.values()))
        return len(self._open) + len(self._within) + len(self._waiting) + begun

    def begin(self, ts: int, name: str, epoch: int, step: int) -> None:
        """Begins a phase of the script. It inherits missing numbers from the phase around it."""
        around = self._open.inner
        span = self._span(ts, name, False)
        span.epoch = epoch if epoch != ABSENT else around.epoch if around else None
        span.step = step if step != ABSENT else around.step if around else None
        span.within = span.number if name == "epoch" else around.within if around else 0
        self._cut.discard(name)
        given_up = self._open.push(span)
        if given_up is not None:
            self._hand_on(given_up)

    def end(self, ts: int, name: str) -> None:
        """Ends the innermost phase of this name and the phases left open inside it."""
        closed = self._open.close(ts, name)
        for span in closed:
            self._hand_on(span)
        if not closed and name in self._cut:
            self._cut.remove(name)
            self._process.cut += 1
        if len(self._cut) < MOST_OPEN:
            self._cut.update(span.name for span in closed[1:])

    def fact(self, ts: int, name: str, epoch: int, step: int) -> None:
        """Begins a fact that PyTorch marked."""
        span = self._span(ts, name, True)
        span.epoch = epoch if epoch != ABSENT else None
        span.step = step if step != ABSENT else None
        around = self._open.inner
        if around is not None:
            span.within = around.within
            if around.epoch is not None or around.step is not None:
                span.around = (around.epoch, around.step)
        given_up = self._facts.push(span)
        if given_up is not None:
            self._process.computed(given_up)
        if not self.helps and name in COMPUTE:
            self._process.computing[span] = None
        self._within.append(span)
        if len(self._within) > _MOST_WITHIN:
            self._end_outermost()

    def _span(self, ts: int, name: str, automatic: bool) -> Span:
        self._process.begun += 1
        span = Span(ts, self._pid, self._tid, name, number=self._process.begun)
        if name in self._process.measured:
            latest = self._begun.get((automatic, name))
            if latest is None:
                latest = self._begun[automatic, name] = deque(maxlen=2 * _MOST_UNMEASURED)
            latest.append(span)
        return span

    def end_fact(self, ts: int, name: str, step: int) -> None:
        """Ends a fact that PyTorch marked. `step` may be known only now."""
        closed = self._facts.close(ts, name)
        if closed and step != ABSENT:
            closed[0].step = step
        for span in closed:
            if self.helps and self._process.helped(span):
                self._helped.add(span)
            self._process.computed(span)
            self._computed += span.name in COMPUTE
        if not self._facts:
            self._hand_on_facts(self._within)
            self._within = []

    def stop(self, ts: int, script: bool, facts: bool) -> None:
        """Ends what is open: no more marks of the script, or facts, follow."""
        while script and (phase := self._open.inner) is not None:
            self.end(ts, phase.name)
        while facts and (fact := self._facts.inner) is not None:
            self.end_fact(ts, fact.name, ABSENT)

    def _end_outermost(self) -> None:
        """Ends a fact that an exception left open, at the start of the first fact within it."""
        outermost = self._within[0]
        outermost.end = self._within[1].start
        if self._facts.outer is outermost:
            self._process.computed(self._facts.give_up())
        still = self._facts.outer
        at = next((n for n, span in enumerate(self._within) if span is still), len(self._within))
        self._hand_on_facts(self._within[: max(1, at)])
        self._within = self._within[max(1, at) :]

    def measure(self, ts: int, at: int, took: int, name: str) -> None:
        """Adds a GPU time to the spans of this name that were open at time `at` (ns)."""
        if at > ts or not 0 <= took < _MAX_GPU_NS:
            return
        for automatic in (False, True):
            latest = self._begun.get((automatic, name), ())
            before = bisect_right(latest, at, key=lambda span: span.start)
            if before:
                span = latest[before - 1]
                if span.end is None or at <= span.end:
                    span.gpu_ns = (span.gpu_ns or 0) + took

    def _hand_on_facts(self, spans: list[Span]) -> None:
        kept = [span for span in spans if span not in self._helped]
        self._helped.difference_update(spans)
        if kept:
            self._hand_on(kept)

    def _hand_on(self, what: Span | list[Span]) -> None:
        if not self._process.measured:
            self._give(what)
            return
        waiting = self._waiting
        waiting.append((self._computed, what))
        while waiting[0][0] < self._computed - _MOST_UNMEASURED or len(waiting) > _MOST_HELD:
            self._give(waiting.popleft()[1])

    def _give(self, what: Span | list[Span]) -> None:
        if isinstance(what, Span):
            self._takes.phase(what)
        else:
            self._takes.facts(self._tid, what)

    def finish(self) -> None:
        """Passes on everything."""
        for span in self._facts:
            if self.helps and self._process.helped(span):
                self._helped.add(span)
            self._process.computed(span)
        self._hand_on_facts(self._within)
        for span in self._open:
            self._hand_on(span)
        for _, what in self._waiting:
            self._give(what)


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "backslashreplace")
