"""A place in a file system, found by a worker: the way to it may lead to a dead server."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from tracer.probes.workers.process import TOO_LATE, Channel, Unanswered, Worker

_ERROR_BYTES = 4


def open_aside(find: Callable[[], int], seconds: float) -> int:
    """The descriptor that `find` opens (O_PATH), in a process that is given up after a time.

    Raises OSError: that of `find`, ETIMEDOUT, or ECHILD where the process ended.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def serve(channel: Channel) -> None:
            channel.receive()
            try:
                fd = find()
            except OSError as error:
                channel.send((error.errno or errno.EIO).to_bytes(_ERROR_BYTES, "little"))
            else:
                socket.send_fds(theirs, [b"\0"], [fd])
                channel.send(bytes(_ERROR_BYTES))

        worker = Worker(serve, keep=[theirs.fileno()])
        try:
            failure = int.from_bytes(worker.ask(b"", seconds), "little")
        except Unanswered as error:
            failure = errno.ETIMEDOUT if error.why == TOO_LATE else errno.ECHILD
        finally:
            worker.close()
        if failure:
            raise OSError(failure, os.strerror(failure))
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        return fd
