"""Sets a power mode for a run and takes it back, also for a runner that was killed.

What was there is written to a note before anything is changed. It lies where every runner of this
machine finds it, since a mode is the machine's: the next start puts back what it tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workloads.errors import JobError, explained
from workloads.files import write_anew
from workloads.modes import cgroups, machine
from workloads.modes.cgroups import Share
from workloads.modes.machine import Machine
from workloads.modes.mechanism import ROOT, Lacking
from workloads.modes.mode import DEFAULT, PowerMode

STATE = Path("/var/lib/traintrace")
"""Kept over a reboot, as what nvpmodel sets is."""

_NOTE = "power_mode.json"
_CGROUPS = "cgroups"


@dataclass(frozen=True)
class Setting:
    """A mode in force. `settings`: what the run has, in MHz, cores and shares; `by`: what set it.

    `share` is for containers to be limited to; a job on the host joins `cgroups` instead.
    """

    mode: PowerMode | None
    settings: dict[str, float]
    by: dict[str, str]
    share: Share = field(default_factory=Share)
    cgroups: list[Path] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"name": str(self.mode or DEFAULT), "settings": self.settings, "by": self.by}


class PowerModes:
    """The power modes of this machine, one at a time; a context.

    Entered, it puts back what a killed runner has left. `needed`: whether any mode will be set;
    raises JobError where another runner does so, too.
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
    def applied(self, mode: PowerMode | None, containers: bool) -> Iterator[Setting]:
        """Run the block in a mode. Raises JobError where the machine lacks what it sets."""
        if self._lock is not None:
            self._restore()  # what could not be put back after the run before
        found = Machine(self._root)
        if mode is None:
            yield Setting(None, found.settings(), {})
            return
        try:
            yield self._set(mode, found, containers)
        finally:
            self._restore()

    def _set(self, mode: PowerMode, found: Machine, containers: bool) -> Setting:
        wanted = {name: value for name, value in asdict(mode).items() if value is not None}
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
                    f"there are {len(cpus)} CPUs, and the power mode asks for {cores}",
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
        if share != Share() and not containers:
            planned = cgroups.plan(share, f"traintrace-{os.getpid()}", self._root)
            self._remember({"by": _CGROUPS, "before": planned})
            made = cgroups.make(planned)
        return Setting(mode, settings, by, share, made)

    def _remember(self, one: dict[str, Any]) -> None:
        self._write([*self._told(), one])

    def _restore(self) -> None:
        """Put all back, the last first; what cannot be stays in the note. Raises JobError."""
        kinds = {kind.__name__: kind for kind in machine.MECHANISMS}
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
                f"the power mode could not be taken back: {failed}",
                f"put back what {self._note} tells, and remove it",
            )

    def _told(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads(self._note.read_text()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise JobError(f"cannot read {self._note}: {error}", "see it, and remove it") from None

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
