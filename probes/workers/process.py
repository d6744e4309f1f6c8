"""A worker: a process forked from this one, asked by messages, and ended if it does not answer."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import NoReturn

MAX_MESSAGE = 1 << 26
"""Bytes of a request or an answer; more is no answer."""

TOO_LATE = "no answer in time"
TOO_LONG = "too much processor time"
"""The reason why a worker did not answer: it was given up, or its limit of processor time was
reached."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SECONDS_TO_END = 0.5


class Unanswered(Exception):
    """A worker gave no answer, and is no more; `why` in a few words."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Worker:
    """A process that runs `serve` until it is closed, killed, or this process ends.

    cpu_s  processor time that it took; known once it has ended
    """

    def __init__(self, serve: Callable[[Channel], None], keep: Collection[int] = ()) -> None:
        """Fork. The worker has no descriptors but its channel and those of `keep`.

        `serve` may import nothing once it is confined, and uses no locks of other threads. Raises
        Unanswered where there can be no process.
        """
        self.cpu_s = 0.0
        self._socket, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Python 3.12 warns wherever numpy's idle threads are: nothing of theirs is used here.
            warnings.simplefilter("ignore", DeprecationWarning)
            # Python prints a traceback if Ctrl-C interrupts its work around a fork.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self.pid = os.fork()
            except OSError as error:
                self._socket.close()
                theirs.close()
                raise Unanswered(f"no process can be started: {error.strerror}") from None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.pid == 0:
            _run(serve, theirs, keep)
        theirs.close()
        self._end = weakref.finalize(self, _abandon, self._socket, self.pid, os.getpid())

    def ask(self, request: bytes, seconds: float) -> bytes:
        """The answer to a request. Raises Unanswered; the worker has ended then."""
        (answer,) = self.answers(request, 1, seconds)
        return answer

    def answers(self, request: bytes, count: int, seconds: float) -> Iterator[bytes]:
        """Yields `count` answers to a request, as they come, all within `seconds`.

        Raises Unanswered where one does not come; the worker has ended then.
        """
        deadline = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(len(request).to_bytes(4, "little") + request)
            for _ in range(count):
                size = int.from_bytes(self._receive(4, deadline), "little")
                if size > MAX_MESSAGE:
                    self.close()
                    raise Unanswered("its answer cannot be read")
                yield self._receive(size, deadline)
        except TimeoutError:
            self.close()
            raise Unanswered(TOO_LATE) from None
        except OSError:
            raise Unanswered(self._reason()) from None

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError
            view = view[count:]
        return bytes(data)

    def _reason(self) -> str:
        """Returns the reason why the worker has ended."""
        status = self.close(wait_first=True)
        if status is None or not os.WIFSIGNALED(status):
            return "its process ended"
        number = os.WTERMSIG(status)
        if number in (signal.SIGXCPU, signal.SIGPROF):
            return TOO_LONG
        return f"its process died of signal {number}"

    def close(self, wait_first: bool = False) -> int | None:
        """End it, more than once without harm; its status, or None where it is not known.

        What hangs in the kernel, on a file server that does not answer, is left there.
        """
        if not self._end.detach():
            return None
        self._socket.close()
        status, self.cpu_s = _end(self.pid, wait_first)
        return status


class Channel:
    """A worker's end of the messages."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours

    def receive(self) -> bytes | None:
        """The next request; None where there will be none."""
        head = self._read(4)
        return None if head is None else self._read(int.from_bytes(head, "little"))

    def send(self, answer: bytes) -> None:
        """Answer the request."""
        self._socket.sendall(len(answer).to_bytes(4, "little") + answer)

    def _read(self, size: int) -> bytes | None:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                return None
            view = view[count:]
        return bytes(data)


def _run(
    serve: Callable[[Channel], None], theirs: socket.socket, keep: Collection[int]
) -> NoReturn:
    """Be the worker."""
    try:
        for number in _IGNORED:  # a terminal's Ctrl-C is the other process's to handle
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        _close_all_but({theirs.fileno(), *keep})
        gc.freeze()  # what was there stays shared
        serve(Channel(theirs))
        os._exit(0)
    except BaseException:  # noqa: BLE001 whatever it is, it must not go on as the other process
        os._exit(1)


def _close_all_but(keep: Collection[int]) -> None:
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _end(pid: int, wait_first: bool = False) -> tuple[int | None, float]:
    """End a child; its status and processor time, (None, 0.0) where it does not end."""
    # One that closed its channel is about to end by itself, and says why.
    return (wait_first and _wait(pid)) or _kill(pid) or (None, 0.0)


def _kill(pid: int) -> tuple[int, float] | None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return _wait(pid)


def _wait(pid: int) -> tuple[int, float] | None:
    """Status and processor time of a child that ends soon, else None."""
    deadline = time.monotonic() + _SECONDS_TO_END
    pause = 0.0001
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                return status, usage.ru_utime + usage.ru_stime
            if time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause *= 2
    return None


def _abandon(channel: socket.socket, pid: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork of the owner has no such child
        channel.close()
        _end(pid)
