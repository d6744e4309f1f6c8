"""Steps, epochs and evaluation, inferred from the facts that PyTorch marked.

A thread that trains repeats a cycle: fetch, forward, backward, optimizer. A cycle begins with a
fetch after a computation or, without a DataLoader, with the forward after an optimizer. If there
are no forwards either, it begins with the backward after an optimizer, or with the optimizer. A
cycle with a backward or an optimizer is a training step. So is one with a forward with gradients in
a pass that has training steps: its batch was skipped, or the job was killed in it. The other cycles
are an evaluation if the process also trains, else inference. `Cycle.end_among` tells where a cycle
ends.

Inferred are: `train`, `epoch`, `step`, `eval` and `inference`; that successive forward calls are
one forward; and that successive saves, with nothing in between and less than a second apart, are
one checkpoint. Everything else is a fact.

A phase is passed on as soon as its cycle has ended. Its epoch may be known only after a whole pass
over the data. So the phase names its cycle, and `Epochs` finds the epoch at the end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from tracer.store.cycles import MOST_PARTS, Cycle, Epoch, Pause, latest
from tracer.store.numbers import Batches, Epochs
from tracer.store.span import Span
from tracer.store.spans import COMPUTE, LEARNS

AUTOMATIC = "automatic"
INFERRED = "inferred"
NAMES = (
    *("train", "epoch", "step", "eval", "inference", "fetch", *COMPUTE),
    *("data_load", "model_load", "checkpoint"),
)
"""All phases that this module can yield."""

_SAVED_TOGETHER_NS = 10**9
"""The longest pause between two files of one checkpoint."""
_MOST_PASSES = 1000
"""Most passes over the data that may alternate."""

Emit = Callable[[Span], None]


class Loop:
    """One thread's facts, in order of time, cut into cycles."""

    def __init__(
        self, trains: bool, source: str, epochs: Epochs, batches: Batches | None, emit: Emit
    ) -> None:
        """`trains` is true if the process learns; `source` is the origin of the facts.

        `batches` is None if there are no workers.
        """
        self._process_trains = trains
        self._source = source
        self._epochs = epochs
        self._batches = batches
        self._emit = emit
        self._number = epochs.new_loop()
        self._current = Cycle()
        self._outer_end = -1
        self._load: Span | None = None
        """The latest loading of data."""
        self._loads: list[Span] = []
        """Loadings of data that are not passed on yet: they belong to the cycle that follows."""
        self._trained = 0
        """Number of training steps."""
        self._first: Span | None = None
        """The first part of the first training step."""
        self._last_start = -1
        self._last_end: int | None = None
        """Begin and end of the last training step."""
        self._passes: dict[int, int] = {}
        """The first cycle of each pass over the data."""
        self._early: dict[int, Epoch] = {}
        """The latest fetch of a pass before other data was opened: an epoch may begin with it."""
        self._firsts: array[int] = array("q")
        """The first cycles of the epochs so far."""
        self._open: deque[Epoch] = deque()
        """Epochs that may still turn out to be the same epoch."""
        self._run: tuple[Span, int | None] | None = None
        """The current evaluation: first part and end of the cycles since the last step."""
        self._pause: Pause | None = None
        """The latest step, if its end is unknown."""
        self._inferred = 0
        self._saved: Span | None = None
        """The checkpoint that the next file may belong to."""
        self._held: Span | None = None
        """The same checkpoint, if it lies in no cycle and is not passed on yet."""

    def add(self, spans: list[Span]) -> None:
        """Takes facts in order of their start."""
        ends = [span.start for span in spans if span.name == "exhausted"]
        for span in spans:
            name = span.name
            if name in ("exhausted", "worker"):
                continue
            if name == "checkpoint" and self._saved_together(span):
                continue
            self._hand_on_held()
            works = name == "fetch" or name in COMPUTE
            if self._current.full:
                self._close()
                self._outer_end = -1
            if works:
                if span.start < self._outer_end:
                    self._current.inside.append(span)
                    continue
                self._outer_end = latest(span)
            current = self._current
            if name == "fetch":
                at = bisect_left(ends, span.start)
                exhausted = at < len(ends) and ends[at] <= latest(span)
                if current.has(*COMPUTE) or (exhausted and current.iteration == span.epoch):
                    self._close(span)
                elif exhausted:
                    self._turn_to_other_data(span)
                self._goes_on(span.epoch, exhausted)
                if exhausted:
                    continue
            elif works and current.ends_before(span, self._run is not None):
                self._close(span)
            if works:
                self._current.add(span)
            elif name == "data_load":
                self._turn_to_other_data(span)
                if not self._current.parts:
                    self._load = span
                self._loads.append(span)
                if len(self._loads) >= MOST_PARTS:
                    self._hand_on_loads(self._trained)
            else:
                self._other(span)

    def _turn_to_other_data(self, to: Span) -> None:
        """Takes the opening, or the end, of other data than the current cycle uses.

        Within a pass, the next step may use both. Before one, the fetches may also be looks at a
        batch. If the pass goes on later, `_pass` finds them.
        """
        current = self._current
        known = current.iteration in self._passes or current.iteration in self._early
        if known and not current.has(*COMPUTE):
            current.early = len(current.parts)
        else:
            self._close(to)

    def _goes_on(self, iteration: int | None, exhausted: bool) -> None:
        """Takes a fetch: the latest step lasts until its thread turned away from this pass.

        A pass that is exhausted right after a step was used by it, from an earlier fetch on.
        """
        if self._pause is not None and iteration in self._pause.passes:
            self._end_pause(True)
        early = None if iteration is None else self._early.get(iteration)
        if early is None or iteration is None or not exhausted or self._run is not None:
            return
        if self._firsts and self._firsts[-1] <= early.first < self._trained:
            self._pass(iteration, early.fetch)

    def _other(self, span: Span) -> None:
        """Takes a loading or saving."""
        self._saved = span if span.name == "checkpoint" else None
        if self._current.parts:
            self._current.others.append(span)
        elif self._saved is not None:
            self._held = span
        else:
            self._rest([span])

    def _saved_together(self, span: Span) -> bool:
        """Joins a saved file with the checkpoint before it. Returns False if it is separate."""
        saved = self._saved
        if saved is None or saved.end is None or span.start - saved.end > _SAVED_TOGETHER_NS:
            return False
        saved.end = None if span.end is None else max(saved.end, span.end)
        saved.source = INFERRED
        return True

    def _hand_on_held(self) -> None:
        held, self._held, self._saved = self._held, None, None
        if held is not None:
            self._rest([held])

    def _hand_on_loads(self, cycle: int) -> None:
        loads, self._loads = self._loads, []
        for load in loads:
            load.source = self._source
            self._hand_on(load, cycle, None)

    def _close(self, by: Span | None = None) -> None:
        """Ends the current cycle, with a fact that is no part of it."""
        cycle = self._current
        if not cycle.parts:
            return
        cycle.by = by
        self._current = Cycle()
        own = by is not None and by.name == "fetch" and by.epoch == cycle.iteration
        whole = cycle.has(*LEARNS) or (own and self._skips(cycle))
        for one in [cycle] if whole else cycle.split():
            if one.has(*LEARNS) or self._skips(one):
                self._train(one)
            else:
                self._evaluate(one)
                self._rest(one.others)

    def _skips(self, cycle: Cycle) -> bool:
        """Returns whether a cycle without learning is a training step that ended early.

        It is one if it computes with gradients on a batch of a pass that trains, or goes on after
        an early fetch.
        """
        goes_on = bool(cycle.early) and cycle.iteration in self._early
        return cycle.learns and (goes_on or not cycle.passes.isdisjoint(self._passes))

    def _train(self, cycle: Cycle) -> None:
        """Takes a cycle that is a training step."""
        self._end_run()
        number = self._trained
        ahead = {one for one, epoch in self._early.items() if epoch.first == number}
        iteration = cycle.iteration
        if not cycle.has("fetch"):
            iteration = next((one for one in reversed(self._early) if one in ahead), None)
        if self._pause is not None:
            later = not cycle.has("fetch") and iteration in (None, *self._pause.passes)
            self._end_pause(later)
        self._hand_on_loads(number)
        first = cycle.parts[0]
        if iteration is not None:
            self._pass(iteration, first)
        self._first = self._first or first
        self._trained += 1
        passes = cycle.passes | ahead
        self._last_start, self._last_end = cycle.start, cycle.end_among(passes)
        self._note(cycle, number, number)
        self._pause = Pause(first, passes, self._last_end, cycle.turned, cycle.others)
        if cycle.turned is None or self._last_end == cycle.turned:
            self._end_pause(False)
        self._parts(cycle, number, number)

    def _end_pause(self, goes_on: bool) -> None:
        """Passes on the row of the latest step, if it is held. `goes_on`: its pass does."""
        pause, self._pause = self._pause, None
        if pause is None:
            return
        if goes_on:
            self._last_end = pause.end = pause.until
        number = self._trained - 1
        self._inferred_row("step", pause.first, pause.end, number, number)
        self._rest(pause.others)

    def _pass(self, iteration: int, part: Span) -> None:
        """Separates epochs: each pass over the data is one. Alternating passes are one epoch."""
        early = self._early.pop(iteration, None)
        if early is not None:
            self._hand_on_early(early, early.first, early.first)
        first = self._passes.get(iteration, early.first if early else self._trained)
        while len(self._open) > 1 and self._firsts[-1] > first:
            self._firsts.pop()
            self._open.pop()
        if iteration in self._passes:
            return
        self._passes[iteration] = first
        epoch = early or self._begun(part)
        if not first and (self._first is None or epoch.fetch.start < self._first.start):
            self._first = epoch.fetch
        if self._open and self._firsts[-1] >= first:
            self._open[-1].begin = epoch.begin
        else:
            self._firsts.append(first)
            self._open.append(epoch)
        if len(self._passes) > _MOST_PASSES:
            del self._passes[next(iter(self._passes))]
            oldest = next(iter(self._passes.values()))
            while len(self._open) > 1 and self._open[1].first <= oldest:
                self._epoch_row(self._open[1].before)

    def _begun(self, part: Span) -> Epoch:
        """Returns an epoch that begins with this part of a cycle."""
        begin = part
        if self._load is not None and self._last_start < self._load.start < begin.start:
            begin = self._load
        return Epoch(self._trained, begin, self._last_end, part)

    def _hand_on_early(self, epoch: Epoch, cycle: int, step: int | None) -> None:
        """Passes on an early fetch, with the number of a cycle and of the step that used it."""
        fetch = epoch.fetch
        fetch.source = self._source
        self._note(Cycle([fetch]), cycle, step)
        self._hand_on(fetch, cycle, step)

    def _epoch_row(self, end: int | None) -> None:
        """Passes on the row of the first epoch that has none yet."""
        epoch = self._open.popleft()
        self._inferred_row("epoch", epoch.begin, end, epoch.first, None)

    def _evaluate(self, cycle: Cycle) -> None:
        """Takes a cycle without learning: it belongs to the epoch of the last step.

        If it only fetches and the thread turns to other data, a step may use the batch later, and
        the next epoch may have begun.
        """
        early = cycle.turned is not None and not cycle.has(*COMPUTE)
        first = cycle.parts[0]
        if self._run is not None and (
            first.within != self._run[0].within or (early and first.epoch not in self._passes)
        ):
            self._end_run()
        number = self._trained - 1
        self._hand_on_loads(number)
        step = None
        if not self._process_trains and cycle.has("forward"):
            step = self._inferred
            self._inferred += 1
        self._note(cycle, number, step)
        if cycle.has("forward"):
            self._run = (self._run[0] if self._run else first, cycle.end)
        if step is not None:
            self._inferred_row("step", first, cycle.end, number, step)
            self._parts(cycle, number, step)
        else:
            for part in cycle.parts:
                if early and part.epoch is not None and part.epoch not in self._early:
                    self._early[part.epoch] = self._begun(part)
                elif part.name == "fetch":
                    part.source = self._source
                    self._hand_on(part, number, None)
            while len(self._early) > _MOST_PASSES:
                self._give_up_early()

    def _give_up_early(self) -> None:
        """Passes on the oldest early fetch: its pass did not go on."""
        epoch = self._early.pop(next(iter(self._early)))
        self._hand_on_early(epoch, epoch.first - 1, None)

    def _end_run(self) -> None:
        """Passes on the row of the evaluation that has ended."""
        run, self._run = self._run, None
        if run is not None:
            name = "eval" if self._process_trains else "inference"
            self._inferred_row(name, *run, self._trained - 1, None)

    def _note(self, cycle: Cycle, number: int, step: int | None) -> None:
        """Notes the batches that a cycle has used."""
        if self._batches is None:
            return
        at = -1 if step is None else step
        uses = (self._number, number, at, cycle.around)
        for part in cycle.parts:
            if part.name == "fetch" and part.epoch is not None and part.step is not None:
                self._batches.note(part.pid, part.epoch, part.step, *uses)

    def _parts(self, cycle: Cycle, number: int, step: int) -> None:
        """Passes on the parts of a step."""
        for part in cycle.joined():
            if part.source != INFERRED:
                part.source = self._source
            self._hand_on(part, number, step)

    def _rest(self, spans: list[Span]) -> None:
        """Passes on loadings and savings, with the step around them or else the last epoch."""
        for span in spans:
            within = self._last_end is None or span.start < self._last_end
            step = self._trained - 1 if self._trained and within else None
            if span.source != INFERRED:
                span.source = self._source
            self._hand_on(span, self._trained - 1, step)

    def _inferred_row(
        self, name: str, begin: Span, end: int | None, cycle: int, step: int | None
    ) -> None:
        row = Span(begin.start, begin.pid, begin.tid, name, end=end, source=INFERRED)
        row.around = begin.around
        self._hand_on(row, cycle, step)

    def _hand_on(self, span: Span, cycle: int, step: int | None) -> None:
        span.epoch, span.step = None, step
        span.loop, span.cycle = self._number, cycle
        self._emit(span)

    def finish(self) -> None:
        """Passes on everything that had not ended."""
        self._hand_on_held()
        self._close()
        self._hand_on_loads(self._trained)
        self._end_run()
        self._end_pause(False)
        while self._early:
            self._give_up_early()
        while self._open:
            self._epoch_row(self._open[1].before if len(self._open) > 1 else self._last_end)
        if self._first is not None:
            self._inferred_row("train", self._first, self._last_end, -1, None)
        self._epochs.end(self._number, self._firsts, self._trained)
