"""Targets: each a function that reads bytes, and a way to make inputs for it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.mutation import mutated

Run = Callable[[bytes, Path], object]
Seeds = Callable[[], Sequence[bytes]]
Mutate = Callable[[Random, bytes], bytes]


@dataclass
class Target:
    """Something that reads what anybody may have made."""

    name: str
    doc: str
    run: Run
    """Called with an input and an empty folder; succeeds, or raises a TracerError."""
    make_seeds: Seeds
    mutate: Mutate
    tries: int = 150
    """The number of inputs that the tests run: they take half a second together."""
    _seeds: list[bytes] = field(default_factory=list)

    @property
    def seeds(self) -> list[bytes]:
        """Inputs that can be read."""
        self._seeds = self._seeds or list(self.make_seeds())
        return self._seeds

    def input(self, seed: int, number: int) -> bytes:
        """Input `number` of the run with this seed: the same at every run."""
        chance = Random(f"{self.name} {seed} {number}")
        return self.mutate(chance, chance.choice(self.seeds))


_KNOWN: dict[str, Target] = {}


def target(seeds: Seeds, mutate: Mutate = mutated, tries: int = 150) -> Callable[[Run], Run]:
    """Makes a target of a function. Its name becomes the target's, with dashes; its docstring names
    the input.

    `seeds` gives inputs that can be read, `mutate` changes one of them by chance (`mutation.py`).
    `tries` is how many the tests run.
    """

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        _KNOWN[name] = Target(name, (run.__doc__ or "").strip(), run, seeds, mutate, tries)
        return run

    return register


def every_target() -> dict[str, Target]:
    """All targets by name: those of every module in tests/fuzz/targets."""
    import tests.fuzz.targets

    for module in pkgutil.iter_modules(tests.fuzz.targets.__path__, "tests.fuzz.targets."):
        importlib.import_module(module.name)
    return dict(sorted(_KNOWN.items()))
