"""Tools that a benchmark can switch on and off within milliseconds, while a job runs.

A tool that is off leaves the kernel as if it had never been started: its tracepoints have no
probe, its threads do not run. Windows with and without it can therefore alternate within a
second, faster than the machine's speed drifts.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import psutil

from tracer.probes.backends.own_bpf.kernel import attach_raw
from tracer.probes.backends.perf_events.attributes import DISABLE, ENABLE
from tracer.probes.catalogue import PROBES
from tracer.probes.kernel import tracefs
from tracer.probes.schema import Feed
from tracer.store.trace import Trace

_MAIN = "from tracer.cli.main import main; main()"
TRACER = [sys.executable, "-c", _MAIN]
_LETS_ATTACH = """
import os
from tracer.probes.backends.own_bpf import backend
backend.attach_raw = lambda program: os.eventfd(0)
"""
"""The recorder loads its programs, and the benchmark attaches them instead: no other process could
detach them again."""
_PIDFD_GETFD = 438

_READ_S = 0.15
"""Seconds in which the threads read the events of a window."""

Spans = list[tuple[bool, int, int]]
"""Windows: (whether the tool was on, begin, end), in ns of CLOCK_MONOTONIC."""


class Tool(Protocol):
    """A tool that can be attached to a job, and switched on and off."""

    def attach(self, pid: int, folder: Path) -> None:
        """Attaches the tool, switched off."""

    def on(self) -> None:
        """Record."""

    def off(self) -> None:
        """Stops recording, so that the tool costs nothing."""

    def detach(self, spans: Spans) -> None:
        """Ends the tool. Raises SystemExit unless it recorded in exactly the windows it was on."""


class Nothing:
    """No tool: its ratio is the machine's own noise."""

    def attach(self, pid: int, folder: Path) -> None:
        """Nothing."""

    def on(self) -> None:
        """Nothing."""

    def off(self) -> None:
        """Nothing."""

    def detach(self, spans: Spans) -> None:
        """Nothing."""


class Tracer:
    """`tracer record`, with its full default recording or the probes of TRACER_PROBES.

    Off: its events, thread filters and programs are removed from the kernel's tracepoints, and its
    threads are stopped.
    """

    probes = os.environ.get("TRACER_PROBES", "")
    more: tuple[str, ...] = ()

    def attach(self, pid: int, folder: Path) -> None:
        """Starts it, and switches it off once it traces."""
        only = ["-e", self.probes] if self.probes else []
        self._trace = folder / "x.trace"
        self._tool = subprocess.Popen(
            [
                *[sys.executable, "-c", _LETS_ATTACH + _MAIN],
                "record",
                *only,
                *self.more,
                "-p",
                str(pid),
                "--force",
                "-o",
                str(self._trace),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        _await_line(self._tool, "Tracing")
        time.sleep(0.5)
        instances = sorted((tracefs() / "instances").glob(f"tracer-{self._tool.pid}-*"))
        self._events = [
            instance / "events" / name.replace(":", "/") / "enable"
            for instance in instances
            for name in (instance / "set_event").read_text().split()
        ]
        # A trigger of an event works although the event is switched off.
        self._triggers = [
            (file, text)
            for file in (enable.with_name("trigger") for enable in self._events)
            if (text := file.read_text().strip()) and not text.startswith("#")
        ]
        self._perf_events = _borrowed(self._tool.pid, "[perf_event]")
        self._programs = _borrowed(self._tool.pid, "bpf-prog")
        self._attached: list[int] = []
        self._threads = [
            (file, file.read_text())
            for instance in instances
            for file in (instance / "set_event_pid", instance / "set_event_notrace_pid")
        ]
        if not self._events:
            raise SystemExit("its events are not in tracefs: only ftrace events can be switched")
        self.off()

    def on(self) -> None:
        """Resumes its threads before the events, so that they read the kernel's buffers."""
        self._signal(signal.SIGCONT)
        for file, listed in self._threads:
            if any(word.isdecimal() for word in listed.split()):
                file.write_text(listed)
        for fd in self._perf_events:
            fcntl.ioctl(fd, ENABLE, 0)
        for file, text in self._triggers:
            file.write_text(text.replace(":unlimited", ""))
        self._attached = [attach_raw(program) for program in self._programs]
        for event in self._events:
            event.write_text("1")

    def off(self) -> None:
        """Removes the events, then stops the threads."""
        for event in self._events:
            event.write_text("0")
        for fd in self._attached:
            os.close(fd)
        self._attached = []
        for file, _ in self._triggers:
            file.write_text("!stacktrace")
        for fd in self._perf_events:
            fcntl.ioctl(fd, DISABLE, 0)
        for file, _ in self._threads:
            with file.open("w"):  # opening a thread list for writing with truncation empties it
                pass
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        recorder = psutil.Process(self._tool.pid)
        for process in (recorder, *recorder.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # a look of py-spy, and it is over
                process.send_signal(number)

    def detach(self, spans: Spans) -> None:
        """Ends the recording; checks that it has calls of every window it was on, and no others."""
        self._signal(signal.SIGCONT)
        for fd in (*self._perf_events, *self._programs):
            os.close(fd)
        self._tool.send_signal(signal.SIGINT)
        self._tool.communicate(timeout=300)
        with Trace(self._trace) as trace:
            if "syscalls" not in trace.tables:
                return
            for was_on, begin, end in spans:
                query = "SELECT count(*) FROM syscalls WHERE ts BETWEEN ? AND ?"
                (calls,) = trace.connection.execute(query, [begin, end]).fetchone() or (0,)
                if (calls > 0) != was_on:
                    state = "on" if was_on else "off"
                    raise SystemExit(f"{calls} calls recorded while switched {state}")


class Events(Tracer):
    """Events without the recorder's threads, which read the kernel's buffers after each window."""

    def on(self) -> None:
        """Switches the events on, and stops the threads."""
        super().on()
        self._signal(signal.SIGSTOP)

    def off(self) -> None:
        """Switches the events off, and lets the threads read them."""
        super().off()
        self._signal(signal.SIGCONT)
        time.sleep(_READ_S)
        self._signal(signal.SIGSTOP)


class Recorder(Tracer):
    """Threads of the recorder without events: the samples, and buffers that stay empty."""

    def on(self) -> None:
        """Resumes the threads."""
        self._signal(signal.SIGCONT)

    def detach(self, spans: Spans) -> None:
        """Ends the recording; checks that it has calls of no window."""
        super().detach([(False, begin, end) for _, begin, end in spans])


class Ftrace(Tracer):
    """`tracer record --backend ftrace`: system calls by ftrace, too."""

    more = ("--backend", "ftrace")


class WithScheduler(Tracer):
    """`tracer record` with the default probes and the probe `sched`, for `tracer explain`."""

    probes = "default,sched"


class WithStacks(WithScheduler):
    """The same with the stacks of waits, of the kernel and of Python."""

    more = ("--stacks",)


class Perf:
    """`perf record` of the same tracepoints, which has its own switch."""

    def attach(self, pid: int, folder: Path) -> None:
        """Starts it, switched off."""
        events = [
            part
            for probe in PROBES.values()
            for event in probe.events
            if event.feed is Feed.TRACEPOINT and _exists(event.name)
            for part in ("-e", event.name)
        ]
        control, answer = folder / "perf.control", folder / "perf.answer"
        for pipe in (control, answer):
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
        # Opened for reading and writing, so that opening does not wait for the other end.
        self._control, self._answer = (os.open(pipe, os.O_RDWR) for pipe in (control, answer))
        self._tool = subprocess.Popen(
            [
                *["perf", "record", "-q", "-D", "-1", "--control", f"fifo:{control},{answer}"],
                *["-o", str(folder / "perf.data"), *events],
                *["-p", ",".join(map(str, _family(pid)))],
            ],
            stderr=subprocess.DEVNULL,
        )
        self._say("ping")

    def _say(self, word: str) -> None:
        os.write(self._control, f"{word}\n".encode())
        os.read(self._answer, 16)  # "ack", once it is done

    def on(self) -> None:
        """Enables its events."""
        self._say("enable")

    def off(self) -> None:
        """Disables its events."""
        self._say("disable")

    def detach(self, spans: Spans) -> None:
        """Ends it."""
        self._tool.send_signal(signal.SIGINT)
        self._tool.wait(timeout=300)
        os.close(self._control)
        os.close(self._answer)


class Strace:
    """`strace -f`, which can only be attached and detached."""

    def attach(self, pid: int, folder: Path) -> None:
        """Stores the process to attach to."""
        pids = [part for one in _family(pid) for part in ("-p", str(one))]
        self._command = ["strace", "-f", "-o", str(folder / "strace.txt"), *pids]

    def on(self) -> None:
        """Attaches it."""
        self._tool = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        _await_line(self._tool, "attached")

    def off(self) -> None:
        """Detaches it."""
        self._tool.send_signal(signal.SIGINT)
        self._tool.communicate(timeout=300)

    def detach(self, spans: Spans) -> None:
        """Does nothing: it is already detached."""


TOOLS: dict[str, type[Tool]] = {
    "none": Nothing,
    "tracer": Tracer,
    "events": Events,
    "recorder": Recorder,
    "ftrace": Ftrace,
    "sched": WithScheduler,
    "stacks": WithStacks,
    "perf": Perf,
    "strace": Strace,
}


def here(tool: str) -> bool:
    """Returns whether this machine has the tool."""
    return tool in TOOLS.keys() - {"perf", "strace"} or shutil.which(tool) is not None


def _await_line(tool: subprocess.Popen[str], word: str) -> None:
    assert tool.stderr is not None
    while word not in (line := tool.stderr.readline()):
        if not line:
            raise SystemExit(f"no line with {word!r}: the tool did not attach")


def _borrowed(pid: int, what: str) -> list[int]:
    """Returns our own descriptors of what another process holds of this kind."""
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.pidfd_open(pid)
    borrowed = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                if str(link.readlink()) != f"anon_inode:{what}":
                    continue
                borrowed.append(libc.syscall(_PIDFD_GETFD, other, int(link.name), 0))
    finally:
        os.close(other)
    if -1 in borrowed:
        raise SystemExit(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    return borrowed


def _family(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def _exists(event: str) -> bool:
    return (tracefs() / "events" / event.replace(":", "/")).is_dir()
