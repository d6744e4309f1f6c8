"""A trace directory made from another tool's trace."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from tracer.probes.errors import UsageError
from tracer.probes.loss import TABLE as LOSS
from tracer.probes.schema import Table
from tracer.store import manifest as manifests
from tracer.store.files import make_folder
from tracer.store.manifest_parts import Clock, Imported, TableFacts
from tracer.store.places import check_trace
from tracer.store.tables import TableWriter, write_table
from tracer.version import VERSION


@dataclass
class Source:
    """The origin of imported events, and the facts that are unknown about them."""

    format: str
    file: str
    """The file's name, without the folder."""
    clock: str = "of the source"
    """The clock of its times, if known."""
    realtime_offset_ns: int | None = None
    notes: list[str] = field(default_factory=list)
    """Sentences about assumptions, omissions and unknown facts."""
    not_understood: dict[str, int] = field(default_factory=dict)
    """Counts of lines or events, by kind, that became no row of a table."""

    def facts(self) -> Imported:
        """Returns the manifest's entry."""
        return {
            "format": self.format,
            "file": self.file,
            "notes": self.notes,
            "not_understood": self.not_understood,
        }


def check_output(folder: Path, force: bool) -> Path:
    """Returns the folder in which to build the trace `folder`. Raises UsageError if that fails."""
    if folder.exists() and not (folder / manifests.FILE).is_file():
        raise UsageError(f"{folder} exists and is not a trace", "give another name with -o")
    check_trace(folder, force)
    return folder.absolute().parent / f".{folder.name}.{os.getpid()}"


def put_in_place(building: Path, folder: Path) -> None:
    """Moves the finished trace to its final place."""
    if folder.exists():
        old = building.with_name(f"{building.name}.old")
        folder.rename(old)
        building.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        building.rename(folder)


def first_manifest(source: Source, start_ns: int, end_ns: int | None) -> manifests.Manifest:
    """Returns the manifest of an imported trace without tables."""
    clock: Clock = {"name": source.clock, "start_ns": start_ns, "end_ns": end_ns}
    if source.realtime_offset_ns is not None:
        clock["realtime_offset_ns"] = source.realtime_offset_ns
    return {
        "schema": manifests.SCHEMA,
        "tool": {"name": "traintrace", "version": VERSION},
        "state": "finalized",
        "complete": True,
        "ended_by": "import",
        "recorder": {},
        "host": {},
        "kernel": {},
        "clock": clock,
        "duration_s": None if end_ns is None else (end_ns - start_ns) / 1e9,
        "command": None,
        "targets": [],
        "probes": [],
        "backend": f"import {source.format}:{source.file}",
        "imported": source.facts(),
        "capture": {},
        "syscall_names": {},
        "vm": {},
        "mounts": [],
        "disks": [],
        "own_files": {},
        "own_cost": {},
        "tables": {},
        "loss": {"events": 0, "windows": 0, "unknown": 0, "others": 0},
    }


class ImportedTrace:
    """Writes tables into a new trace. Removes everything if that fails."""

    def __init__(self, folder: Path, source: Source, force: bool = False) -> None:
        """Raises UsageError if `folder` exists and `force` is not given."""
        self.folder = folder
        self.source = source
        self._building = check_output(folder, force)
        self._writers: dict[str, TableWriter] = {}

    def __enter__(self) -> ImportedTrace:
        make_folder(self._building)
        make_folder(self._building / "events")
        return self

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        """Takes rows of a table."""
        if table.name not in self._writers:
            self._writers[table.name] = TableWriter(table, self._building / "events")
        self._writers[table.name].add(rows)

    def finish(self, start_ns: int, end_ns: int, **facts: Any) -> None:
        """Writes the remaining rows and the manifest, with more `facts` in it."""
        tables: dict[str, TableFacts] = {}
        for name, writer in self._writers.items():
            writer.close()
            tables[name] = {"rows": writer.rows, "bytes": writer.path.stat().st_size}
        write_table(LOSS, self._building, None)
        made: Any = {**first_manifest(self.source, start_ns, end_ns), "tables": tables, **facts}
        manifests.write(self._building, made)
        put_in_place(self._building, self.folder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for writer in self._writers.values():
            writer.discard()
        shutil.rmtree(self._building, ignore_errors=True)
