"""Samples the machine and the targets periodically and appends the values to a file of the trace.

A separate thread reads: the recorder's loop must react to joining processes, and a reader that
never answers must not delay the begin or the end of a recording. Readers of the machine and of
folders run in processes of their own (`aside`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tracer.probes.backends.drain import write_all
from tracer.probes.errors import UsageError
from tracer.probes.sampler import processes
from tracer.probes.sampler.catalogue import find_readers
from tracer.probes.sampler.cgroup import CgroupReader
from tracer.probes.sampler.limits import Limits
from tracer.probes.sampler.processes import Followed, Processes
from tracer.probes.sampler.reading import NotAvailable, Reader, Reading
from tracer.probes.sampler.residency import Residency
from tracer.session.aside import Aside
from tracer.session.limits import TargetLimits
from tracer.store.checked import encoded
from tracer.store.files import create
from tracer.store.manifest_parts import Sampling
from tracer.targets import Target
from tracer.targets.cgroups import Cgroup
from tracer.targets.tree import ProcessTree

MOST_HZ = 100.0
_MACHINE = -1
_PATIENCE_S = 20.0
"""Time in s without progress after which the recorder abandons the thread."""
_LOOK_S = 0.05
_ASIDE = "readers of the machine"


class Sampler:
    """The samples of one recording: one at `begin`, one at `end`, and others at a rate."""

    def __init__(self, path: Path, targets: list[Target], hz: float, folders: list[Path]) -> None:
        """Makes the reading processes, before there is anything that they could inherit.

        With `hz` 0, makes none.
        """
        self.failure: OSError | None = None
        self.written = 0
        self._path = path
        self._targets = targets
        self._hz = hz
        self._usage: resource.struct_rusage | None = None
        self._cpu_s = 0.0
        self._asides: list[Aside] = []
        self._missing: dict[str, str] = {}
        self._limits: list[TargetLimits] = []
        self._thread: threading.Thread | None = None
        self.left_out: dict[str, int] = {}
        """Sentences for `store.left_out`, once the recording has ended."""
        self._others = {os.getpid()}
        self._followed: Followed | None = None
        self._asked = Processes.name
        self._answers = 0
        if not hz:
            return
        self._asides.append(Aside("machine", lambda still_there: find_readers()))
        if folders:
            self._asides.append(Aside(Residency.name, partial(_residency, folders)))
        self._accounts = [
            Processes(command=target.pid if target.kind == "command" else None)
            for target in targets
        ]
        self._cgroups = [CgroupReader(_folders(target)) for target in targets]
        self._limits = [TargetLimits(target) for target in targets]
        if not any(target.kind in ("container", "cgroup") for target in targets):
            self._missing[CgroupReader.name] = "no target is a container or a cgroup"
        self._writing = threading.Lock()
        self._given_up = False
        self._go, self._begun, self._stop = (threading.Event() for _ in range(3))

    def start(self) -> None:
        """Makes the file and the thread, which waits for `begin`."""
        if not self._hz:
            return
        self._file = create(self._path)
        self._thread = threading.Thread(target=self._run, name="tracer-sampler", daemon=True)
        self._thread.start()

    @property
    def tids(self) -> list[int]:
        """The thread's id, to exclude the thread from the recording."""
        tid = self._thread.native_id if self._thread is not None else None
        return [tid] if tid is not None else []

    @property
    def pids(self) -> list[int]:
        """The reading processes."""
        return [pid for aside in self._asides for pid in aside.pids]

    @property
    def cpu_s(self) -> float:
        """CPU time in s of the reading processes."""
        return sum(aside.cpu_s for aside in self._asides)

    def arrived(self, number: int, target: Target) -> None:
        """Reads the cgroups of an awaited container from the next sample on."""
        if self._hz:
            self._cgroups[number] = CgroupReader(_folders(target))
            self._limits[number] = TargetLimits(target)

    def begin(self, companions: Iterable[int], followed: Followed) -> None:
        """Takes the first sample, then samples at the rate. Returns after the first sample.

        `companions` are processes that record for us. No target's sample counts them. `followed`
        returns those of some threads that the kernel follows for the targets.
        """
        self._others.update(companions)
        # Of several targets, it is not known which one an orphan comes from.
        self._followed = followed if len(self._targets) == 1 else None
        if self._thread is not None:
            self._go.set()
            self._await(self._begun.wait)

    def end(self, usage: resource.struct_rusage | None = None) -> None:
        """Takes the last sample. `usage` holds the resources of an ended command.

        Readers that do not answer are abandoned: see `left_out`.
        """
        if self._thread is not None and self._begun.is_set():
            self._usage = usage
            self._end_thread()
        for why in filter(None, (aside.given_up for aside in self._asides)):
            self.left_out[f"reader of samples ended: {why}"] = 1

    def close(self) -> None:
        """Ends the thread and closes the file. Repeated calls do no harm."""
        if self._thread is not None:
            self._end_thread()
            self._thread = None
            self._file.close()
            if not self._given_up:
                for aside in self._asides:
                    aside.close()

    def _end_thread(self) -> None:
        self._stop.set()
        self._go.set()
        self._await(self._ended)

    def _ended(self, seconds: float) -> bool:
        assert self._thread is not None
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _await(self, came: Callable[[float], bool]) -> None:
        """Waits until `came` is true. Abandons the thread if it makes no progress."""
        progress, since = self._progress, time.monotonic()
        while not self._given_up and not came(_LOOK_S):
            now = time.monotonic()
            if self._progress != progress:
                progress, since = self._progress, now
            elif now - since > _PATIENCE_S:
                self._give_up()

    @property
    def _progress(self) -> int:
        """A number that grows while the thread makes progress."""
        return self._answers + sum(aside.signs for aside in self._asides)

    def _give_up(self) -> None:
        """Abandons the thread; it writes nothing from now on."""
        assert self._thread is not None and self._thread.ident is not None
        with self._writing:
            self._given_up = True
        with contextlib.suppress(OSError):  # it has ended just now
            self._cpu_s = time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
        why = f"no answer within {_PATIENCE_S:g} s"
        self._missing[self._asked] = why
        self.left_out[f"reader of samples blocked all readers: {self._asked}: {why}"] = 1

    def describe(self) -> Sampling:
        """Returns the manifest's entry: rate, missing readers with reasons, facts, CPU time."""
        missing = dict(self._missing)
        for limits in self._limits:
            missing |= limits.missing
        facts: dict[str, str] = {}
        for aside in self._asides:
            missing |= aside.missing
            facts |= aside.facts
        return {
            "hz": self._hz,
            "file": self._path.name,
            "not_available": missing,
            "facts": facts,
            "cpu_s": round(self._cpu_s + self.cpu_s, 3),
        }

    def _run(self) -> None:
        try:
            self._go.wait()
            if not self._stop.is_set():
                self._sample(first=True)
            self._begun.set()
            due = time.monotonic()
            while True:
                # A slow reading delays later ones; missed samples are not taken.
                due = max(due + 1 / self._hz, time.monotonic())
                if self._stop.wait(min(due - time.monotonic(), threading.TIMEOUT_MAX)):
                    break
                self._sample()
            self._sample(last=True)
        except OSError as error:
            self.failure = error
        finally:
            self._cpu_s = time.thread_time()
            self._begun.set()

    def _ask(self, name: str) -> None:
        """Notes the reader that is asked next; the previous one has answered."""
        self._answers += 1
        self._asked = name

    def _sample(self, first: bool = False, last: bool = False) -> None:
        """Reads everything once. Each line has the time at which its reading ended."""
        lines = []
        tree = ProcessTree()
        for number, target in enumerate(self._targets):
            self._ask(Processes.name)
            with contextlib.suppress(NotAvailable):  # the target has ended
                lines.append(_line(number, self._of_target(number, target, first, tree)))
            self._ask(CgroupReader.name)
            lines.append(_line(number, self._cgroups[number].read()))
            self._ask(Limits.name)
            lines.append(_line(number, self._limits[number].read()))
        for aside in self._asides:
            self._ask(_ASIDE)
            lines += [_line(_MACHINE, readings, ns) for ns, readings in aside.read(last)]
        data = b"".join(lines)
        with self._writing:
            if not self._given_up:
                write_all(self._file.fileno(), data)
                self.written += len(data)

    def _of_target(
        self, number: int, target: Target, first: bool, tree: ProcessTree
    ) -> list[Reading]:
        account = self._accounts[number]
        if getattr(target, "cgroups", None) == []:
            return []  # an awaited container: its first look is the one that finds its cgroups
        if self._usage is not None and target.kind == "command":
            return account.last(self._usage)
        if target.kind not in ("pid", "command") or not account.tells_children:
            found = account.read(target.members(tree).keys() - self._others)
        else:
            found = account.read_tree(target.pid, self._others, self._followed)
        # Before exec, a command's memory is the recorder's.
        hidden = processes.RSS.name if first and target.kind == "command" else None
        return [reading for reading in found if reading[0] != hidden]


def _line(target: int, readings: list[Reading], ns: int | None = None) -> bytes:
    if not readings:
        return b""
    return encoded([ns or time.monotonic_ns(), target, readings]) + b"\n"


def _residency(
    folders: list[Path], still_there: Callable[[], None]
) -> tuple[list[Reader], dict[str, str]]:
    return [Residency(folders, still_there)], {}


def _folders(target: Target) -> list[Path]:
    cgroups: list[Cgroup] = getattr(target, "cgroups", [])
    return [cgroup.folder for cgroup in cgroups if cgroup.folder is not None]


def check(hz: float, folders: list[Path]) -> None:
    """Raises UsageError if `hz` or a folder is not valid."""
    if not 0 <= hz <= MOST_HZ:
        raise UsageError(
            f"--sample-hz {hz:g} is out of range", f"give 0 (no samples) to {MOST_HZ:g}"
        )
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"--residency needs a folder, and {folder} is not one", "give a folder"
            )
    if folders and not hz:
        raise UsageError("--residency needs samples, and --sample-hz 0 takes none", "leave out one")
