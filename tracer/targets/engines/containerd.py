"""containerd without Docker: containers of ctr, nerdctl and Kubernetes.

Those that run are found by their shims, and all that exist in the database of each containerd.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tracer.probes.cgroups import container_id
from tracer.probes.proc import may_never_answer
from tracer.store.files import open_regular
from tracer.store.manifest_parts import ContainerFacts
from tracer.targets.containerd import told
from tracer.targets.engines import bolt, bundle, state
from tracer.targets.engines.bolt import Bucket
from tracer.targets.engines.engine import Container, named
from tracer.targets.engines.shims import Bundle, bundles, open_folders

_DAEMON = "containerd"
_DATABASE = "/io.containerd.metadata.v1.bolt/meta.db"
_OF_DOCKER = ("moby", "plugins.moby")
"""The namespaces of Docker's own containers, if dockerd is not told others."""
_OPTIONS = ("--containerd-namespace", "--containerd-plugins-namespace")
_CONTAINER, _POD, _NAMESPACE, _IMAGE = (
    f"io.kubernetes.cri.{part}"
    for part in ("container-name", "sandbox-name", "sandbox-namespace", "image-name")
)
"""Annotations of containers that Kubernetes has made (pkg/cri/annotations of containerd)."""
_PAUSE = "POD"
"""The name of a pod's own container, which holds its namespaces. Kubernetes' names have small
letters."""
_NERDCTL = "nerdctl/name"
"""A label, which nerdctl makes an annotation, too (pkg/labels of nerdctl)."""
_LONGEST = 1024


@dataclass(frozen=True)
class _Entry:
    """A container in the database of a containerd (metadata/buckets.go of containerd)."""

    image: str
    name: str
    """nerdctl's name; else empty."""


_Key = tuple[str, str]
"""(namespace, id) of a container."""


class Containerd:
    """The containers of every containerd on this machine, without Docker's."""

    name = "containerd"

    def found(self) -> bool:
        """Returns whether there is a container that is not Docker's."""
        return bool(_all())

    def find(self, wanted: str) -> list[Container]:
        """Returns the containers of this name or id."""
        return named(_all(), wanted)

    def names(self) -> list[str]:
        """Returns the names of all containers."""
        return sorted({container.facts["name"] for container in _all()})

    def seen_since(self, begun_s: float) -> list[ContainerFacts]:
        """Returns the running containers; of others no time is known."""
        return [c.facts for c in _all() if c.facts["pid"] and c.proven]

    def present(self) -> list[ContainerFacts]:
        """Returns all containers that are proven, also those that do not run."""
        return [container.facts for container in _all() if container.proven]

    def folders(self) -> list[int]:
        """Returns the open folders of bundles and, for new namespaces, those above."""
        return open_folders()


def _all() -> list[Container]:
    docker = _dockers()
    known: dict[_Key, _Entry] = {}
    for entries in _databases():
        known |= entries
    found: list[Container] = []
    others: list[Container] = []
    for b in bundles():
        key = b.namespace, b.identity
        if b.namespace in docker:
            continue
        if b.side.trusted:
            found.append(_container(key, known.pop(key, None), b))
        else:  # the database does not tell of it
            others.append(_container(key, None, b))
    found += [_container(k, entry, None) for k, entry in known.items() if k[0] not in docker]
    return found + others


def _dockers() -> set[str]:
    """Returns the namespaces that Docker's daemons use."""
    found = set(_OF_DOCKER)
    for pid in state.processes("dockerd"):
        words = state.command_line(pid)
        found.update(name for option in _OPTIONS for name in told(words, option))
    return found


def _databases() -> Iterator[dict[_Key, _Entry]]:
    """Yields the containers in the database of each containerd of root, if it can be read."""
    for pid in state.processes(_DAEMON):
        side = state.side_of(pid)
        if side is not None and side.trusted:
            with contextlib.suppress(OSError, ValueError):  # also bolt.Damaged
                yield from _database(pid)


def _database(pid: int) -> Iterator[dict[_Key, _Entry]]:
    for number in os.listdir(f"/proc/{pid}/fd"):
        link = Path(f"/proc/{pid}/fd/{number}")
        if not str(link.readlink()).endswith(_DATABASE):
            continue
        place = os.open(link, os.O_PATH | os.O_CLOEXEC)
        try:
            if not may_never_answer(place, pid):
                with open_regular(f"/proc/self/fd/{place}", follow=True) as file:
                    yield bolt.read(file.fileno(), entries_in)
        finally:
            os.close(place)
        return


def entries_in(database: bolt.Bolt) -> dict[_Key, _Entry]:
    """Returns all containers of a database. Raises Damaged and OSError."""
    found = {}
    for namespace, inside in _buckets(database, database.get(database.root, b"v1")):
        for identity, container in _buckets(database, database.get(inside, b"containers")):
            if state.plain(identity) and state.plain(namespace):
                labels = database.get(container, b"labels")
                name = database.get(labels, _NERDCTL.encode())
                image = _text(database.get(container, b"image"))
                found[namespace, identity] = _Entry(image, _text(name))
                if len(found) > state.MOST_CONTAINERS:
                    raise bolt.Damaged("it lists too many containers")
    return found


def _buckets(database: bolt.Bolt, within: bytes | Bucket | None) -> Iterator[tuple[str, Bucket]]:
    if isinstance(within, Bucket):
        for key, value in database.items(within):
            if isinstance(value, Bucket):
                yield _text(key), value


def _text(value: bytes | Bucket | None) -> str:
    return value[:_LONGEST].decode(errors="replace") if isinstance(value, bytes) else ""


def _container(key: _Key, entry: _Entry | None, found: Bundle | None) -> Container:
    namespace, identity = key
    annotations = (found.config.get("annotations") or {}) if found is not None else {}
    trusted = found is None or found.side.trusted
    known = container_id(f"/{identity}") is not None
    # Other ids than those of 64 digits may be another container's, too.
    whose = "" if trusted or found is None else f"{found.side.owner}:"
    facts: ContainerFacts = {
        "id": identity if known else f"{whose}{namespace}/{identity}",
        "name": name_of(annotations, identity, entry.name if entry is not None else ""),
        "image": (entry and entry.image) or annotations.get(_IMAGE, "")[:_LONGEST],
        "pid": found.pid if found is not None else 0,
        "engine": Containerd.name,
    }
    own = []
    if found is not None and found.pid:
        own = bundle.cgroups(found.config, identity, found.pid)
        own = bundle.believed(own, identity, found.side, found.shim)
        bundle.add_cgroups(facts, own)
        if trusted:
            bundle.add_folders(facts, found.config, found.place)
    elif found is not None and trusted:
        bundle.add_planned_cgroup(facts, found.config)
    start = f"ctr -n {namespace} tasks start {identity}"
    exists, proven = partial(_exists, key), trusted or bool(own)
    return Container(Containerd.name, facts, own, exists, start=start, proven=proven)


def name_of(annotations: dict[str, str], identity: str, given: str) -> str:
    """Returns NAMESPACE/POD/CONTAINER, nerdctl's name or the id."""
    pod = annotations.get(_POD, "")
    if pod:
        container = annotations.get(_CONTAINER, _PAUSE)
        return bundle.of_pod(annotations.get(_NAMESPACE, ""), pod, container) or identity
    given = given or annotations.get(_NERDCTL, "")
    return given if state.plain(given) else identity


def _exists(key: _Key) -> bool:
    """Returns whether a database lists a container; if none can be read, whether it has a task."""
    readable = False
    for entries in _databases():
        readable = True
        if key in entries:
            return True
    return not readable and any((b.namespace, b.identity) == key for b in bundles())
