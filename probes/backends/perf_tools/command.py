"""The `perf` command: found, asked what it knows, started, waited for and ended.

perf is started around a program that waits for the end of its standard input, which is a pipe of
ours. When that pipe closes, by us or because we were killed, the program ends, perf ends in order
and its file is complete: no perf outlives its recorder. Events are off until perf is told by its
control pipe to let them in.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tracer.probes.errors import (
    FeatureMissing,
    PermissionMissing,
    TargetGone,
    TracerError,
    UsageError,
)

MEND = "apt-get install linux-perf"
_WAITER = "cat"
"""Ends when its standard input does."""
_READY_S = 60.0
_ACK_S = 10.0
_END_S = 60.0
_ASK_S = 30.0
_STDERR_BYTES = 64 << 10


@dataclass(frozen=True)
class Perf:
    """An installed perf, and what it can do here."""

    path: str
    version: str

    def knows(self, command: str, option: str) -> bool:
        """Returns whether `perf COMMAND` has this option, according to its own help."""
        return option in _options(self.path, command)

    def require(self, command: str, *options: str) -> None:
        """FeatureMissing where `perf COMMAND` lacks one of these options."""
        for option in options:
            if not self.knows(command, option):
                raise FeatureMissing(
                    f"{self.path} ({self.version}) has no `perf {command} {option}`",
                    f"install a newer one: {MEND}",
                )

    def try_options(self, arguments: Sequence[str]) -> None:
        """Has perf parse a command line without running it; raises the error that `failure`
        returns."""
        ended = _ask([self.path, *arguments])
        if ended.returncode:
            raise failure(arguments[0], ended.stderr)

    def counts(self, event: str) -> bool:
        """Returns whether this machine can count an event."""
        ended = _ask([self.path, "stat", "-x", ";", "-e", event, "--", "true"])
        return ended.returncode == 0 and "<not supported>" not in ended.stderr


def find_perf() -> Perf:
    """The perf of this machine. FeatureMissing where there is none, or none that runs."""
    path = shutil.which("perf")
    if path is None:
        raise FeatureMissing("there is no perf command", MEND)
    return _asked(path)


@cache
def _asked(path: str) -> Perf:
    ended = _ask([path, "version"])
    found = re.search(r"perf version (\S+)", ended.stdout)
    if ended.returncode or found is None:
        # Some distributions have a script there that looks for a perf of the running kernel.
        raise FeatureMissing(f"{path} does not run: {_first_line(ended.stderr)}", MEND)
    return Perf(path, found.group(1))


@cache
def _options(path: str, command: str) -> frozenset[str]:
    ended = _ask([path, command, "-h"])
    said = ended.stdout + ended.stderr
    long = re.findall(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", said, re.MULTILINE)
    short = re.findall(r"^\s+(-\w)\b", said, re.MULTILINE)
    return frozenset([*long, *short])


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            env=_environment(),
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FeatureMissing(f"{command[0]} does not run: {error}", MEND) from None


def _environment() -> dict[str, str]:
    """Numbers with a point, and no habits from the user's perf configuration."""
    return {**os.environ, "LC_ALL": "C", "PERF_CONFIG": os.devnull}


class Running:
    """A perf that runs with its events off, then on, then ends."""

    def __init__(
        self, perf: Perf, arguments: Sequence[str], output: int, keep: Sequence[int] = ()
    ) -> None:
        """Start `perf ARGUMENTS`, its standard output going to `output`, without waiting for it.

        `keep` are further open files that perf inherits.
        """
        self.name = arguments[0]
        self._said = ""
        self._ends = -1
        self.cpu_s = 0.0
        """CPU time that it used, once it has ended."""
        control, self._control = os.pipe2(os.O_CLOEXEC)
        self._acks, acks = os.pipe2(os.O_CLOEXEC)
        self._errors = os.memfd_create("perf-stderr", os.MFD_CLOEXEC)
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [
                    perf.path,
                    *arguments,
                    # Events are off until they are let in.
                    "-D",
                    "-1",
                    "--control",
                    f"fd:{control},{acks}",
                    "--",
                    _WAITER,
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=self._errors,
                pass_fds=(control, acks, *keep),
                env=_environment(),
                # A terminal's Ctrl-C is for the recorder, which then ends perf.
                process_group=0,
            )
        except OSError as error:
            self._close()
            raise FeatureMissing(f"{perf.path} does not run: {error.strerror}", MEND) from None
        finally:
            os.close(control)
            os.close(acks)
        # The waiter has perf's end of the answers, too: that it is open tells nothing of perf.
        self._ends = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """perf's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while perf runs."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until every event is open and only waits to be let in; raises what kept it."""
        # Off they are already: it is the answer that is wanted.
        if not self._command("disable", _READY_S):
            self._end()
            raise failure(self.name, self._said)

    def enable(self) -> None:
        """Starts recording events."""
        self._command("enable", _ACK_S)

    def disable(self) -> None:
        """Stops recording events."""
        self._command("disable", _ACK_S)

    def stop(self) -> str | None:
        """Has perf write its data and end; returns the reason if something failed."""
        alive = self.alive
        self._end()
        code = self._process.returncode
        if alive and code == 0:
            return None
        return _first_line(self._said) or f"perf ended with status {code}"

    def close(self) -> None:
        """End perf, whatever it has not written yet; more than once does no harm."""
        if self.alive:
            self._process.terminate()
        if self._control >= 0:
            self._end()

    def _command(self, command: str, seconds: float) -> bool:
        """Gives perf a command and waits until it is done; returns False if perf has not done
        it."""
        if self._control < 0:
            return False
        try:
            os.write(self._control, f"{command}\n".encode())
        except BrokenPipeError:
            return False
        deadline = time.monotonic() + seconds
        answer = b""
        while b"ack" not in answer:
            left = deadline - time.monotonic()
            readable = select.select([self._acks, self._ends], [], [], max(0.0, left))[0]
            if self._acks not in readable:  # perf has ended, or takes too long
                return False
            part = os.read(self._acks, 64)
            if not part:
                return False
            answer += part
        return True

    def _end(self) -> None:
        assert self._process.stdin is not None
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for number in (None, signal.SIGINT, signal.SIGKILL):
            if number is not None:
                self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                break
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self._close()

    def _close(self) -> None:
        if self._control < 0:
            return
        said = os.pread(self._errors, _STDERR_BYTES, 0)
        self._said = said.decode("utf-8", "backslashreplace")
        for fd in (self._control, self._acks, self._errors, self._ends):
            if fd >= 0:
                os.close(fd)
        self._control = -1


_CHATTER = re.compile(r"^(Events (en|dis)abled|\[ perf |Woken up|WARNING:|Error:?\s*$|\s*$)")


def _first_line(text: str) -> str:
    """The first line in which perf says something."""
    for line in text.splitlines():
        if not _CHATTER.match(line):
            return line.strip()[:300]
    return ""


def failure(name: str, said: str) -> TracerError:
    """The error that perf's own words amount to."""
    line = _first_line(said) or "it said nothing"
    if re.search(r"perf_event_paranoid|[Pp]ermission|Operation not permitted", said):
        return PermissionMissing(
            f"perf {name} is not allowed: {line}",
            "run as root (sudo tracer ...), or: sysctl kernel.perf_event_paranoid=-1",
        )
    if unknown := re.search(r"event syntax error: '(.*)'", said):
        return UsageError(
            f"perf knows no event like {unknown.group(1)!r} here", "see: tracer list, perf list"
        )
    if "No such process" in said:
        return TargetGone(f"perf {name} came too late: {line}", "start it and record again")
    if "Too many open files" in said:
        return TracerError(f"perf {name}: {line}", "allow more: ulimit -n 65536")
    return TracerError(f"perf {name} did not start: {line}", f"see: perf {name} -h")
