"""Asks the Docker daemon that DOCKER_HOST names, through Docker's own Python SDK."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracer.probes.errors import FeatureMissing, PermissionMissing, TracerError

_DEFAULT = "unix:///var/run/docker.sock"
_UNIX = "unix://"
_ANSWER_S = 10.0
_MEND = "start it (systemctl start docker), or set DOCKER_HOST to its address"


def address() -> str:
    """Returns the address of the daemon: DOCKER_HOST or the default socket."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT


def socket_path() -> str | None:
    """Returns the path of the daemon's socket; None if it listens on a network."""
    where = address()
    return where.removeprefix(_UNIX) if where.startswith(_UNIX) else None


def expected() -> bool:
    """Returns whether a daemon may exist: its socket exists, or DOCKER_HOST names a network."""
    path = socket_path()
    return path is None or Path(path).exists()


def owner_of(path: str) -> int:
    """Returns the process that listens on a Unix socket; 0 if it is outside this pid namespace.

    Raises OSError if nobody listens or this user lacks the permission. If systemd holds the
    socket for a service, returns systemd's pid.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(path)
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def listener() -> int:
    """Returns the process that listens on the daemon's socket, as `owner_of` does.

    Raises PermissionMissing if this user may not connect, FeatureMissing if nobody listens.
    """
    path = socket_path()
    if path is None:
        raise FeatureMissing(
            f"the process of the Docker daemon at {address()} is unknown",
            "record on the daemon's machine, with DOCKER_HOST=unix://SOCKET",
        )
    try:
        return owner_of(path)
    except PermissionError:
        raise PermissionMissing(
            f"this user may not use the Docker daemon's socket {path}", "run as root (sudo)"
        ) from None
    except OSError as error:
        raise FeatureMissing(
            f"no Docker daemon answers at {path}: {error.strerror or error}", _MEND
        ) from None


class Engine:
    """A connection to the daemon. Its methods raise FeatureMissing if nobody answers."""

    def __init__(self, answer_s: float = _ANSWER_S) -> None:
        """Connects. Raises PermissionMissing if this user may not connect, else FeatureMissing."""
        if socket_path() is not None:
            listener()
        import docker

        with self._asking():
            self._client = docker.from_env(timeout=answer_s)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        import docker.errors
        import requests.exceptions

        try:
            yield
        except docker.errors.APIError as error:
            raise TracerError(
                f"the Docker daemon refuses: {error.explanation or error}", "see the daemon's log"
            ) from None
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            ValueError,  # DOCKER_HOST is not an address
        ) as error:
            raise FeatureMissing(
                f"no Docker daemon answers at {address()}: {_innermost(error)}", _MEND
            ) from None

    def running(self) -> list[dict[str, Any]]:
        """Returns the `docker inspect` data of every running container."""
        with self._asking():
            found = [self._inspect(entry["Id"]) for entry in self._client.api.containers()]
        return [facts for facts in found if facts is not None]

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Returns the `docker inspect` data of a container by name or id; None if there is none."""
        with self._asking():
            return self._inspect(name)

    def _inspect(self, name: str) -> dict[str, Any] | None:
        import docker.errors

        try:
            facts: dict[str, Any] = self._client.api.inspect_container(name)
        except (docker.errors.NotFound, docker.errors.NullResource):
            return None
        except UnicodeEncodeError:  # a name with a byte that is not UTF-8
            return None
        return facts

    def names(self) -> list[str]:
        """Returns the names of all containers, including stopped ones."""
        with self._asking():
            entries = self._client.api.containers(all=True)
        return sorted(name.lstrip("/") for entry in entries for name in entry["Names"][:1])

    def events(self, since: float, names: list[str]) -> Any:
        """Returns the stream of containers' events of these names since a time (s since 1970).

        It gives dictionaries, ends with the daemon, and has `close`, which another thread may call.
        """
        filters = {"type": "container", "event": names}
        with self._asking():
            return self._client.api.events(since=f"{since:.9f}", filters=filters, decode=True)

    def started_between(self, start: float, end: float) -> dict[str, tuple[str, str]]:
        """Returns the containers started between two times (s since 1970): id to (name, image).

        The daemon remembers its last 256 events (`eventsLimit` in daemon/events/events.go).
        """
        found = {}
        with self._asking():
            events = self._client.api.events(
                since=f"{start:.9f}",
                until=f"{end:.9f}",
                filters={"type": "container", "event": "start"},
                decode=True,
            )
            for event in events:
                actor = event.get("Actor", {})
                about = actor.get("Attributes", {})
                found[str(actor.get("ID"))] = (
                    str(about.get("name", "")),
                    str(about.get("image", "")),
                )
        return found


def _innermost(error: BaseException) -> str:
    """Returns the innermost reason of a failed connection, without the text of outer layers."""
    reason = error
    while True:
        below = (reason.__cause__, getattr(reason, "reason", None), *reason.args)
        inner = next((part for part in below if isinstance(part, BaseException)), None)
        if inner is None or isinstance(inner, NameError | AttributeError):
            text = getattr(reason, "strerror", None) or str(reason)
            return " ".join(str(text).split())[:200]
        reason = inner
