"""Steps, epochs and evaluation, inferred from what PyTorch was seen to do.

A thread that trains repeats a cycle: fetch, forward, backward, optimizer. A cycle begins with a
fetch after some computing or, where there is no DataLoader, with the forward after an optimizer;
it lasts until the next fetch of the same pass over the data, so that cycles tile the loop. One
with a backward or an optimizer in it is a step of training. The others are an evaluation, in a
process that also trains, or inference.

What is inferred: `train`, `epoch`, `step`, `eval`, `inference`, and that forward calls which
follow each other are one forward. All else is fact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from tracer.store.marks import Span

AUTOMATIC = "automatic"
INFERRED = "inferred"

_COMPUTE = ("forward", "backward", "optimizer")
_LEARNS = ("backward", "optimizer")
_FOREVER = 1 << 62

_Numbers = dict[tuple[int, int, int], tuple[int | None, int | None]]
"""(process, iteration, batch) to (epoch, step)."""


@dataclass(slots=True)
class _Cycle:
    parts: list[Span] = field(default_factory=list)
    """Outermost fetches, forwards, backwards and optimizers."""
    inside: list[Span] = field(default_factory=list)
    """What happened within those, as in the closure of an optimizer."""
    until: int | None = None
    """Where the next cycle of the same loop begins, or the loop's end is found."""
    epoch: int | None = None
    step: int | None = None
    names: set[str] = field(default_factory=set)
    """Of its parts."""

    def add(self, part: Span) -> None:
        self.parts.append(part)
        self.names.add(part.name)

    def has(self, *names: str) -> bool:
        return not self.names.isdisjoint(names)

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def end(self) -> int | None:
        return self.until if self.until is not None else self.parts[-1].end

    @property
    def iteration(self) -> int | None:
        """The pass over the data that it belongs to."""
        return next((p.epoch for p in self.parts if p.name == "fetch"), None)

    @property
    def trains(self) -> bool:
        return self.has(*_LEARNS)


def phases_of(facts: list[Span], source: str = AUTOMATIC) -> list[Span]:
    """Phases with their epochs and steps, from the automatic marks of any number of processes.

    `source` is where the facts are from. Numbers count from 0: epochs of a thread that trains,
    and its steps, over all epochs.
    """
    found: list[Span] = []
    numbers: _Numbers = {}
    workers: list[Span] = []
    for _, spans in groupby(sorted(facts, key=lambda s: (s.pid, s.start)), lambda s: s.pid):
        of_process = list(spans)
        if any(span.name == "worker" for span in of_process):
            workers += of_process
        else:
            found += _process(of_process, numbers, source)
    parent = {span.pid: span.step for span in workers if span.name == "worker"}
    for span in workers:
        if span.name == "fetch":
            key = (
                parent.get(span.pid) or 0,
                span.epoch or 0,
                -1 if span.step is None else span.step,
            )
            epoch, step = numbers.get(key, (None, None))
            found.append(span.but(epoch=epoch, step=step, source=source))
    return found


def _process(spans: list[Span], numbers: _Numbers, source: str) -> list[Span]:
    threads: dict[int, list[Span]] = {}
    for span in spans:
        threads.setdefault(span.tid, []).append(span)
    leading = [
        tid for tid, own in threads.items() if any(span.name in ("fetch", *_LEARNS) for span in own)
    ]
    if leading and len(leading) < len(threads):
        # Helpers of PyTorch's: a replica's forward, or one computed anew by a backward.
        busy = _Busy(s for tid in leading for s in threads[tid] if s.name in _COMPUTE)
        for tid in threads.keys() - set(leading):
            threads[tid] = [span for span in threads[tid] if not busy.around(span)]
    trains = any(span.name in _LEARNS for span in spans)
    found: list[Span] = []
    for own in threads.values():
        found += _Thread(own, trains, source).phases(numbers)
    return found


class _Busy:
    """When any of some threads was computing."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted(spans, key=lambda span: span.start)
        self._starts = [span.start for span in ordered]
        self._latest = list(accumulate(map(_end, ordered), max))
        """The latest end of those up to each."""

    def around(self, span: Span) -> bool:
        """Whether one of them begins before this and ends after it."""
        before = bisect_right(self._starts, span.start)
        return before > 0 and self._latest[before - 1] >= _end(span)


def _end(span: Span) -> int:
    return _FOREVER if span.end is None else span.end


class _Thread:
    """One thread's facts, in order of time, cut into cycles."""

    def __init__(self, spans: list[Span], process_trains: bool, source: str) -> None:
        self.process_trains = process_trains
        self.source = source
        self.cycles: list[_Cycle] = []
        self.others: list[Span] = []
        """Loading and saving."""
        self.loads: list[Span] = []
        self._cut(spans)

    def _cut(self, spans: list[Span]) -> None:
        current = _Cycle()
        outer_end = -1

        def close(until: int | None = None) -> None:
            nonlocal current
            if current.parts:
                current.until = until
                self.cycles.append(current)
                current = _Cycle()

        ends = [s.start for s in spans if s.name == "exhausted"]
        at = 0
        for span in spans:
            if span.name in ("exhausted", "worker"):
                continue
            nested = span.start < outer_end
            if span.name in ("fetch", *_COMPUTE):
                if nested:
                    current.inside.append(span)
                    continue
                outer_end = _end(span)
            if span.name == "fetch":
                while at < len(ends) and ends[at] < span.start:
                    at += 1
                if at < len(ends) and ends[at] <= _end(span):
                    close(span.start)
                    continue
                if current.has(*_COMPUTE):
                    close(span.start if current.iteration in (None, span.epoch) else None)
            elif span.name == "forward":
                # Without a DataLoader, a forward after an optimizer begins a cycle.
                alone = not current.has("fetch") and not current.has("backward")
                if not current.has("fetch") and current.has("optimizer"):
                    close()
                elif alone and not span.step and current.has("forward"):
                    close()  # inference, call by call
            if span.name in ("fetch", *_COMPUTE):
                current.add(span)
            else:
                if span.name == "data_load":
                    close()
                    self.loads.append(span)
                self.others.append(span)
        close()

    def phases(self, numbers: _Numbers) -> list[Span]:
        """Rows of this thread; notes the epoch and step of each batch that it fetched."""
        training = [cycle for cycle in self.cycles if cycle.trains]
        found = self._epochs(training)
        for step, cycle in enumerate(training):
            cycle.step = step
            found.append(self._span("step", cycle.start, cycle.end, cycle))
            found += self._parts(cycle)
        if training:
            found.append(self._span("train", training[0].start, training[-1].end))
        found += self._evaluations()
        for cycle in self.cycles:
            for part in cycle.parts:
                if part.name == "fetch" and part.epoch is not None and part.step is not None:
                    numbers[part.pid, part.epoch, part.step] = (cycle.epoch, cycle.step)
        return found + self._rest(training)

    def _span(self, name: str, start: int, end: int | None, cycle: _Cycle | None = None) -> Span:
        first = self.cycles[0].parts[0]
        epoch, step = (cycle.epoch, cycle.step) if cycle else (None, None)
        return Span(start, first.pid, first.tid, name, epoch, step, end, INFERRED)

    def _parts(self, cycle: _Cycle) -> list[Span]:
        """What a step consists of; forwards that follow each other are one."""
        found: list[Span] = []
        for name, group in groupby(cycle.parts, lambda part: part.name):
            parts = list(group)
            if name == "forward":
                took = [part.gpu_ns for part in parts if part.gpu_ns is not None]
                parts = [parts[0].but(end=parts[-1].end, gpu_ns=sum(took) if took else None)]
            found += parts
        found += [part for part in cycle.inside if part.name in _COMPUTE]
        return [
            p.but(
                epoch=cycle.epoch,
                step=cycle.step,
                source=INFERRED if p.source == INFERRED else self.source,
            )
            for p in found
        ]

    def _epochs(self, training: list[_Cycle]) -> list[Span]:
        """A pass over the data each; passes that take turns (two loaders) are one epoch."""
        spans: dict[int, list[int]] = {}
        for number, cycle in enumerate(training):
            if cycle.iteration is not None:
                spans.setdefault(cycle.iteration, [number, number])[1] = number
        epochs: list[list[int]] = []
        for first, last in spans.values():
            if epochs and first <= epochs[-1][1]:
                epochs[-1][1] = max(epochs[-1][1], last)
            else:
                epochs.append([first, last])
        found = []
        for epoch, (first, _) in enumerate(epochs):
            # What follows without a fetch was fetched ahead.
            end = epochs[epoch + 1][0] if epoch + 1 < len(epochs) else len(training)
            for cycle in training[first:end]:
                cycle.epoch = epoch
            start = training[first].start
            before = training[first - 1].start if first else -1
            last = bisect_left(self.loads, start, key=lambda s: s.start) - 1
            loaded = last >= 0 and self.loads[last].start > before
            begun = self.loads[last].start if loaded else start
            row = self._span("epoch", begun, training[end - 1].end)
            found.append(row.but(epoch=epoch))
        return found

    def _evaluations(self) -> list[Span]:
        """Runs of cycles in which nothing is learned."""
        name = "eval" if self.process_trains else "inference"
        found: list[Span] = []
        epoch: int | None = None
        step = 0
        for trains, group in groupby(self.cycles, lambda cycle: cycle.trains):
            cycles = list(group)
            if trains:
                epoch = cycles[-1].epoch
                continue
            for cycle in cycles:
                cycle.epoch = epoch
                if not self.process_trains and cycle.has("forward"):
                    cycle.step = step
                    step += 1
                    found.append(self._span("step", cycle.start, cycle.end, cycle))
                    found += self._parts(cycle)
                else:
                    fetches = (part for part in cycle.parts if part.name == "fetch")
                    found += [f.but(epoch=epoch, step=None, source=self.source) for f in fetches]
            computing = [cycle for cycle in cycles if cycle.has("forward")]
            if computing:
                row = self._span(name, computing[0].start, computing[-1].end)
                found.append(row.but(epoch=epoch))
        return found

    def _rest(self, training: list[_Cycle]) -> list[Span]:
        """Loading and saving, in the step around it, or else in the epoch of the last one."""
        found = []
        cycles = iter(training)
        ahead = next(cycles, None)
        cycle: _Cycle | None = None
        for span in self.others:
            while ahead is not None and ahead.start <= span.start:
                cycle, ahead = ahead, next(cycles, None)
            epoch = step = None
            if span.name == "data_load":
                epoch = ahead.epoch if ahead is not None else None
            elif cycle is not None:
                epoch = cycle.epoch
                end = cycle.end
                step = cycle.step if end is None or span.start < end else None
            found.append(span.but(epoch=epoch, step=step, source=self.source))
        return found


def without_marked(found: list[Span], script: Iterable[Span]) -> list[Span]:
    """Phases but those of a kind that the script of the process marks itself."""
    alike = (("train", "epoch", "step"), ("eval", "inference"))
    marked: dict[int, set[str]] = {}
    for span in script:
        names = marked.setdefault(span.pid, set())
        names.update(next((group for group in alike if span.name in group), (span.name,)))
    return [span for span in found if span.name not in marked.get(span.pid, ())]
