"""containerd's running containers, by the working folders of their shims.

A shim works in the bundle of the container that it was started for:
STATE/io.containerd.runtime.v2.task/NAMESPACE/ID. Beside it lie the other bundles of the namespace,
because one shim may watch all containers of a pod. Neither the daemon nor its options are needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tracer.probes.proc import may_never_answer, read_stat
from tracer.targets.engines import bundle, state
from tracer.targets.engines.bundle import Config
from tracer.targets.engines.state import Refused, Share, Shares, Side

_SHIM = "containerd-shim"
_INIT = "init.pid"
_USUAL = "/run/containerd/io.containerd.runtime.v2.task"
_MOST_DIGITS = 20
_MOST_FOLDERS = 100
"""Most folders of bundles. Those of root's shims come first."""


@dataclass(frozen=True)
class Bundle:
    """A container's bundle, as it was found."""

    place: str
    """The folder, which the shim may see in another mount namespace."""
    namespace: str
    """The namespace of containerd."""
    identity: str
    """The container's id in its namespace."""
    shim: int
    """A shim that works in it or beside it."""
    side: Side
    pid: int
    """The first process; 0: it has ended."""
    config: Config


@dataclass(frozen=True)
class _Namespace:
    """An open folder of bundles."""

    folder: int
    place: PurePosixPath
    shim: int
    side: Side


def bundles() -> Iterator[Bundle]:
    """Yields the bundles beside the working folders of all shims."""
    sides = _sides()
    shares = Shares()
    with contextlib.ExitStack() as stack:
        namespaces = _namespaces(sides)
        for namespace in namespaces:
            stack.callback(os.close, namespace.folder)
        for namespace in namespaces:
            share = shares.of(namespace.side.payer)
            for name in state.names_in(namespace.folder, state.MOST_CONTAINERS):
                if not share.has_room():
                    break
                with contextlib.suppress(OSError, Refused):
                    yield _bundle(namespace, name, sides, share)


def open_folders() -> list[int]:
    """Returns the open folders of namespaces, and those that hold them, also before a shim runs."""
    namespaces = _namespaces(_sides())
    found = [namespace.folder for namespace in namespaces]
    for namespace in namespaces:
        with contextlib.suppress(OSError, Refused):
            found.append(_opened(namespace.shim, ("..",), namespace.folder))
    with contextlib.suppress(Refused), state.folder(_USUAL) as opened:
        found.append(os.dup(opened))
    return found


def _sides() -> dict[int, Side]:
    """Returns the sides of all shims, those that are trusted first."""
    found = {pid: side for pid in state.processes(_SHIM) if (side := state.side_of(pid))}
    order = sorted(found, key=lambda pid: (not found[pid].trusted, found[pid].owner, pid))
    return {pid: found[pid] for pid in order}


def _namespaces(sides: dict[int, Side]) -> list[_Namespace]:
    """Opens the folders of bundles, each once. The caller closes them."""
    found: dict[tuple[int, int], _Namespace] = {}
    for shim, side in sides.items():
        if len(found) == _MOST_FOLDERS:
            break
        with contextlib.suppress(OSError, Refused):
            namespace = _namespace(shim, side)
            status = os.fstat(namespace.folder)
            known = found.setdefault((status.st_dev, status.st_ino), namespace)
            if known is not namespace:
                os.close(namespace.folder)
    return list(found.values())


def _namespace(shim: int, side: Side) -> _Namespace:
    """Opens the folder above a shim's, by the shim's own view. Raises OSError or Refused."""
    place = Path(f"/proc/{shim}/cwd").readlink()
    if len(place.parts) < 3:
        raise Refused("it works in no bundle")
    folder = _opened(shim, (f"/proc/{shim}/cwd", ".."))
    return _Namespace(folder, PurePosixPath(place.parent), shim, side)


def _opened(shim: int, steps: Iterable[str], start: int | None = None) -> int:
    """Opens a folder of a shim, step by step from an open one. Raises OSError or Refused."""
    with contextlib.ExitStack() as stack:
        fd = start
        # A place is opened without a question to its file system, unlike a folder.
        for step in steps:
            fd = os.open(step, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
            stack.callback(os.close, fd)
            if may_never_answer(fd, shim):
                raise Refused("its file system may never answer")
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)


def _bundle(namespace: _Namespace, name: str, sides: dict[int, Side], share: Share) -> Bundle:
    """Reads a bundle. Raises Refused or OSError."""
    side = namespace.side
    if not state.plain(name):
        raise Refused("no name of a container")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, flags, dir_fd=namespace.folder)
    try:
        config = bundle.read(opened, side.owner, share)
        pid = 0
        with contextlib.suppress(Refused, ValueError):
            pid = int(state.read(_INIT, opened, side.owner, _MOST_DIGITS, share))
    finally:
        os.close(opened)
    # The file stays when the process has ended, and its number may be another process's by now.
    stat = read_stat(pid) if pid > 0 else None
    # A shim tells of its own user's processes only.
    lives = stat is not None and sides.get(stat.ppid) == side and stat.state not in state.ENDED
    place = str(namespace.place / name)
    pid = pid if lives else 0
    return Bundle(place, namespace.place.name, name, namespace.shim, side, pid, config)
