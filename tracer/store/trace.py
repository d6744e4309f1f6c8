"""A trace opened for reading."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.catalogue import TABLES
from probes.errors import BadTrace, PermissionMissing, UsageError
from probes.kernel import boot_id, process_alive
from probes.loss import TABLE as LOSS_TABLE
from tracer.store import manifest as manifests
from tracer.store.checked import encoded
from tracer.store.files import is_held
from tracer.store.manifest import Manifest
from tracer.store.table_file import SQL_TYPES, TableFile, open_table

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from tracer.store.finalize import Progress

ALL_TABLES = {**TABLES, LOSS_TABLE.name: LOSS_TABLE}
"""Every table that can be asked for, by name."""

_GUARDIAN_S = 60.0
_THREADS = 8
"""More of them ask for more memory than they save time."""
_THREAD_BYTES = 96 << 20
"""What DuckDB may hold for each of its threads, and for two more: the rest is spilled."""
_BATCH = 1 << 17


class Trace:
    """A finalized trace: its manifest, and its tables through DuckDB.

    A recording whose recorder was killed is finalized when it is opened. The trace's own words
    are data: nothing in it is executed, and a query can read nothing but its tables.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        """Open `folder`. Raises BadTrace, or UsageError where it is still being recorded."""
        self.folder = Path(folder)
        self.manifest: Manifest = manifests.read(self.folder)
        undecoded = not (self.folder / "events").exists() and (self.folder / "raw").is_dir()
        if self.manifest["state"] != "finalized" or undecoded:
            refuse_live(self.folder, self.manifest)
            if _await_guardian(self.folder, self.manifest):
                self.manifest = manifests.read(self.folder)
            from tracer.store.finalize import finalize

            _refuse_anothers(self.folder)
            self.manifest = finalize(self.folder, self.manifest, progress)
        self._open()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._cpus: int | None = None

    def use_cpus(self, number: int) -> None:
        """Query with so many CPUs, not with all. To be said before the first query."""
        self._cpus = number

    def _open(self) -> None:
        self._held = contextlib.ExitStack()
        # Also where nobody closes the trace.
        self._close = weakref.finalize(self, self._held.close)
        self._files = self._open_tables()

    def _open_tables(self) -> dict[str, TableFile]:
        events = self.folder / "events"
        if events.is_symlink():
            raise BadTrace(f"{events} is a symbolic link", "traces hold none: copy it again")
        found = {}
        for name, table in ALL_TABLES.items():
            place = self.folder if name == LOSS_TABLE.name else events
            path = place / f"{name}.parquet"
            try:
                found[name] = open_table(path, table, self._mend())
            except (FileNotFoundError, NotADirectoryError):
                if name in self.manifest["tables"]:
                    raise BadTrace(f"{path} is missing", self._mend()) from None
                continue
            self._held.enter_context(found[name].file)
        return found

    def _mend(self) -> str:
        if (self.folder / "raw").is_dir():
            return f"decode it anew: rm -r {self.folder / 'events'} and tracer info {self.folder}"
        return "restore it from a copy, or record again"

    @property
    def tables(self) -> list[str]:
        """Names of the tables that this trace has."""
        return list(self._files)

    def require(self, *names: str) -> None:
        """Raise BadTrace, naming the probe to record with, where a table is not there."""
        for name in names:
            if name not in self._files:
                option = ALL_TABLES[name].option or f"-e {name}"
                raise BadTrace(
                    f"{self.folder} has no table {name}", f"record it: tracer record {option} ..."
                )

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view of each table, that can read nothing else.

        Its memory is bounded, whatever the trace: what does not fit is spilled to a folder of its
        own (TMPDIR), which goes when the trace is closed.
        """
        if self._connection is None:
            import duckdb

            if not self._close.alive:  # it was closed
                self._open()
            threads = min(_THREADS, self._cpus or len(os.sched_getaffinity(0)))
            spill = tempfile.mkdtemp(prefix="tracer-")
            self._held.callback(shutil.rmtree, spill, ignore_errors=True)
            connection = duckdb.connect(
                config={
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                    "temp_directory": spill,
                    "threads": threads,
                    "memory_limit": f"{(threads + 2) * _THREAD_BYTES}B",
                }
            )
            self._held.callback(connection.close)
            for name, file in self._files.items():
                self._own(partial(connection.execute, f'CREATE VIEW "{name}" AS {file.select()}'))
                numbered = f'CREATE VIEW "{name}_rows" AS {file.select(numbered=True)}'
                self._own(partial(connection.execute, numbered))
            places = ", ".join(f"'{file.place}'" for file in self._files.values())
            connection.execute(f"SET allowed_paths=[{places}]")
            connection.execute("SET enable_external_access=false")
            # DuckDB has one, on standard output, wherever Python was not given a file to run.
            # In a notebook without ipywidgets there is none, and no setting either.
            with contextlib.suppress(duckdb.InvalidInputException):
                connection.execute("SET enable_progress_bar=false")
            connection.execute("SET lock_configuration=true")
            self._connection = connection
        return self._connection

    def empty_if_missing(self, name: str) -> None:
        """Make an empty table of a kind that this trace lacks, for joins that can do without."""
        if name in self._files:
            return
        columns = ", ".join(f'"{c.name}" {SQL_TYPES[c.type]}' for c in ALL_TABLES[name].columns)
        for made, more in ((name, ""), (f"{name}_rows", ", row BIGINT")):
            self.connection.execute(f'CREATE TEMP TABLE IF NOT EXISTS "{made}" ({columns}{more})')

    def sql(self, query: str, *parameters: Any) -> pd.DataFrame:
        """The result of a query of our own as a frame; BadTrace where a table is damaged."""
        frame: pd.DataFrame = self._own(lambda: self.connection.execute(query, parameters).df())
        return frame

    def arrow(self, query: str) -> pa.Table:
        """The result of a query of our own as an Arrow table; BadTrace likewise."""
        found: pa.Table = self._own(lambda: self.connection.sql(query).to_arrow_table())
        return found

    def batches(
        self, query: str, rows: int = _BATCH, beside: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The result of a query of our own, as it comes, so many rows at a time; BadTrace likewise.

        Until it is read to its end no other query of this trace may be asked, unless it runs
        `beside` them: such a query knows no temporary tables.
        """
        connection = self.connection.cursor() if beside else self.connection

        def begin() -> Any:
            connection.execute("SELECT 1").fetchall()  # ends what was not read to its end
            relation = connection.sql(query)
            # The name that it has in DuckDB 2; the one of 1.x after it.
            return (getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader)(rows)

        reader = self._own(begin)
        while (batch := self._own(lambda: next(reader, None))) is not None:
            yield batch

    def keep(self, name: str, rows: pa.Table) -> None:
        """Make a table of rows that were made outside of SQL."""
        self.connection.register("kept rows", rows)
        self.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM "kept rows"')
        self.connection.unregister("kept rows")

    def append(self, name: str, rows: pa.Table) -> None:
        """Add rows that were made outside of SQL to a table of ours."""
        self.connection.register("kept rows", rows)
        self.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM "kept rows"')
        self.connection.unregister("kept rows")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query of our own; BadTrace where a table is damaged."""
        found: list[tuple[Any, ...]] = self._own(lambda: self.connection.execute(query).fetchall())
        return found

    def execute(self, query: str) -> None:
        """Run a statement of our own; BadTrace where a table is damaged."""
        self._own(lambda: self.connection.execute(query))

    def _own(self, run: Callable[[], Any]) -> Any:
        import duckdb
        import pyarrow as pa

        try:
            return run()
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
            # Our queries are right, so it is the data: a page that its footer does not tell of.
            raise BadTrace(
                f"the tables of {self.folder} are damaged: {self.said(error)}", self._mend()
            ) from None

    def said(self, error: Exception) -> str:
        """An error of DuckDB's in one line, with the tables called by their names."""
        line = " ".join(str(error).split())
        for file in self._files.values():
            if not file.file.closed:
                line = re.sub(rf"{file.place}(?!\d)", lambda _: str(file.path), line)  # noqa: B023
        return line[:300]

    def close(self) -> None:
        """Close the connection and the tables; what it spilled is removed.

        Who asks the trace again opens it again.
        """
        self._close()
        self._connection = None

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_live(folder: Path, manifest: Manifest) -> None:
    """Raise UsageError where the trace is still being recorded on this machine."""
    recorder = manifest["recorder"]
    pid, start = recorder.get("pid"), recorder.get("start_time")
    if (
        pid is not None
        and recorder.get("boot_id") == boot_id()
        and pid != os.getpid()
        and process_alive(pid, start)
        # A manifest may name any process: a recorder holds its folder.
        and is_held(folder) is not False
    ):
        raise UsageError(
            f"{folder} is still being recorded by process {pid}",
            f"stop that first: kill -INT {pid}",
        )


def _await_guardian(folder: Path, manifest: Manifest) -> bool:
    """Wait while what a killed recorder left is being saved; whether that was so."""
    recorder = manifest["recorder"]
    if "guardian" not in recorder or recorder.get("boot_id") != boot_id():
        return False
    pid, start = recorder["guardian"]
    deadline = time.monotonic() + _GUARDIAN_S
    # A manifest may name any process: only recorder and guardian hold the folder.
    while process_alive(pid, start) and is_held(folder):
        if time.monotonic() > deadline:
            raise UsageError(
                f"what the killed recorder of {folder} had not written is still being saved",
                f"wait for process {pid} to end, or see what keeps the disk so long",
            )
        time.sleep(0.02)
    return True


def _refuse_anothers(folder: Path) -> None:
    """Raise PermissionMissing where root would write into another user's folder.

    Its owner may change what is in the folder meanwhile, and so choose where root writes.
    """
    owner = folder.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise PermissionMissing(
            f"{folder} belongs to user {owner} and has no tables yet, and root makes none there",
            f"make them as that user: sudo -u '#{owner}' tracer info {folder}",
        )


def dump(value: Any) -> str:
    """One JSON text, as `encoded`; NaN and infinities, which JSON has not, as null."""
    return encoded(_finite(value)).decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
