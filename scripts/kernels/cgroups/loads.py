"""The loads in cgroups, each of which makes known numbers of events.

    python loads.py JOB.json    wait in cgroups for the recording, then run one load after the other

None of them is a child of the recorder: only its cgroup makes a process a target. Needs only
Python's standard library.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
LIMIT, HIGH = 48 * MIB, 32 * MIB
"""memory.max and memory.high of the cgroups of `reading`."""
TIMES = 3
"""Size of the file that is read, in limits."""
PASSES = 2
GREED = 4
"""Memory that a process asks for, in limits."""
QUOTA_US, PERIOD_US = 20_000, 100_000
SPIN_S = 4.0
IN_CHILD, BACK, BELOW, OUT, KILLED = 9_973, 1_009, 503, 307, 4_001
"""Calls in a cgroup made meanwhile, after a return to another one, in a cgroup two levels below,
outside, and of a process that `cgroup.kill` ends."""

Said = dict[str, Any]


def enter(cgroup: str) -> None:
    """Moves this process into a cgroup."""
    Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))


def reading(cgroup: str, path: str) -> Said:
    """Reads a file that the cgroup cannot hold, again and again."""
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    for at in [*range(0, size, MIB)] * PASSES:
        os.pread(fd, MIB, at)
    return {"size": size}


def greedy(cgroup: str) -> Said:
    """Has a child ask for more memory than the cgroup may use."""
    pid = os.fork()
    if pid == 0:
        memory = mmap.mmap(-1, GREED * LIMIT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return {"victim": pid, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def spinning(cgroup: str) -> Said:
    """Takes all the CPU time that it gets."""
    told: Said = {"before": Path(cgroup, "cpu.stat").read_text(), "begun": time.monotonic_ns()}
    end = time.monotonic() + SPIN_S
    while time.monotonic() < end:
        pass
    ended = time.monotonic_ns()
    return {**told, "ended": ended, "after": Path(cgroup, "cpu.stat").read_text()}


def moving(cgroup: str, members: str) -> Said:
    """Goes in and out of cgroups that are made, and removed, during the recording."""
    top, outside = Path(cgroup), "/sys/fs/cgroup"
    child, other = top / "child", top / "other"
    below = other / "below"

    def calls(count: int) -> None:
        for _ in range(count):
            os.times()

    calls(OUT)
    child.mkdir()
    enter(str(child))
    _wait_for(lambda: _is_listed(os.getpid(), members))
    calls(IN_CHILD)
    enter(outside)
    child.rmdir()
    calls(OUT)
    below.mkdir(parents=True)
    enter(cgroup)
    calls(BACK)
    enter(str(below))
    calls(BELOW)
    enter(outside)
    below.rmdir()
    other.rmdir()
    calls(OUT)
    return {}


def _is_listed(pid: int, members: str) -> bool:
    """Returns whether the recorder follows a process that has joined a target."""
    whole, _, _ = Path(members).read_text().rpartition("\n")
    return any(pid in json.loads(line) for line in whole.splitlines())


def ended(cgroup: str) -> Said:
    """Makes calls, and is killed together with a child by its cgroup."""
    pid, kill = os.fork(), Path(cgroup, "cgroup.kill")
    if pid:
        for _ in range(KILLED):
            os.times()
        if kill.exists():
            kill.write_text("1")
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
    return {}


LOADS: dict[str, Callable[..., Said]] = {
    load.__name__: load for load in (reading, greedy, spinning, moving, ended)
}


def _wait_for(happened: Callable[[], bool]) -> None:
    while not happened():
        time.sleep(0.05)


class Waiting:
    """A load in a child process, which waits in its cgroup until it is told to begin."""

    def __init__(self, function: str, home: str | None, arguments: list[str]) -> None:
        """Starts it in the cgroup `home`; None: in that of this process."""
        begin, self._begin = os.pipe()
        self._said, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self._begin)  # or else this process would keep the pipe open
                if home is not None:
                    enter(home)
                os.write(say, b"\n")
                os.read(begin, 1)
                os.write(say, json.dumps(LOADS[function](*arguments)).encode())
                status = 0
            except Exception as error:  # noqa: BLE001 the parent hands the error over
                os.write(say, json.dumps({"error": repr(error)}).encode())
            finally:
                os._exit(status)
        os.close(begin)
        os.close(say)
        os.read(self._said, 1)

    def ran(self) -> dict[str, Any]:
        """Runs the load; returns what is known of it (`facts.Load`)."""
        os.write(self._begin, b"\n")
        with os.fdopen(self._said) as pipe:
            said = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        status = os.waitstatus_to_exitcode(status)
        return {"pid": self.pid, "status": status, "said": json.loads(said or "{}")}


def main() -> None:
    """Runs the loads of a job.

    Its keys: ran, ready, go (files), loads ({NAME: [FUNCTION, CGROUP or null, ARGUMENT, ...]}).
    """
    job = json.loads(Path(sys.argv[1]).read_text())
    waiting = {
        name: Waiting(function, home, arguments)
        for name, (function, home, *arguments) in job["loads"].items()
    }
    Path(job["ready"]).touch()
    _wait_for(Path(job["go"]).exists)
    ran = {name: load.ran() for name, load in waiting.items()}
    partial = Path(job["ran"] + ".partial")
    partial.write_text(json.dumps(ran))
    partial.rename(job["ran"])


if __name__ == "__main__":
    main()
