"""The base class of all targets."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

from tracer.probes.errors import UsageError
from tracer.probes.kernel import process_alive
from tracer.store.manifest_parts import MOST_TARGETS, TargetFacts
from tracer.store.names import escaped
from tracer.targets.tree import ProcessTree


@dataclass(eq=False)
class Target:
    """Something to trace: a set of processes that changes while it is traced.

    Two targets are never equal, even if their names and pids are.
    """

    name: str
    kind: str
    """pid, command, container, cgroup, daemon or machine."""
    pid: int = 0
    """The first process; 0: none."""
    start_time: int | None = None
    role: str = "target"
    command: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """True while there is something to trace, now or later."""
        return process_alive(self.pid, self.start_time)

    @property
    def distinction(self) -> str:
        """The part that a name gets if another target has the same name."""
        return str(self.pid or self.kind)

    @property
    def joined(self) -> bool:
        """True if processes can join it that its own processes did not make."""
        return False

    @property
    def ends_with(self) -> int | None:
        """The process with which the target ends; None if the target can outlive its processes."""
        return self.pid

    def members(self, tree: ProcessTree | None = None) -> dict[int, int]:
        """Returns the processes that belong to it now: pid to cgroup hierarchy, or BY_DESCENT.

        Those by descent are those of `tree`, which several targets can share.
        """
        return {}

    def makers(self) -> set[int]:
        """Returns outside processes that create members of this target."""
        return set()

    def describe(self) -> TargetFacts:
        """Returns the target's description for the manifest."""
        return {
            "name": escaped(self.name),
            "role": self.role,
            "kind": self.kind,
            "pid": self.pid,
            "command": [escaped(argument) for argument in self.command],
        }


def refuse_many(count: int) -> None:
    """Raises UsageError for more targets than a trace can describe."""
    if count > MOST_TARGETS:
        raise UsageError(
            f"{count} targets are too many; a recording has at most {MOST_TARGETS}",
            "record a process that started them, or their cgroup: --cgroup PATH",
        )


def named_apart(targets: list[Target]) -> list[Target]:
    """Returns the same targets, each with a name of its own.

    A name that several targets have gets each target's `distinction` and, if the result is another
    target's name, a number.
    """
    given = Counter(target.name for target in targets)
    taken = set(given)
    for target in targets:
        if given[target.name] > 1:
            longer = f"{target.name}-{target.distinction}"
            numbered = (f"{longer}-{number}" for number in itertools.count(2))
            target.name = next(n for n in itertools.chain([longer], numbered) if n not in taken)
            taken.add(target.name)
    return targets
