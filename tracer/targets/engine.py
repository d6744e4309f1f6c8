"""The Docker daemon that DOCKER_HOST names, asked through Docker's own Python SDK."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probes.errors import FeatureMissing, PermissionMissing, TracerError

_DEFAULT = "unix:///var/run/docker.sock"
_UNIX = "unix://"
_ANSWER_S = 10.0
_MEND = "start it (systemctl start docker), or set DOCKER_HOST to where it listens"


def address() -> str:
    """Where the daemon is expected to listen."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT


def socket_path() -> str | None:
    """The daemon's socket in the file system; None where it listens on a network."""
    where = address()
    return where.removeprefix(_UNIX) if where.startswith(_UNIX) else None


def expected() -> bool:
    """Whether a daemon may be there: its socket is, or the user has named another place."""
    path = socket_path()
    return path is None or Path(path).exists()


def owner_of(path: str) -> int:
    """The process that listens on a Unix socket, 0 where this pid namespace does not show it.

    OSError where nobody listens or this user may not ask. Where systemd holds the socket for
    a service, the answer is systemd.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(path)
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def listener() -> int:
    """The process that listens on the daemon's socket, as `owner_of`.

    Raises PermissionMissing where this user may not ask, FeatureMissing where nobody listens.
    """
    path = socket_path()
    if path is None:
        raise FeatureMissing(
            f"nothing tells which process is the Docker daemon at {address()}",
            "record where it runs, with DOCKER_HOST=unix://SOCKET",
        )
    try:
        return owner_of(path)
    except PermissionError:
        raise PermissionMissing(
            f"the Docker daemon's socket {path} may not be used by this user", "run as root (sudo)"
        ) from None
    except OSError as error:
        raise FeatureMissing(
            f"no Docker daemon answers at {path}: {error.strerror or error}", _MEND
        ) from None


class Engine:
    """A connection to the daemon. Its methods raise FeatureMissing where nobody answers."""

    def __init__(self, answer_s: float = _ANSWER_S) -> None:
        """Connect. Raises PermissionMissing where this user may not, else FeatureMissing."""
        if socket_path() is not None:
            listener()
        import docker

        with self._asking():
            self._client = docker.from_env(timeout=answer_s)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        import docker.errors
        import requests.exceptions

        try:
            yield
        except docker.errors.APIError as error:
            raise TracerError(
                f"the Docker daemon refuses: {error.explanation or error}", "see its log"
            ) from None
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            ValueError,  # a DOCKER_HOST that is no address
        ) as error:
            raise FeatureMissing(
                f"no Docker daemon answers at {address()}: {_innermost(error)}", _MEND
            ) from None

    def running(self) -> list[dict[str, Any]]:
        """What `docker inspect` knows of every running container."""
        with self._asking():
            found = [self._inspect(entry["Id"]) for entry in self._client.api.containers()]
        return [facts for facts in found if facts is not None]

    def inspect(self, name: str) -> dict[str, Any] | None:
        """What `docker inspect` knows of one container, by its name or id; None: not there."""
        with self._asking():
            return self._inspect(name)

    def _inspect(self, name: str) -> dict[str, Any] | None:
        import docker.errors

        try:
            facts: dict[str, Any] = self._client.api.inspect_container(name)
        except (docker.errors.NotFound, docker.errors.NullResource):
            return None
        return facts

    def names(self) -> list[str]:
        """Names of all containers, those that are stopped among them."""
        with self._asking():
            entries = self._client.api.containers(all=True)
        return sorted(name.lstrip("/") for entry in entries for name in entry["Names"][:1])

    def started_between(self, start: float, end: float) -> dict[str, tuple[str, str]]:
        """Containers started between two times (s since 1970): id to (name, image).

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
    """Why a connection failed, without what each layer above it has to say."""
    reason = error
    while True:
        below = (reason.__cause__, getattr(reason, "reason", None), *reason.args)
        inner = next((part for part in below if isinstance(part, BaseException)), None)
        if inner is None or isinstance(inner, NameError | AttributeError):
            text = getattr(reason, "strerror", None) or str(reason)
            return " ".join(str(text).split())[:200]
        reason = inner
