"""A recording that a guest handed over: its tables, made here, and the facts about its loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from scripts.kernels.facts import Disk, Facts, Load
from tracer.store.trace import Trace


class Skipped(Exception):
    """A check that does not apply, with the reason."""


class Failed(Exception):
    """A check that found something else than it should have."""


class Asked:
    """An opened trace that checks ask by SQL."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Returns the rows of a query. Raises Failed if the trace has not what it asks."""
        try:
            return self.trace.connection.execute(query, list(parameters)).fetchall()
        except duckdb.Error as error:
            raise Failed(self.trace.said(error)) from None

    def expect(self, wanted: list[tuple[Any, ...]], query: str, *parameters: object) -> None:
        """Raises Failed unless a query has the wanted rows."""
        found = self.rows(query, *parameters)
        if found != wanted:
            raise Failed(f"{_shown(found)}, not {_shown(wanted)}")


class Recorded(Asked):
    """A backend's recording of all loads in a guest."""

    def __init__(
        self, trace: Trace, facts: Facts, backend: str, views: Sequence[Callable[[Trace], object]]
    ) -> None:
        """Takes an opened trace, and makes the views that the checks ask."""
        super().__init__(trace)
        self._tried = facts["tried"]
        self._facts = facts
        self._loads = facts["recordings"][backend]["loads"]
        for view in views:
            view(trace)

    @classmethod
    def open(
        cls, folder: Path, facts: Facts, backend: str, views: Sequence[Callable[[Trace], object]]
    ) -> Recorded:
        """Opens the trace of a backend in the folder for results; makes its tables at first."""
        return cls(Trace(folder / f"{backend}.trace"), facts, backend, views)

    def load(self, name: str, status: int = 0) -> Load:
        """Returns what is known of a load. Raises Failed if it did not end with `status`."""
        return _ended(self._loads, name, status)

    def tried(self, name: str) -> dict[str, Any]:
        """Returns what a program found out that ran beside no recording. Raises Failed."""
        return _ended(self._tried, name, 0)["said"]

    def disk(self, kind: str) -> Disk:
        """Returns the disk of a kind of file system. Raises Skipped if it is not mounted."""
        disk = self._facts["disks"][kind]
        if "unmounted" in disk:
            raise Skipped(disk["unmounted"])
        return disk

    def has_event(self, name: str) -> bool:
        """Returns whether the kernel of the recording has an event, and it was recorded."""
        return name in self.trace.manifest["capture"]["formats"]


def _ended(loads: dict[str, Load], name: str, status: int) -> Load:
    if name not in loads:
        raise Failed(f"the load {name} did not run")
    load = loads[name]
    if load["status"] != status:
        raise Failed(f"the load {name} failed: {load['said'].get('error', load['status'])}")
    return load


def _shown(rows: list[tuple[Any, ...]]) -> str:
    text = ", ".join(map(str, rows)) or "nothing"
    return text if len(text) <= 300 else f"{text[:300]}..."
