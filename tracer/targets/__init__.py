"""Targets: processes, a command, containers, the Docker daemon, cgroups, the machine.

Each kind of target tells which processes belong to it now, and whether processes can join it that
its own processes did not make. A process belongs to one target at a time, the most specific one:
process or command, then container, then cgroup, then daemon. Among two of a kind, the inner one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.probes.errors import UsageError
from tracer.targets.cgroups import from_paths
from tracer.targets.engines import AUTO, chosen
from tracer.targets.processes import (
    from_command,
    from_pids,
    machine,
    members_of,
    processes_with_memory,
    threads,
    threads_of,
)
from tracer.targets.target import Target, named_apart, refuse_many

if TYPE_CHECKING:
    from tracer.store.manifest_parts import ContainerFacts

__all__ = [
    "Target",
    "containers_now",
    "containers_since",
    "find_targets",
    "folders_of_containers",
    "from_command",
    "from_pids",
    "machine",
    "members_of",
    "named_apart",
    "processes_with_memory",
    "refuse_many",
    "threads",
    "threads_of",
]


def find_targets(
    pids: str | None,
    containers: list[str],
    daemon: bool,
    cgroups: list[str],
    machine_wide: bool,
    wait: bool = False,
    docker_cli: int | None = None,
    engine: str = AUTO,
) -> list[Target]:
    """Returns the targets that the options of `tracer record` name, except the command.

    With `wait`, containers need not run yet. `docker_cli` is a process that runs `docker`.
    `engine` is the engine of the containers (`engines.ABOUT`).

    Raises UsageError, TargetGone, PermissionMissing, or FeatureMissing if no engine answers.
    """
    targets = from_pids(pids) if pids is not None else []
    if containers:
        from tracer.targets.containers import from_names

        targets += from_names(containers, wait, engine)
    targets += from_paths(cgroups)
    if daemon:
        from tracer.targets.daemon import from_socket

        targets.append(from_socket())
    if docker_cli is not None:
        if any(target.pid == docker_cli for target in targets if target.kind == "pid"):
            raise UsageError(
                f"process {docker_cli} is named by -p and by --docker-cli, and is one target",
                "leave out one: -p counts it as the job, --docker-cli as the daemon",
            )
        targets += from_pids(
            str(docker_cli), "docker CLI", "daemon", option="--docker-cli", program="docker"
        )
    if machine_wide:
        targets.append(machine())
    return targets


def containers_now() -> list[ContainerFacts]:
    """Returns the containers that are made now, without those of Docker, which remembers them."""
    return [facts for engine in chosen(AUTO) for facts in engine.present()]


def folders_of_containers() -> list[int]:
    """Returns open folders in which something is made when a container is. Callers close them."""
    return [folder for engine in chosen(AUTO) for folder in engine.folders()]


def containers_since(
    begun_s: float, before: dict[str, ContainerFacts] | None
) -> dict[str, ContainerFacts] | None:
    """Returns `before` and every container that has run since `begun_s` (s since 1970).

    None if it is unknown: no engine is there, or none has ever answered.
    """
    from tracer.targets.containers import seen_since

    return seen_since(begun_s, before)
