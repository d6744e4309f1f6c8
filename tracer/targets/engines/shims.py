"""containerd's running containers, by the working folders of their shims.

A shim works in the bundle of the container that it was started for:
STATE/io.containerd.runtime.v2.task/NAMESPACE/ID. Beside it lie the other bundles of the namespace,
because one shim may watch all containers of a pod. Neither the daemon nor its options are needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tracer.probes.proc import read_stat
from tracer.targets.engines import bundle, state
from tracer.targets.engines.bundle import Config
from tracer.targets.engines.state import Refused

_SHIM = "containerd-shim"
_INIT = "init.pid"
_USUAL = "/run/containerd/io.containerd.runtime.v2.task"
_MOST_DIGITS = 20


@dataclass(frozen=True)
class Bundle:
    """A container's bundle, as it was found."""

    place: str
    """The folder, which the shim may see in another mount namespace."""
    namespace: str
    """The namespace of containerd."""
    identity: str
    """The container's id in its namespace."""
    owner: int
    pid: int
    """The first process; 0: it has ended."""
    config: Config


@dataclass(frozen=True)
class _Namespace:
    """An open folder of bundles."""

    folder: int
    place: PurePosixPath
    owner: int


def bundles() -> Iterator[Bundle]:
    """Yields the bundles beside the working folders of all shims."""
    shims = set(state.processes(_SHIM))
    with contextlib.ExitStack() as stack:
        namespaces = _namespaces(shims)
        for namespace in namespaces:
            stack.callback(os.close, namespace.folder)
        for namespace in namespaces:
            for name in sorted(os.listdir(namespace.folder))[: state.MOST_CONTAINERS]:
                with contextlib.suppress(OSError, Refused):
                    yield _bundle(namespace, name, shims)


def open_folders() -> list[int]:
    """Returns the open folders of namespaces, and those that hold them, also before a shim runs."""
    found = [namespace.folder for namespace in _namespaces(set(state.processes(_SHIM)))]
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    for inner in list(found):
        with contextlib.suppress(OSError):
            found.append(os.open("..", flags, dir_fd=inner))
    with contextlib.suppress(Refused), state.folder(_USUAL) as opened:
        found.append(os.dup(opened))
    return found


def _namespaces(shims: set[int]) -> list[_Namespace]:
    """Opens the folders of bundles, each once. The caller closes them."""
    found: dict[tuple[int, int], _Namespace] = {}
    for shim in shims:
        with contextlib.suppress(OSError, Refused):
            namespace = _namespace(shim)
            status = os.fstat(namespace.folder)
            known = found.setdefault((status.st_dev, status.st_ino), namespace)
            if known is not namespace:
                os.close(namespace.folder)
    return list(found.values())


def _namespace(shim: int) -> _Namespace:
    """Opens the folder above a shim's, by the shim's own view. Raises OSError or Refused."""
    owner = state.user_of(shim)
    place = Path(f"/proc/{shim}/cwd").readlink()
    if owner is None or len(place.parts) < 3:
        raise Refused("it works in no bundle")
    own = os.open(f"/proc/{shim}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return _Namespace(os.open("..", flags, dir_fd=own), PurePosixPath(place.parent), owner)
    finally:
        os.close(own)


def _bundle(namespace: _Namespace, name: str, shims: set[int]) -> Bundle:
    """Reads a bundle. Raises Refused or OSError."""
    if not state.plain(name):
        raise Refused("no name of a container")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, flags, dir_fd=namespace.folder)
    try:
        config = bundle.read(opened, namespace.owner)
        pid = 0
        with contextlib.suppress(Refused, ValueError):
            pid = int(state.read(_INIT, opened, namespace.owner, _MOST_DIGITS))
    finally:
        os.close(opened)
    # The file stays when the process has ended, and its number may be another process's by now.
    stat = read_stat(pid) if pid > 0 else None
    lives = stat is not None and stat.ppid in shims and stat.state not in state.ENDED
    place = str(namespace.place / name)
    return Bundle(place, namespace.place.name, name, namespace.owner, pid * lives, config)
