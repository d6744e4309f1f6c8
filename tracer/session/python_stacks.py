"""Looks at the Python stacks of the targets' processes, several times a second.

A thread of its own looks, because a look takes some 30 ms, and the recorder's loop must react to
joining processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tracer.probes.backends import py_spy
from tracer.probes.errors import FeatureMissing
from tracer.probes.proc import read_stat
from tracer.session.marks_folder import own_pid
from tracer.store import left_out
from tracer.store.listed import Lines
from tracer.store.lists import LookFacts
from tracer.store.manifest_parts import PythonStacksFacts
from tracer.store.python_stacks import FILE
from tracer.targets import Target, members_of, threads

PERIOD_S = 0.2
"""Least time in s from one round of looks to the next."""
_REST = 9
"""Least pause after a round, as a multiple of its CPU time: looks take a tenth of a CPU at most."""
_MOST_PROCESSES = 64
_MOST_STACKS = 1 << 16
_TRIES = 3
_CHECKS = 10
"""Times that a program is searched for Python's library; it may load it late."""
_PATIENCE_S = 20.0
_PYTHON = re.compile(r"^(?:python|pypy)[0-9.]*$")
_LIBRARY = re.compile(r"/libpython[0-9.]+[a-z]*\.so")

_Process = tuple[int, int]
"""(pid, start time in clock ticks)"""


class PythonStacks:
    """The looks of one recording; none if they are not wanted, or without py-spy."""

    def __init__(self, wanted: bool, targets: Sequence[Target]) -> None:
        """Finds py-spy if looks are wanted."""
        self.failure: OSError | None = None
        self.refused: FeatureMissing | None = None
        """The reason for which there are no looks, although they are wanted."""
        self._facts: PythonStacksFacts = {}
        self._targets = targets
        self._others: set[int] = set()
        self._cpu_s = 0.0
        self._path = ""
        self._thread: threading.Thread | None = None
        self._go, self._stop = threading.Event(), threading.Event()
        self._checks: dict[tuple[_Process, Path], int] = {}
        self._failed: dict[_Process, int] = {}
        self._numbers: dict[bytes, int] = {}
        """Numbers of the stacks so far, by digest: a stack may be long."""
        self._left_out: dict[str, int] = {}
        self._reasons: set[str] = set()
        try:
            if wanted:
                self._path = py_spy.find_py_spy()
                self._facts = {"file": FILE, "version": py_spy.version(self._path), "cpu_s": 0.0}
        except FeatureMissing as error:
            self.refused = error
        self.taken = wanted and self.refused is None
        """True if the recorder looks at stacks."""

    def start(self, raw: Path) -> None:
        """Makes the file and the thread, which waits for `begin`."""
        if self.taken:
            self._raw = raw
            self._lines = Lines(raw, FILE)
            self._thread = threading.Thread(target=self._run, name="tracer-stacks", daemon=True)
            self._thread.start()

    @property
    def tids(self) -> list[int]:
        """The thread's id, to exclude the thread from the recording."""
        tid = self._thread.native_id if self._thread is not None else None
        return [tid] if tid is not None else []

    @property
    def cpu_s(self) -> float:
        """CPU time in s of py-spy."""
        return self._cpu_s

    def begin(self, companions: Iterable[int]) -> None:
        """Looks from now on, except at processes that record for us."""
        self._others = {os.getpid(), *companions}
        self._go.set()

    def end(self) -> None:
        """Ends the looks and closes the file. Repeated calls do no harm."""
        self._stop.set()
        self._go.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(_PATIENCE_S)
        self._lines.close()
        self._facts["cpu_s"] = round(self._cpu_s, 3)
        left_out.note(self._raw, FILE.partition(".")[0], self._left_out)

    def close(self) -> None:
        """Ends the looks of a recording that has failed."""
        with contextlib.suppress(OSError):
            self.end()

    def describe(self) -> PythonStacksFacts:
        """Returns the manifest's entry."""
        return self._facts

    def _run(self) -> None:
        self._go.wait()
        try:
            while not self._stop.is_set():
                begun, used_s = time.monotonic(), self._cpu_s
                for process in self._processes():
                    if self._stop.is_set():
                        return
                    self._look(process)
                rest_s = _REST * (self._cpu_s - used_s)
                self._stop.wait(max(PERIOD_S - (time.monotonic() - begun), rest_s))
        except OSError as error:
            self.failure = error

    def _look(self, process: _Process) -> None:
        pid = process[0]
        try:
            answer = py_spy.look(self._path, pid)
        except py_spy.NotRead as error:
            self._note_failure(process, str(error))
            return
        self._failed.pop(process, None)
        self._cpu_s += answer.cpu_s
        entries: list[LookFacts] = []
        tids = _tids_here(pid)
        for own_tid, stack in answer.stacks:
            tid = tids.get(own_tid, own_tid)
            digest = hashlib.blake2b(stack.encode(), digest_size=16).digest()
            number = self._numbers.get(digest)
            text = None
            if number is None:
                if len(self._numbers) >= _MOST_STACKS:
                    self._leave_out(f"looks left out: {_MOST_STACKS} stacks are known")
                    continue
                number = self._numbers[digest] = len(self._numbers)
                text = stack
            entries.append((answer.start, answer.end, pid, tid, number, text))
        self._lines.add(entries)

    def _note_failure(self, process: _Process, why: str) -> None:
        stat = read_stat(process[0])
        if stat is None or stat.start_time != process[1] or stat.ended:
            return  # it has ended
        self._failed[process] = self._failed.get(process, 0) + 1
        if self._failed[process] == _TRIES and len(self._reasons) < _MOST_PROCESSES:
            self._reasons.add(why)
            self._leave_out(f"processes left out: {why}")

    def _leave_out(self, what: str) -> None:
        self._left_out[what] = self._left_out.get(what, 0) + 1

    def _processes(self) -> list[_Process]:
        """Returns the targets' processes that run Python, without those that failed too often."""
        found: list[_Process] = []
        for pid in sorted({pid for members in members_of(self._targets) for pid in members}):
            stat = read_stat(pid)
            if stat is None or pid in self._others:
                continue
            process = pid, stat.start_time
            if self._failed.get(process, 0) < _TRIES and self._runs_python(process):
                found.append(process)
        if len(found) > _MOST_PROCESSES:
            self._leave_out(f"rounds with more than {_MOST_PROCESSES} processes")
        return found[:_MOST_PROCESSES]

    def _runs_python(self, process: _Process) -> bool:
        try:
            program = Path(f"/proc/{process[0]}/exe").readlink()
            if _PYTHON.match(program.name):
                return True
            checks = self._checks.get((process, program), 0)
            if checks == _CHECKS:
                return False
            with Path(f"/proc/{process[0]}/maps").open(errors="replace") as maps:
                found = any(_LIBRARY.search(line) for line in maps)
        except OSError:
            return False
        self._checks[process, program] = 0 if found else checks + 1
        return found


def _tids_here(pid: int) -> dict[int, int]:
    """Returns this machine's numbers of a process's threads, by their numbers in its container.

    Python itself keeps the numbers that its pid namespace has. Empty for a process in none of its
    own.
    """
    if own_pid(pid) == pid:
        return {}
    return {own_pid(tid, pid): tid for tid in threads(pid)}
