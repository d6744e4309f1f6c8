"""The protocol of a container engine: how the recorder learns of its containers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tracer.store.manifest_parts import ContainerFacts
from tracer.targets.cgroups import Cgroup

SHORT_ID = 12
"""Digits of an id that `docker ps` and `podman ps` show."""


@dataclass(frozen=True)
class Container:
    """A container as its engine knows it now."""

    engine: str
    """A name in `ENGINES`."""
    facts: ContainerFacts
    """The facts for the manifest; pid 0: it does not run."""
    cgroups: list[Cgroup]
    """The cgroup in each hierarchy; empty if it does not run or has none of its own."""
    exists: Callable[[], bool]
    """Returns False once the container is removed, True while that is not known."""
    state: str = "stopped"
    """The state in the engine's word, if it does not run."""
    start: str = ""
    """A command that starts it."""
    proven: bool = True
    """False if only a user without rights, or the root of a container, claims that there is one."""


class Engine(Protocol):
    """An engine that makes containers on this machine.

    The methods raise TracerError if the engine may be there, but cannot be asked.
    """

    name: str
    """The name in `ENGINES`."""

    def found(self) -> bool:
        """Returns whether the engine seems to be on this machine."""

    def find(self, wanted: str) -> list[Container]:
        """Returns the containers of this name or id, including stopped ones if it knows them."""

    def names(self) -> list[str]:
        """Returns the names of all containers, including stopped ones if it knows them."""

    def seen_since(self, begun_s: float) -> list[ContainerFacts]:
        """Returns the running containers, and those that are known to have started since then.

        `begun_s`: s since 1970. Leaves out containers that are not proven.
        """

    def present(self) -> list[ContainerFacts]:
        """Returns the containers that are made now, also before they run; none of Docker's.

        Docker's daemon remembers containers that have ended: `seen_since`.
        """

    def folders(self) -> list[int]:
        """Returns open folders in which something is made with a container; callers close them."""


def named(containers: Iterable[Container], wanted: str) -> list[Container]:
    """Returns the containers that a name means: whole names and ids, else endings of names.

    A pod's container is NAMESPACE/POD/CONTAINER, and may be called POD/CONTAINER or CONTAINER. The
    beginning of an id, as lists of containers show it, means it, too.
    """
    found = list(containers)
    whole = [c for c in found if wanted in (c.facts["name"], c.facts["id"])]
    if whole:
        return whole
    return [
        c
        for c in found
        if f"{c.facts['name']}".endswith(f"/{wanted}")
        or c.facts["id"].endswith(f"/{wanted}")
        or is_id(wanted, c.facts["id"])
    ]


def is_id(wanted: str, identity: str) -> bool:
    """Returns whether a name is the container's id, or a beginning of it as `docker ps` shows."""
    return len(wanted) >= SHORT_ID and identity.startswith(wanted)
