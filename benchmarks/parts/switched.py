"""Tools that a benchmark can switch on and off within milliseconds, while a job goes on.

A tool that is off leaves the kernel as if it had never been started: its tracepoints have no
probe, its threads do not run. So windows with and without it can follow each other within a
second, closer than the machine's own speed drifts.
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

from probes.catalogue import PROBES
from probes.kernel import tracefs
from probes.schema import Feed
from tracer.store.trace import Trace

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_PIDFD_GETFD = 438
_PERF_ENABLE, _PERF_DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_* of linux/perf_event.h

Spans = list[tuple[bool, int, int]]
"""Windows: whether the tool was on, begin, end (ns of CLOCK_MONOTONIC)."""


class Tool(Protocol):
    """What can be attached to a job, and switched."""

    def attach(self, pid: int, folder: Path) -> None:
        """Get ready, switched off."""

    def on(self) -> None:
        """Record."""

    def off(self) -> None:
        """Record no more, and cost nothing."""

    def detach(self, spans: Spans) -> None:
        """End. Raises SystemExit where the tool did not record in just the windows it was on."""


class Nothing:
    """No tool: what it seems to cost is the machine's own noise."""

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

    Off: its events and the filters by thread are taken from the kernel, its own threads stopped.
    """

    def attach(self, pid: int, folder: Path) -> None:
        """Start it, and switch it off once it traces."""
        only = ["-e", os.environ["TRACER_PROBES"]] if "TRACER_PROBES" in os.environ else []
        self._trace = folder / "x.trace"
        self._tool = subprocess.Popen(
            [*TRACER, "record", *only, "-p", str(pid), "--force", "-o", str(self._trace)],
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
        self._perf_events = _borrowed_perf_events(self._tool.pid)
        self._threads = [
            (file, file.read_text())
            for instance in instances
            for file in (instance / "set_event_pid", instance / "set_event_notrace_pid")
        ]
        if not self._events:
            raise SystemExit("its events are not in tracefs: only ftrace can be switched")
        self.off()

    def on(self) -> None:
        """Its threads first, so that somebody reads what the kernel then writes."""
        self._signal(signal.SIGCONT)
        for file, listed in self._threads:
            if any(word.isdecimal() for word in listed.split()):
                file.write_text(listed)
        for fd in self._perf_events:
            fcntl.ioctl(fd, _PERF_ENABLE, 0)
        for event in self._events:
            event.write_text("1")

    def off(self) -> None:
        """The reverse."""
        for event in self._events:
            event.write_text("0")
        for fd in self._perf_events:
            fcntl.ioctl(fd, _PERF_DISABLE, 0)
        for file, _ in self._threads:
            with file.open("w"):  # opened to be written anew, a list of threads is emptied
                pass
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        recorder = psutil.Process(self._tool.pid)
        for process in (recorder, *recorder.children(recursive=True)):
            process.send_signal(number)

    def detach(self, spans: Spans) -> None:
        """End the recording, and see that it holds calls of each window it was on, no others."""
        self._signal(signal.SIGCONT)
        for fd in self._perf_events:
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


class Perf:
    """`perf record` of the same tracepoints, which has a switch of its own."""

    def attach(self, pid: int, folder: Path) -> None:
        """Start it, switched off."""
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
        # Opened for both, so that opening does not wait for the other end.
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
        """Enable its events."""
        self._say("enable")

    def off(self) -> None:
        """Disable them."""
        self._say("disable")

    def detach(self, spans: Spans) -> None:
        """End it."""
        self._tool.send_signal(signal.SIGINT)
        self._tool.wait(timeout=300)
        os.close(self._control)
        os.close(self._answer)


class Strace:
    """`strace -f`, which can only be attached and detached."""

    def attach(self, pid: int, folder: Path) -> None:
        """Note whom."""
        pids = [part for one in _family(pid) for part in ("-p", str(one))]
        self._command = ["strace", "-f", "-o", str(folder / "strace.txt"), *pids]

    def on(self) -> None:
        """Attach it."""
        self._tool = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        _await_line(self._tool, "attached")

    def off(self) -> None:
        """Detach it."""
        self._tool.send_signal(signal.SIGINT)
        self._tool.communicate(timeout=300)

    def detach(self, spans: Spans) -> None:
        """Nothing: it is."""


TOOLS: dict[str, type[Tool]] = {
    "none": Nothing,
    "tracer": Tracer,
    "perf": Perf,
    "strace": Strace,
}


def here(tool: str) -> bool:
    """Whether this machine has the tool."""
    return tool in ("none", "tracer") or shutil.which(tool) is not None


def _await_line(tool: subprocess.Popen[str], word: str) -> None:
    assert tool.stderr is not None
    while word not in (line := tool.stderr.readline()):
        if not line:
            raise SystemExit(f"no line with {word!r}: the tool did not attach")


def _borrowed_perf_events(pid: int) -> list[int]:
    """Descriptors of ours for the perf events of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.pidfd_open(pid)
    borrowed = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                if str(link.readlink()) != "anon_inode:[perf_event]":
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
