"""Files of targets, opened by a worker: a file server that never answers holds up nobody else.

The worker has the rights of this process, and reads nothing. It hands an open file straight to the
process that reads it (`reader.py`); this one holds none of them, because even the close of a file
can wait for its server.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from dataclasses import dataclass

from probes.openat import open_beneath
from probes.symbols.budget import Budget
from probes.symbols.reading import UnreadableSymbols, for_reading, shown
from probes.workers.process import TOO_LATE, Channel, Unanswered, Worker

NUMBER = struct.Struct("<Q")
"""Goes with an open file: what both sides call it."""
_REQUEST = struct.Struct("<QBI")
_ANSWER = struct.Struct("<iQQIIQq")
_NOT_REGULAR = -1
_FOLLOW, _NO_FOLLOW, _BENEATH = 0, 1, 2


@dataclass(frozen=True)
class Status:
    """The answer of `fstat` for an open regular file."""

    device: int
    inode: int
    mode: int
    uid: int
    size: int
    ctime_ns: int


class Opener:
    """Opens regular files for a reader, by paths, each with a number of its own."""

    def __init__(self, budget: Budget, reader: socket.socket) -> None:
        """Open files go to `reader`, one end of a pair of sockets that keep messages apart."""
        self._budget = budget
        self._reader = reader
        self._worker: Worker | None = None
        self._deaths = 0

    def start(self) -> None:
        """Start the worker now. Raises Unanswered."""
        if self._worker is None:
            if self._deaths >= self._budget.deaths:
                raise Unanswered(TOO_LATE)
            self._worker = Worker(self._serve, keep=[self._reader.fileno()])

    def open(self, path: bytes, number: int, follow: bool = True) -> Status | None:
        """Hand the file at `path` to the reader as `number`; None where there is none.

        With `follow` False a link is refused. Raises UnreadableSymbols, or Unanswered where the
        file system did not answer.
        """
        return self._ask(_FOLLOW if follow else _NO_FOLLOW, path, b"", number)

    def open_below(self, folder: bytes, path: bytes, number: int) -> Status | None:
        """The same for a path below a folder, through no link and into no other mount."""
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
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _serve(self, channel: Channel) -> None:
        """Open one file after the other; runs in the worker."""
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
    """A descriptor to read from; of what is not a regular file, one of its place alone."""
    flags = os.O_PATH | os.O_CLOEXEC
    return for_reading(os.open(path, flags if follow else flags | os.O_NOFOLLOW))


def _open_below(folder: bytes, path: bytes) -> int:
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return for_reading(open_beneath(place, path))
    finally:
        os.close(place)
