"""The phases of DataLoaders' workers: they have the numbers of the steps that use their batches."""

from __future__ import annotations

from tracer.store.numbers import Batches
from tracer.store.span import Span
from tracer.store.training import AUTOMATIC, Emit


class Worker:
    """The fetches of a DataLoader's worker, with the numbers of the steps that use them."""

    def __init__(self, serves: int, batches: Batches, emit: Emit) -> None:
        """`serves` is the process that the worker works for."""
        self._serves = serves
        self._batches = batches
        self._emit = emit

    def add(self, spans: list[Span]) -> None:
        """Takes facts of the worker, in order of their start."""
        for span in spans:
            if span.name == "fetch":
                batch = -1 if span.step is None else span.step
                use = self._batches.find(self._serves, span.epoch or 0, batch)
                span.epoch = span.step = None
                if use is not None:
                    span.loop, span.cycle, step, span.around = use
                    span.step = step if step >= 0 else None
                span.source = AUTOMATIC
                self._emit(span)
