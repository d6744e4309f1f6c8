"""podman, of root and of other users: containers found by their conmon.

podman has no daemon that could be asked, and its command locks its own database and runs hooks. A
monitor, conmon, is the parent of each container's first process, and its command line names the
container, its bundle (config.json) and so the store that lists all containers of that user. A pid
file is left behind when a container ends, so it counts only if its process is the monitor's child.

CRI-O uses the same monitor and stores, so its containers are found, too.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.probes.cgroups import container_id
from tracer.probes.text import shell_word
from tracer.store.checked import STRICT, Listed, parsed
from tracer.store.manifest_parts import ContainerFacts
from tracer.targets.cgroups import of_container, of_process
from tracer.targets.containerd import told
from tracer.targets.engines import bundle, state
from tracer.targets.engines.engine import Container, named
from tracer.targets.engines.state import Refused, Share, Shares, Side

_MONITOR = "conmon"
STORES = "/var/lib/containers/storage"
"""Root's store, unless storage.conf names another."""
_CONFIGURATION = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
_OF_USER = ".local/share/containers/storage"
_CONTAINERS = "-containers"
"""A store has a folder DRIVER-containers, e.g. overlay-containers."""
_MANAGER, _CRIO = "io.container.manager", "cri-o"
"""The annotation of config.json that tells who made it (pkg/annotations of CRI-O and podman)."""
_OF_POD = tuple(f"io.kubernetes.{part}.name" for part in ("pod", "container"))
_NAMESPACE = "io.kubernetes.pod.namespace"
"""Labels of Kubernetes (pkg/kubelet/types/labels.go), which CRI-O makes annotations, too."""
_LISTS = ("containers.json", "volatile-containers.json")
_MOST_BYTES = 16 << 20
_MOST_DIGITS = 20
_MOST_USERS = 1000
_MOST_DRIVERS = 100
_MOST_STORES = 100
"""Most stores that are read. Root's come first."""


@with_config(STRICT)
class _Listed(TypedDict):
    """An entry of containers.json (storage/containers.go of containers/storage)."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    names: NotRequired[Annotated[Listed[str], Field(max_length=100)] | None]
    metadata: NotRequired[str]


@with_config(STRICT)
class _Metadata(TypedDict):
    """The JSON text in `metadata`, as podman writes it."""

    image: NotRequired[Annotated[str, Field(alias="image-name", max_length=1024)]]


@dataclass(frozen=True)
class _Store:
    """The folder DRIVER-containers of a user's store."""

    folder: str
    owner: int


@dataclass(frozen=True)
class _Monitor:
    """A conmon and what its command line says."""

    pid: int
    side: Side
    container: str
    name: str
    bundle: str
    pid_file: str
    """Empty, like `bundle`, if the monitor runs in a container, below another root folder."""

    @property
    def store(self) -> _Store | None:
        """Returns the store in which the bundle lies: DRIVER-containers/ID/userdata."""
        place = PurePosixPath(self.bundle)
        of_all = place.parent.parent
        known = place.parent.name == self.container and of_all.name.endswith(_CONTAINERS)
        return _Store(str(of_all), self.side.owner) if known else None


class Podman:
    """podman's containers, of all users whose processes and files are visible here."""

    name = "podman"

    def found(self) -> bool:
        """Returns whether a container runs or a store is there."""
        shares = Shares()
        return bool(_monitors()) or any(_lists(s, shares.of(s.owner)) for s in _stores())

    def find(self, wanted: str) -> list[Container]:
        """Returns the containers of this name or id."""
        return named(self._all(), wanted)

    def names(self) -> list[str]:
        """Returns the names of all containers."""
        return sorted({container.facts["name"] for container in self._all()})

    def seen_since(self, begun_s: float) -> list[ContainerFacts]:
        """Returns the running containers; of others no time is known."""
        return [c.facts for c in self._all() if c.facts["pid"] and c.proven]

    def present(self) -> list[ContainerFacts]:
        """Returns all containers that are proven, also those that do not run."""
        return [container.facts for container in self._all() if container.proven]

    def folders(self) -> list[int]:
        """Returns the open folders of the stores' lists."""
        found = []
        for store in _known_stores(_monitors()):
            with contextlib.suppress(Refused), state.folder(store.folder) as opened:
                found.append(os.dup(opened))
        return found

    def _all(self) -> list[Container]:
        shares = Shares()
        monitors = [m for m in _monitors() if shares.of(m.side.payer).has_room()]
        listed: dict[tuple[int, str], tuple[_Listed, _Store]] = {}
        for store in _known_stores(monitors):
            share = shares.of(store.owner)
            for entry in _lists(store, share):
                if not share.has_room():
                    break
                listed.setdefault((store.owner, entry["id"]), (entry, store))
        found: dict[str, Container] = {}
        children = state.children() if monitors else {}
        for monitor in monitors:
            identity, share = monitor.container, shares.of(monitor.side.payer)
            if identity in found and found[identity].proven:
                continue
            pid = _init_of(monitor, children.get(monitor.pid, []), share)
            if pid is not None:
                one, where = listed.get((monitor.side.owner, identity), (None, monitor.store))
                found[identity] = _running(monitor, pid, one, where, share)
        for (_, identity), (entry, store) in listed.items():
            if identity not in found:
                found[identity] = _stopped(entry, store)
        return list(found.values())


def _monitors() -> list[_Monitor]:
    """Returns the monitors of containers, those that are trusted first.

    Those of `podman exec` have another id of their own.
    """
    found = []
    for pid in state.processes(_MONITOR):
        words = state.command_line(pid)
        side = state.side_of(pid)
        said = [next(iter(told(words, option)), "") for option in ("-c", "-u", "-n", "-b", "-p")]
        identity, session, name, *places = said
        if side is None or identity != session or container_id(f"/{identity}") is None:
            continue
        name = name if state.plain(name) else identity
        found.append(_Monitor(pid, side, identity, name, *(places if side.here else ("", ""))))
    return sorted(found, key=lambda m: (not m.side.trusted, m.side.owner, m.pid))


def _init_of(monitor: _Monitor, children: list[int], share: Share) -> int | None:
    """Returns the container's first process; None if it has ended.

    It is the child in the container's cgroup, or, without one, that of the pid file. The monitor
    has another child when the container has ended: podman, which tidies up.
    """
    for child in children:
        if any(container_id(path) == monitor.container for path in of_process(child).values()):
            return child
    place = PurePosixPath(monitor.pid_file)
    with contextlib.suppress(Refused, ValueError), state.folder(str(place.parent)) as opened:
        pid = int(state.read(place.name, opened, monitor.side.owner, _MOST_DIGITS, share))
        return pid if pid in children else None
    return None


def _known_stores(monitors: Iterable[_Monitor]) -> list[_Store]:
    """Returns the stores of monitors and the usual ones, each once."""
    every = [*(m.store for m in monitors if m.store), *_stores()]
    return sorted(dict.fromkeys(every), key=lambda store: store.owner)[:_MOST_STORES]


def _stores() -> Iterator[_Store]:
    """Yields the usual stores of root and of the users who have begun a session."""
    places = [(STORES, 0)]
    for path in _CONFIGURATION:
        with contextlib.suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            storage = tomllib.loads(Path(path).read_text()).get("storage")
            given = storage.get("graphroot") if isinstance(storage, dict) else None
            if isinstance(given, str):
                places.insert(0, (given, 0))
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir("/run/user"))[:_MOST_USERS]:
            with contextlib.suppress(ValueError, KeyError):
                user = pwd.getpwuid(int(entry))
                places.append((os.path.join(user.pw_dir, _OF_USER), user.pw_uid))  # noqa: PTH118
    for place, owner in dict.fromkeys(places):
        with contextlib.suppress(OSError, Refused), state.folder(place) as opened:
            for name in state.names_in(opened, _MOST_DRIVERS):
                if name.endswith(_CONTAINERS):
                    yield _Store(f"{place}/{name}", owner)


def _lists(store: _Store, share: Share | None = None) -> list[_Listed]:
    """Returns the entries of a store's lists; those of `podman run --rm` have their own."""
    found: list[_Listed] = []
    with contextlib.suppress(Refused), state.folder(store.folder) as opened:
        for name in _LISTS:
            with contextlib.suppress(Refused):
                kind = Listed[_Listed]
                found += state.read_json(kind, name, opened, store.owner, _MOST_BYTES, share)
    return found[: state.MOST_CONTAINERS]


def _facts(identity: str, pid: int, name: str, entry: _Listed | None) -> ContainerFacts:
    image = ""
    if entry is not None:
        name = next(filter(state.plain, entry.get("names") or []), name)
        with contextlib.suppress(ValueError):
            image = parsed(_Metadata, entry.get("metadata", "").encode()).get("image", "")
    return {"id": identity, "name": name, "image": image, "pid": pid, "engine": Podman.name}


def _running(
    monitor: _Monitor, pid: int, entry: _Listed | None, store: _Store | None, share: Share
) -> Container:
    identity = monitor.container
    facts = _facts(identity, pid, monitor.name, entry)
    own = of_container(pid, lambda path: container_id(path) == identity)
    with contextlib.suppress(Refused), state.folder(monitor.bundle) as opened:
        config = bundle.read(opened, monitor.side.owner, share)
        own = bundle.cgroups(config, identity, pid) or own
        if monitor.side.trusted:  # the folders that another user names may be anyone's
            bundle.add_folders(facts, config, monitor.bundle)
            _add_pod(facts, config.get("annotations") or {})
    own = bundle.believed(own, identity, monitor.side, monitor.pid)
    bundle.add_cgroups(facts, own)
    proven = monitor.side.trusted or bool(own)
    return Container(Podman.name, facts, own, partial(_exists, identity, store), proven=proven)


def _add_pod(facts: ContainerFacts, annotations: dict[str, str]) -> None:
    """Adds the names of Kubernetes to a container of CRI-O."""
    if annotations.get(_MANAGER) == _CRIO:
        pod, container = (annotations.get(name, "") for name in _OF_POD)
        name = bundle.of_pod(annotations.get(_NAMESPACE, ""), pod, container)
        facts["engine"] = _CRIO
        facts["name"] = name or facts["name"]


def _stopped(entry: _Listed, store: _Store) -> Container:
    identity = entry["id"]
    facts = _facts(identity, 0, identity, entry)
    exists, start = partial(_exists, identity, store), f"podman start {shell_word(facts['name'])}"
    return Container(Podman.name, facts, [], exists, start=start, proven=store.owner == 0)


def _exists(identity: str, store: _Store | None) -> bool:
    """Returns whether a store lists a container. Without a visible store it ends when it stops."""
    return store is not None and any(entry["id"] == identity for entry in _lists(store))
