"""Targets: functions that read bytes, each with a way to make inputs for it."""

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
    """A reader of foreign data."""

    name: str
    doc: str
    run: Run
    """The reader: called with an input and an empty folder, it succeeds or raises a TracerError."""
    make_seeds: Seeds
    mutate: Mutate
    tries: int = 150
    """Number of inputs that the tests run, chosen so that they take half a second in total."""
    _seeds: list[bytes] = field(default_factory=list)

    @property
    def seeds(self) -> list[bytes]:
        """Valid inputs."""
        self._seeds = self._seeds or list(self.make_seeds())
        return self._seeds

    def input(self, seed: int, number: int) -> bytes:
        """Returns input `number` of the runs with this seed, which is equal in every run."""
        chance = Random(f"{self.name} {seed} {number}")
        return self.mutate(chance, chance.choice(self.seeds))


_KNOWN: dict[str, Target] = {}


def target(seeds: Seeds, mutate: Mutate = mutated, tries: int = 150) -> Callable[[Run], Run]:
    """Registers a function as a target, named after it with dashes and described by its docstring.

    `seeds` gives valid inputs, and `mutate` changes one of them at random (`mutation.py`). `tries`
    is the number of inputs that the tests run.
    """

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        _KNOWN[name] = Target(name, (run.__doc__ or "").strip(), run, seeds, mutate, tries)
        return run

    return register


def every_target() -> dict[str, Target]:
    """Returns all targets of the modules in tests/fuzz/targets by name."""
    import tests.fuzz.targets

    for module in pkgutil.iter_modules(tests.fuzz.targets.__path__, "tests.fuzz.targets."):
        importlib.import_module(module.name)
    return dict(sorted(_KNOWN.items()))
