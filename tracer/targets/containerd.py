"""Finds containerd and its shims by their sockets and command lines."""

from __future__ import annotations

import contextlib
import itertools
import os

import psutil

from tracer.probes import proc
from tracer.targets import docker_api

_CONTAINERD = "containerd"
_SHIM = "containerd-shim"
_KNOWN_SOCKETS = ("/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock")


def of_dockerd(dockerd: int) -> int | None:
    """Returns the pid of a dockerd's containerd: its child, a given or the usual one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(dockerd)
        for child in process.children():
            if name_of(child.pid) == _CONTAINERD:
                return child.pid
        for path in (*told(_command(dockerd), "--containerd"), *_KNOWN_SOCKETS):
            if (owner := _listener(path)) is not None:
                return owner
    return None


def of_shim(shim: int) -> int | None:
    """Returns the pid of the containerd that a shim reports to; None if it is no shim or gone."""
    if (name_of(shim) or "").startswith(_SHIM):
        for path in told(_command(shim), "-address"):
            return _listener(path)
    return None


def shims_of(containerd: int) -> list[int]:
    """Returns the shims of a containerd, found by the socket in their options."""
    sockets = sockets_of(containerd)
    found = []
    for pid in proc.processes_called(_SHIM):
        given = told(_command(pid), "-address")
        if any(os.path.realpath(path) in sockets for path in given):
            found.append(pid)
    return sorted(found)


def told(command: list[str], option: str) -> list[str]:
    """Returns the values of an option in a command line (OPTION VALUE or OPTION=VALUE)."""
    found = [after for word, after in itertools.pairwise(command) if word == option]
    return found + [w.partition("=")[2] for w in command if w.startswith(f"{option}=")]


def _command(pid: int) -> list[str]:
    """Returns the beginning of a process's command line; empty if the process is gone."""
    with contextlib.suppress(OSError):
        return proc.command_line(pid)
    return []


def _listener(path: str) -> int | None:
    """Returns the pid of the containerd that listens at a socket."""
    with contextlib.suppress(OSError):
        owner = docker_api.owner_of(path)
        if name_of(owner) == _CONTAINERD:
            return owner
    return None


def sockets_of(pid: int) -> set[str]:
    """Returns the paths of the Unix sockets that a process has open."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("unix")
        return {os.path.realpath(str(c.laddr)) for c in found if str(c.laddr).startswith("/")}
    return set()


def name_of(pid: int) -> str | None:
    """Returns a process's name (comm); None if it is gone."""
    try:
        return proc.name_of(pid)
    except OSError:
        return None
