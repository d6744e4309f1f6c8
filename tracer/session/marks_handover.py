"""Folders of marks that are found during a recording, for the guardian of a killed recorder."""

from __future__ import annotations

import contextlib
import json
import socket
import weakref
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tracer.session.marks_folder import MarksFolder
from tracer.targets import Target

_MOST_BYTES = 64 << 10
"""Most bytes of a message: less than a socket holds by default."""
_MOST_MAPPED = 1000
"""Most new writers told of a folder at once."""


class _Told(NamedTuple):
    """The facts about a folder that were told; each only grows."""

    targets: int = 0
    users: int = 0
    foreign: bool = False
    mapped: int = 0


class Handover:
    """Passes open folders to the guardian, which is forked before they are found.

    They wait in a socket until the guardian collects the marks. What does not fit is lost if the
    recorder is killed.
    """

    def __init__(self) -> None:
        """Makes the socket. Call it before the guardian is forked."""
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._end = weakref.finalize(self, _close, self._ours, self._theirs)
        self._told: dict[int, _Told] = {}

    def knows(self, folders: Iterable[MarksFolder]) -> None:
        """Notes folders that the guardian will know without being told."""
        for folder in folders:
            self._told[folder.fd] = _facts(folder)

    def tell(self, folders: Iterable[MarksFolder], targets: list[Target]) -> None:
        """Passes the folders, and new facts about those that were passed before."""
        for folder in folders:
            facts = _facts(folder)
            if facts == self._told.get(folder.fd):
                continue
            message = {
                "targets": [number for number, t in enumerate(targets) if t in folder.targets],
                "users": sorted(folder.users),
                "foreign": folder.foreign,
                "mapped": sorted(folder.mapped)[:_MOST_MAPPED],
            }
            with contextlib.suppress(OSError):  # the socket is full
                socket.send_fds(self._ours, [json.dumps(message).encode()], [folder.fd])
                self._told[folder.fd] = facts

    def taken(self, targets: list[Target]) -> Iterator[MarksFolder]:
        """Yields the folders that were passed, in the guardian."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, (fd,), _, _ = socket.recv_fds(self._theirs, _MOST_BYTES, 1)
                told = json.loads(data)
                folder = MarksFolder(fd, [targets[n] for n in told["targets"]], told["foreign"])
                folder.users.update(told["users"])
                folder.mapped.update(told["mapped"])
                yield folder

    def close(self) -> None:
        """Closes the socket. Repeated calls do no harm."""
        self._end()


def _facts(folder: MarksFolder) -> _Told:
    return _Told(len(folder.targets), len(folder.users), folder.foreign, len(folder.mapped))


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()
