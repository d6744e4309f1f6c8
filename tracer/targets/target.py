"""The base class of all targets."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracer.probes.kernel import process_alive
from tracer.store.manifest_parts import TargetFacts
from tracer.store.names import escaped


@dataclass
class Target:
    """Something to trace: a set of processes that changes while it is traced."""

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
    def joined(self) -> bool:
        """True if processes can join it that its own processes did not make."""
        return False

    @property
    def ends_with(self) -> int | None:
        """The process with which the target ends; None if the target can outlive its processes."""
        return self.pid

    def members(self) -> dict[int, int]:
        """Returns the processes that belong to it now: pid to cgroup hierarchy, or BY_DESCENT."""
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


def named_apart(targets: list[Target]) -> list[Target]:
    """Returns the same targets; adds the pid, or else the kind, to each name used twice."""
    names = [target.name for target in targets]
    for target in targets:
        if names.count(target.name) > 1:
            target.name = f"{target.name}-{target.pid or target.kind}"
    return targets
