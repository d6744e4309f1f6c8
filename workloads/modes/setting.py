"""Sets a power mode for a run and restores the earlier state, even after a runner was killed.

The earlier state is written to a note before any change. A mode belongs to the machine, so the note
lies where every runner of this machine finds it, and the next runner restores the state.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tracer.workloads.errors import JobError, explained
from tracer.workloads.files import write_anew
from tracer.workloads.interrupt import held
from tracer.workloads.modes import cgroups, machine
from tracer.workloads.modes.cgroups import Memory, Share
from tracer.workloads.modes.dirty_background import DirtyBackground
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mechanism import ROOT, Lacking, Mechanism
from tracer.workloads.modes.mode import DEFAULT, PowerMode
from tracer.workloads.modes.swap_area import SwapArea, SwapReadahead
from tracer.workloads.modes.writeback_timers import WritebackTimers

STATE = Path("/var/lib/traintrace")
"""Folder of the note. It survives a reboot, as a mode set by nvpmodel does."""

_NOTE = "power_mode.json"
_CGROUPS = "cgroups"


@dataclass(frozen=True)
class Setting:
    """A mode in force. `settings`: values in MHz, cores and shares; `by`: mechanism of each.

    Containers are limited to `share`; a job on the host joins `cgroups` instead.
    """

    mode: PowerMode | None
    settings: dict[str, float]
    by: dict[str, str]
    share: Share = field(default_factory=Share)
    cgroups: list[Path] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Returns the setting as values for JSON."""
        return {"name": str(self.mode or DEFAULT), "settings": self.settings, "by": self.by}


class PowerModes:
    """A context manager that sets the power modes of this machine, one at a time.

    Its entry restores the state that a killed runner has left. `needed`: whether any mode will be
    set; the entry then raises JobError if another runner also sets modes.
    """

    def __init__(self, needed: bool, state: Path = STATE, root: Path = ROOT) -> None:
        self._needed = needed
        self._state = state
        self._note = state / _NOTE
        self._root = root
        self._lock: int | None = None

    def __enter__(self) -> PowerModes:
        if not self._needed and not self._note.exists():
            return self
        with explained(f"cannot use {self._state}", "run as root"):
            self._state.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._close()
            if self._needed:
                raise JobError(
                    "another study sets the power mode of this machine", "wait for it to end"
                ) from None
            return self
        try:
            self._restore()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @contextlib.contextmanager
    def applied(
        self,
        mode: PowerMode | None,
        containers: bool,
        memory: Memory | None = None,
        before: Sequence[tuple[Mechanism, Any]] = (),
    ) -> Iterator[Setting]:
        """Runs the block in a mode. Raises JobError if the machine lacks one of its settings.

        `memory`: limit of a job on the host. `before`: further mechanisms with their values, set
        first and restored last, when no process is left in the job's cgroups.
        """
        if self._lock is not None:
            self._restore()  # the part that could not be restored after the last run
        found = Machine(self._root)
        if mode is None and memory is None and not before:
            yield Setting(None, found.settings(), {})
            return
        try:
            for mechanism, value in before:
                self._remember({"by": type(mechanism).__name__, "before": mechanism.remember()})
                mechanism.set(value)
            yield self._set(mode, found, containers, memory)
        finally:
            self._restore()

    @contextlib.contextmanager
    def also(self, mechanism: Mechanism, value: Any) -> Iterator[None]:
        """Runs the block with a further setting of the machine. Restores the earlier state of this
        and of a mode around the block."""
        self._remember({"by": type(mechanism).__name__, "before": mechanism.remember()})
        try:
            mechanism.set(value)
            yield
        finally:
            self._restore()

    def _set(
        self,
        mode: PowerMode | None,
        found: Machine,
        containers: bool,
        memory: Memory | None = None,
    ) -> Setting:
        told = asdict(mode or PowerMode())
        wanted = {name: value for name, value in told.items() if value is not None}
        quota = wanted.pop("cpu_quota", None)
        cores = None if "cores" in found.mechanisms else wanted.pop("cores", None)
        by: dict[str, str] = {}
        for name, value in wanted.items():
            mechanism = found.find(name)
            self._remember({"by": type(mechanism).__name__, "before": mechanism.remember()})
            mechanism.set(value)
            by[name] = mechanism.name
        settings = found.settings()
        cpus = found.cpus()
        if cores is not None:
            if cores > len(cpus):
                raise JobError(
                    f"the power mode asks for {cores} CPUs, but there are {len(cpus)}",
                    "ask for fewer `cores`",
                )
            settings["cores"] = cores
            by["cores"] = machine.CPUSET
        if quota is not None:
            settings["cpu_quota"] = quota
            by["cpu_quota"] = machine.QUOTA
        share = Share(
            None if cores is None else tuple(cpus[:cores]),
            None if quota is None else quota * settings["cores"],
        )
        made: list[Path] = []
        if (share != Share() or memory is not None) and not containers:
            planned = cgroups.plan(share, f"traintrace-{os.getpid()}", self._root, memory)
            self._remember({"by": _CGROUPS, "before": planned})
            made = cgroups.make(planned)
        return Setting(mode, settings, by, share, made)

    def _remember(self, one: dict[str, Any]) -> None:
        self._write([*self._told(), one])

    def _restore(self) -> None:
        """Restores everything in the note, the last change first.

        A part that fails stays in the note. Raises JobError then. Ctrl-C waits until this is done.
        """
        with held():
            self._restore_all()

    def _restore_all(self) -> None:
        known: tuple[type[Mechanism], ...] = (
            *machine.MECHANISMS, WritebackTimers, DirtyBackground, SwapArea, SwapReadahead,
        )  # fmt: skip
        kinds = {kind.__name__: kind for kind in known}
        left: list[dict[str, Any]] = []
        failed: Exception | None = None
        for one in reversed(self._told()):
            try:
                if one["by"] == _CGROUPS:
                    cgroups.remove(one["before"])
                else:
                    kinds[one["by"]](self._root).restore(one["before"])
            except (JobError, Lacking, LookupError, TypeError) as error:
                left.insert(0, one)
                failed = error
        self._write(left)
        if failed is not None:
            raise JobError(
                f"the earlier power mode could not be restored: {failed}",
                f"restore the values in {self._note} by hand, and remove that file",
            )

    def _told(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads(self._note.read_text()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise JobError(
                f"cannot read {self._note}: {error}", "check it, and remove it"
            ) from None

    def _write(self, told: list[dict[str, Any]]) -> None:
        with explained(f"cannot write {self._note}", "run as root"):
            if not told:
                self._note.unlink(missing_ok=True)
                return
            part = self._note.with_suffix(".part")
            write_anew(part, json.dumps(told).encode())
            part.rename(self._note)

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
