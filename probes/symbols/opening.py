"""Files of targets, opened by a worker, so that a file server that never answers blocks only it.

The worker has the rights of this process, and reads nothing. It passes an open file directly to the
process that reads it (`reader.py`). This process holds none of the files, because even closing a
file can wait for its server.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from dataclasses import dataclass

from tracer.probes.openat import open_beneath
from tracer.probes.symbols.budget import Budget
from tracer.probes.symbols.reading import UnreadableSymbols, for_reading, shown
from tracer.probes.workers.process import TOO_LATE, Channel, Unanswered, Worker

NUMBER = struct.Struct("<Q")
"""Message that goes with an open file: its number."""
_REQUEST = struct.Struct("<QBI")
_ANSWER = struct.Struct("<iQQIIQq")
_NOT_REGULAR = -1
_FOLLOW, _NO_FOLLOW, _BENEATH = 0, 1, 2


@dataclass(frozen=True)
class Status:
    """The result of `fstat` for an open regular file."""

    device: int
    inode: int
    mode: int
    uid: int
    size: int
    ctime_ns: int


class Opener:
    """An opener of regular files for a reader. Each open file gets the caller's number."""

    def __init__(self, budget: Budget, reader: socket.socket) -> None:
        """Keeps `reader`, the end of a message socket pair that takes the open files."""
        self._budget = budget
        self._reader = reader
        self._worker: Worker | None = None
        self._deaths = 0

    def start(self) -> None:
        """Starts the worker now. Raises Unanswered."""
        if self._worker is None:
            if self._deaths >= self._budget.deaths:
                raise Unanswered(TOO_LATE)
            self._worker = Worker(self._serve, keep=[self._reader.fileno()])

    def open(self, path: bytes, number: int, follow: bool = True) -> Status | None:
        """Opens the file at `path` for the reader as `number`; returns None if it does not exist.

        With `follow` False, a link is refused. Raises UnreadableSymbols, or Unanswered if the file
        system did not answer.
        """
        return self._ask(_FOLLOW if follow else _NO_FOLLOW, path, b"", number)

    def open_below(self, folder: bytes, path: bytes, number: int) -> Status | None:
        """Opens a path below a folder like `open`, but follows no link and enters no other
        mount."""
        return self._ask(_BENEATH, folder, path, number)

    def _ask(self, how: int, path: bytes, below: bytes, number: int) -> Status | None:
        request = _REQUEST.pack(number, how, len(path)) + path + below
        self.start()
        assert self._worker is not None
        try:
            answer = self._worker.ask(request, self._budget.answer_s)
        except Unanswered:
            self._deaths += 1
            self._worker = None
            raise
        failure, *fields = _ANSWER.unpack(answer)
        name = shown(os.path.join(path, below) if below else path)  # noqa: PTH118 names are bytes
        if failure == _NOT_REGULAR:
            raise UnreadableSymbols(f"{name} is not a regular file")
        if failure in (errno.ENOENT, errno.ENOTDIR):
            return None
        if failure:
            raise UnreadableSymbols(f"{name} cannot be opened: {os.strerror(failure)}")
        return Status(*fields)

    def close(self) -> None:
        """Ends the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _serve(self, channel: Channel) -> None:
        """Opens one file after the other; runs in the worker."""
        while (request := channel.receive()) is not None:
            number, how, length = _REQUEST.unpack_from(request)
            names = request[_REQUEST.size :]
            path, below = names[:length], names[length:]
            try:
                fd = _open_below(path, below) if how == _BENEATH else _open(path, how == _FOLLOW)
            except (OSError, ValueError) as error:  # a NUL in a path
                failure = getattr(error, "errno", None) or errno.EINVAL
                channel.send(_ANSWER.pack(failure, *[0] * 6))
                continue
            try:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode):
                    socket.send_fds(self._reader, [NUMBER.pack(number)], [fd])
            finally:
                os.close(fd)
            failure = 0 if stat.S_ISREG(status.st_mode) else _NOT_REGULAR
            channel.send(
                _ANSWER.pack(
                    failure,
                    status.st_dev,
                    status.st_ino,
                    status.st_mode,
                    status.st_uid,
                    status.st_size,
                    status.st_ctime_ns,
                )
            )


def _open(path: bytes, follow: bool) -> int:
    """Opens a regular file for reading, anything else only as a place (O_PATH)."""
    flags = os.O_PATH | os.O_CLOEXEC
    return for_reading(os.open(path, flags if follow else flags | os.O_NOFOLLOW))


def _open_below(folder: bytes, path: bytes) -> int:
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return for_reading(open_beneath(place, path))
    finally:
        os.close(place)
