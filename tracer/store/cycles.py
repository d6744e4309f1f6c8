"""The cycles that a thread's facts are cut into: the turns of a training's loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracer.store.numbers import Numbers
from tracer.store.span import Span

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
    until: int | None = None
    """Start of the next cycle of the same loop, or the time at which the loop's end is found."""
    names: set[str] = field(default_factory=set)
    """Names of its parts."""
    early: int = 0
    """Number of its first parts that are fetches before other data was opened or ended."""

    def add(self, part: Span) -> None:
        self.parts.append(part)
        self.names.add(part.name)

    def has(self, *names: str) -> bool:
        return not self.names.isdisjoint(names)

    def ends_before_forward(self, learns: bool, evaluates: bool) -> bool:
        """Returns whether the cycle is over when a forward begins: only without a DataLoader.

        `learns`: the forward has gradients. `evaluates`: the cycle before was an evaluation.
        """
        if self.has("fetch"):
            return False
        if self.has("optimizer"):
            return True
        if self.has("backward") or not self.has("forward"):
            return False
        # Each call without gradients is an inference of its own, but may also be a teacher's.
        return not learns or (evaluates and not self.parts[-1].step)

    def ends_before(self, name: str) -> bool:
        """Returns whether the cycle is over when the learning of this name begins.

        It is, after an optimizer, if neither a DataLoader nor a model outside of closures is used.
        """
        if not self.has("optimizer") or self.has("fetch", "forward"):
            return False
        return name == "backward" or (bool(self.inside) and not self.has("backward"))

    def split(self) -> list[Cycle]:
        """Returns the cycle as two if it only began with fetches for the next one."""
        if not 0 < self.early < len(self.parts):
            return [self]
        first, second = Cycle(), Cycle(inside=self.inside, others=self.others, until=self.until)
        for n, part in enumerate(self.parts):
            (first if n < self.early else second).add(part)
        return [first, second]

    @property
    def full(self) -> bool:
        return len(self.parts) + len(self.inside) + len(self.others) >= MOST_PARTS

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def end(self) -> int | None:
        return self.until if self.until is not None else self.parts[-1].end

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
    iteration: int | None
    """The step's pass over the data."""
    end: int | None
    """End of its last part."""
    until: int | None
    """The time at which the thread turned to other data: the step's end if the pass goes on."""
    others: list[Span]
    """Loading and saving since its begin."""

    def goes_on(self, iteration: int | None) -> bool:
        """Returns whether the next step continues the pass; its batch may be an earlier one."""
        return self.iteration is not None and iteration in (None, self.iteration)
