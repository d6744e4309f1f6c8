"""The cycles that a thread's facts are cut into: the turns of a training's loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import groupby

from tracer.store.numbers import Numbers
from tracer.store.span import Span
from tracer.store.spans import COMPUTE

MOST_PARTS = 10_000
"""Most parts of one cycle. A loop without a natural cut is cut there."""
_FOREVER = 1 << 62


def latest(span: Span) -> int:
    """Returns the end of a span; a time beyond all others if it has none."""
    return _FOREVER if span.end is None else span.end


@dataclass(slots=True)
class Cycle:
    """The facts of one turn."""

    parts: list[Span] = field(default_factory=list)
    """Outermost fetches, forwards, backwards and optimizers."""
    inside: list[Span] = field(default_factory=list)
    """Facts within the parts, as in the closure of an optimizer."""
    others: list[Span] = field(default_factory=list)
    """Loading and saving."""
    by: Span | None = None
    """The fact that ended it. None: it was too long, or its thread ended."""
    names: set[str] = field(default_factory=set)
    """Names of its parts."""
    early: int = 0
    """Number of its first parts that are fetches before other data was opened or ended."""

    def add(self, part: Span) -> None:
        self.parts.append(part)
        self.names.add(part.name)

    def has(self, *names: str) -> bool:
        return not self.names.isdisjoint(names)

    def ends_before(self, part: Span, evaluates: bool) -> bool:
        """Returns whether the cycle is over when a computation begins: only without a DataLoader.

        `evaluates`: the cycle before was an evaluation.
        """
        if self.has("fetch"):
            return False
        if self.has("forward") and not self.has("backward", "optimizer") and not self.learns:
            # Each call without gradients is an inference of its own, but may also be a teacher's.
            return evaluates or (part.name == "forward" and not part.step)
        if not self.has("optimizer"):
            return False
        if part.name == "forward":
            return True
        # Neither a DataLoader nor a model outside of closures is used.
        if self.has("forward"):
            return False
        return part.name == "backward" or (bool(self.inside) and not self.has("backward"))

    def split(self) -> list[Cycle]:
        """Returns the cycle as two if it only began with fetches for the next one."""
        if not 0 < self.early < len(self.parts):
            return [self]
        first = Cycle(by=self.parts[self.early])
        second = Cycle(inside=self.inside, others=self.others, by=self.by)
        for n, part in enumerate(self.parts):
            (first if n < self.early else second).add(part)
        return [first, second]

    def joined(self) -> list[Span]:
        """Returns its parts and the computations inside them. Successive forwards are one.

        Without a DataLoader, those without gradients are apart: they may be an evaluation that
        was long over when the step began.
        """
        alone, found = not self.has("fetch"), list[Span]()
        for (name, _), group in groupby(
            self.parts, lambda part: (part.name, alone and part.name == "forward" and part.step)
        ):
            parts = list(group)
            if name == "forward":
                took = [part.gpu_ns for part in parts if part.gpu_ns is not None]
                parts[0].end = parts[-1].end
                parts[0].gpu_ns = sum(took) if took else None
                parts = parts[:1]
            found += parts
        return found + [part for part in self.inside if part.name in COMPUTE]

    @property
    def full(self) -> bool:
        return len(self.parts) + len(self.inside) + len(self.others) >= MOST_PARTS

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def until(self) -> int | None:
        """The begin of the fact that ended it, unless the script's epoch ended before that."""
        if self.by is None or self.by.within != self.parts[0].within:
            return None
        return self.by.start

    @property
    def turned(self) -> int | None:
        """The time at which its thread turned to other data, or None."""
        by = self.by
        if by is None or by.name not in ("fetch", "data_load"):
            return None
        return None if by.name == "fetch" and by.epoch in self.passes else self.until

    @property
    def end(self) -> int | None:
        """End of its last part, or begin of the next fetch of the same pass."""
        return self.end_among(self.passes) if self.has("fetch") else self.parts[-1].end

    def end_among(self, passes: Collection[int | None]) -> int | None:
        """Returns the end of a step that uses these passes over the data, perhaps none.

        It ends where the next step begins, or an evaluation.
        """
        by = self.by
        goes_on = by is not None and (
            not passes or by.name in COMPUTE or (by.name == "fetch" and by.epoch in passes)
        )
        return self.until if goes_on and self.until is not None else self.parts[-1].end

    @property
    def learns(self) -> bool:
        """Returns whether it has a forward with gradients."""
        return any(part.name == "forward" and part.step for part in self.parts)

    @property
    def passes(self) -> set[int | None]:
        """The passes over the data that it fetches from."""
        return {part.epoch for part in self.parts if part.name == "fetch"}

    @property
    def iteration(self) -> int | None:
        """The pass over the data that the cycle belongs to."""
        return next((p.epoch for p in self.parts if p.name == "fetch"), None)

    @property
    def around(self) -> Numbers | None:
        """Epoch and step of the script's phase around it, if it has any; one with a step first."""
        found = [part.around for part in self.parts if part.around is not None]
        return next((one for one in found if one[1] is not None), found[0] if found else None)


@dataclass(slots=True)
class Epoch:
    """A pass over the data that has begun."""

    first: int
    """Number of its first cycle."""
    begin: Span
    """The beginning: the loading of the data or its first cycle's first part."""
    before: int | None
    """End of the cycle before it."""
    fetch: Span
    """The first fetch."""


@dataclass(slots=True)
class Pause:
    """A training step after which its thread turned to other data. The pass may go on."""

    first: Span
    """The step's first part."""
    passes: set[int | None]
    """The passes over the data that the step may use."""
    end: int | None
    """End of its last part."""
    until: int | None
    """The time at which the thread turned to other data: the step's end if a pass goes on."""
    others: list[Span]
    """Loading and saving since its begin."""
