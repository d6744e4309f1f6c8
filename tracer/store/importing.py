"""A trace directory made from somebody else's trace."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from probes.errors import UsageError
from probes.loss import TABLE as LOSS
from probes.schema import Table
from tracer.store import manifest as manifests
from tracer.store.files import make_folder
from tracer.store.tables import TableWriter, write_table
from tracer.version import VERSION


class ImportedTrace:
    """Writes tables into a new trace; leaves nothing behind where that fails."""

    def __init__(self, folder: Path, source: str) -> None:
        """`source` says where the events come from. UsageError where `folder` exists."""
        if folder.exists() or folder.is_symlink():
            raise UsageError(f"{folder} exists", "give another name with -o")
        if not folder.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {folder.absolute().parent}", "make it first")
        self.folder = folder
        self.source = source
        self._writers: dict[str, TableWriter] = {}
        self._finished = False

    def __enter__(self) -> ImportedTrace:
        make_folder(self.folder)
        make_folder(self.folder / "events")
        return self

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        """Take rows of a table."""
        if table.name not in self._writers:
            self._writers[table.name] = TableWriter(table, self.folder / "events")
        self._writers[table.name].add(rows)

    def finish(self, start_ns: int, end_ns: int) -> None:
        """Write what is left and the manifest."""
        tables: dict[str, manifests.TableFacts] = {}
        for name, writer in self._writers.items():
            writer.close()
            tables[name] = {"rows": writer.rows, "bytes": writer.path.stat().st_size}
        write_table(LOSS, self.folder, None)
        manifests.write(
            self.folder,
            {
                "schema": manifests.SCHEMA,
                "tool": {"name": "traintrace", "version": VERSION},
                "state": "finalized",
                "complete": True,
                "ended_by": "import",
                "recorder": {},
                "host": {},
                "kernel": {},
                "clock": {"name": "of the source", "start_ns": start_ns, "end_ns": end_ns},
                "duration_s": (end_ns - start_ns) / 1e9,
                "command": None,
                "targets": [],
                "probes": [],
                "backend": f"import {self.source}",
                "ftrace": {},
                "syscall_names": {},
                "vm": {},
                "mounts": [],
                "disks": [],
                "own_files": {},
                "own_cost": {},
                "tables": tables,
                "loss": {"events": 0, "windows": 0, "unknown": 0},
            },
        )
        self._finished = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            shutil.rmtree(self.folder, ignore_errors=True)
