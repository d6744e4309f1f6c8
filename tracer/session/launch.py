"""A command that is forked but waits, before its exec, until tracing is on.

The recorder forks the child before it has threads. The child blocks on a pipe. If the recorder
dies, the pipe closes and the child ends too, so no stopped process remains.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence

from tracer.probes.capabilities import clear_ambient
from tracer.probes.errors import UsageError
from tracer.session.signals import HANDLED

_NOT_STARTED = 127


class Launch:
    """A command, forked and waiting."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Forks. Raises UsageError if the program does not exist."""
        program = shutil.which(command[0], path=environment.get("PATH"))
        if program is None:
            raise UsageError(
                f"there is no program {command[0]!r} that can be executed",
                "give its path, and check its execute permission",
            )
        self.command = list(command)
        self._go_read, self._go_write = os.pipe2(os.O_CLOEXEC)
        self._error_read, self._error_write = os.pipe2(os.O_CLOEXEC)
        sys.stdout.flush()
        sys.stderr.flush()
        # The recorder raises its limit of open files; the child gets the original limit.
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.pid = os.fork()
        if self.pid == 0:
            self._child(program, environment)
        os.close(self._go_read)
        os.close(self._error_write)
        self.status: int | None = None
        self.usage: resource.struct_rusage | None = None
        """Resources that the command and its children used, once it has ended."""

    def _child(self, program: str, environment: Mapping[str, str]) -> None:
        """Waits for `go`, then becomes the command. Never returns."""
        try:
            os.close(self._go_write)
            os.close(self._error_read)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            for number in HANDLED:
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                    signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
            clear_ambient()  # they are the recorder's
            if os.read(self._go_read, 1) == b"":
                os._exit(_NOT_STARTED)
            try:
                os.execve(program, self.command, dict(environment))
            except OSError as error:
                os.write(self._error_write, str(error.errno).encode())
        finally:
            os._exit(_NOT_STARTED)

    @property
    def started(self) -> bool:
        """True after `go`."""
        return self._go_write < 0

    def go(self) -> None:
        """Lets the command run. Raises UsageError if its exec fails."""
        os.write(self._go_write, b"g")
        os.close(self._go_write)
        self._go_write = -1
        failure = os.read(self._error_read, 16)
        os.close(self._error_read)
        self._error_read = -1
        if failure:
            self.wait()
            number = int(failure)
            mend = (
                "a script needs a #! line"
                if number == errno.ENOEXEC
                else "check its permissions and its interpreter"
            )
            raise UsageError(f"{self.command[0]} could not be run: {os.strerror(number)}", mend)

    def forget(self) -> None:
        """Closes the pipes in a process forked from the recorder."""
        for fd in (self._go_write, self._error_read):
            if fd >= 0:
                os.close(fd)

    def poll(self) -> int | None:
        """Returns the exit status as a shell gives it, or None while the command runs."""
        if self.status is None:
            self._reap(os.WNOHANG)
        return self.status

    def wait(self) -> int:
        """Waits for the end. Returns the exit status as a shell gives it."""
        while self.status is None:
            self._reap(0)
        return self.status

    def _reap(self, options: int) -> None:
        pid, status, usage = os.wait4(self.pid, options)
        if pid == 0:
            return
        self.usage = usage
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Sends a signal, if the command still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def abandon(self) -> None:
        """Ends the command without waiting for its clean-up. Harmless if it has ended."""
        if self._error_read >= 0:
            os.close(self._error_read)
            self._error_read = -1
        if self._go_write >= 0:
            os.close(self._go_write)
            self._go_write = -1
            self.wait()
        else:
            self.signal(signal.SIGTERM)
