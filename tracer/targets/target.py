"""What a target is, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.kernel import process_alive
from tracer.store.manifest import TargetFacts
from tracer.store.names import escaped


@dataclass
class Target:
    """Something to trace: a set of processes that changes while it is traced."""

    name: str
    kind: str
    """pid, command, container, cgroup, daemon or machine."""
    pid: int = 0
    """Its first process; 0 where it has none."""
    start_time: int | None = None
    role: str = "target"
    command: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether there is still something to trace, now or later."""
        return process_alive(self.pid, self.start_time)

    @property
    def joined(self) -> bool:
        """Whether processes come to belong to it that none of its own has made."""
        return False

    @property
    def ends_with(self) -> int | None:
        """The process with whose end it ends, if that is all there is to it."""
        return self.pid

    def members(self) -> dict[int, int]:
        """Processes that belong to it now: pid to cgroup hierarchy, or BY_DESCENT."""
        return {}

    def makers(self) -> set[int]:
        """Processes that do not belong to it, of whose making are some that later do."""
        return set()

    def describe(self) -> TargetFacts:
        """For the manifest."""
        return {
            "name": escaped(self.name),
            "role": self.role,
            "kind": self.kind,
            "pid": self.pid,
            "command": [escaped(argument) for argument in self.command],
        }


def named_apart(targets: list[Target]) -> list[Target]:
    """The same targets; those that share a name get their pid, or else their kind, into it."""
    names = [target.name for target in targets]
    for target in targets:
        if names.count(target.name) > 1:
            target.name = f"{target.name}-{target.pid or target.kind}"
    return targets
