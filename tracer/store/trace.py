"""A trace opened for reading."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tracer.probes.catalogue import TABLES
from tracer.probes.errors import BadTrace
from tracer.probes.loss import TABLE as LOSS_TABLE
from tracer.probes.schema import Scope
from tracer.probes.text import shell_word
from tracer.store import manifest as manifests
from tracer.store.asking import absent_tables, refused
from tracer.store.checked import encoded
from tracer.store.database import ROW_GROUP, connect
from tracer.store.interrupt import delayed, interruptible
from tracer.store.makers import await_guardian, refuse_anothers, refuse_live
from tracer.store.manifest import Manifest
from tracer.store.missing_tables import missing_tables
from tracer.store.parsed import parsed, run
from tracer.store.table_file import SQL_TYPES, TableFile, open_table

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from tracer.store.finalize import Progress

T = TypeVar("T")

ALL_TABLES = {**TABLES, LOSS_TABLE.name: LOSS_TABLE}
"""Every table of a trace, by name."""

_CONTROLS = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_INTERRUPTED = "INTERRUPT Error"
_BATCH = 1 << 17
_UNKNOWN_LOSS = f"""
INSERT INTO {LOSS_TABLE.name} BY NAME
SELECT unnest({[scope.value for scope in Scope]}) AS stream, -1 AS cpu,
    'the table of losses is missing' AS cause
"""


class Trace:
    """A finalized trace: its manifest, and its tables through DuckDB.

    Opening a trace finalizes it if its recorder was killed. The contents of a trace are data:
    nothing in it is executed, and a query can read only its tables.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        """Opens `folder`. Raises BadTrace, or UsageError if it is still being recorded."""
        self.folder = Path(folder)
        self.manifest: Manifest = manifests.read(self.folder)
        if self._lacks_tables():
            refuse_live(self.folder, self.manifest)
            await_guardian(self.folder, self.manifest)
            # The recorder may have made the tables since.
            self.manifest = manifests.read(self.folder)
        if self._lacks_tables():
            from tracer.store.finalize import finalize

            refuse_anothers(self.folder)
            self.manifest = finalize(self.folder, self.manifest, progress)
        self._open()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._cpus: int | None = None
        self.made: set[str] = set()
        """Names of the derived tables that the connection has until it is closed."""
        self._answers: dict[str, Any] = {}

    def _lacks_tables(self) -> bool:
        undecoded = not (self.folder / "events").exists() and (self.folder / "raw").is_dir()
        return self.manifest["state"] != "finalized" or undecoded

    def use_cpus(self, number: int) -> None:
        """Limits queries to `number` CPUs; default: all. Call it before the first query."""
        self._cpus = number

    def _open(self) -> None:
        self._held = contextlib.ExitStack()
        # Also closes the files of a trace that nobody closes.
        self._close = weakref.finalize(self, self._held.close)
        self._files = self._open_tables()

    def _open_tables(self) -> dict[str, TableFile]:
        events = self.folder / "events"
        if events.is_symlink():
            raise BadTrace(f"{events} is a symbolic link", "a trace has none: copy it again")
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
            events, folder = shell_word(self.folder / "events"), shell_word(self.folder)
            return f"decode it again: rm -r -- {events} && tracer info {folder}"
        return "restore it from a copy, or record again"

    @property
    def tables(self) -> list[str]:
        """Names of the tables that this trace has."""
        return list(self._files)

    def is_empty(self, name: str) -> bool:
        """Returns whether the trace has no row of a table. A table that it lacks has none."""
        return name not in self._files or not self._files[name].rows

    def require(self, *names: str) -> None:
        """Raises BadTrace if tables are missing, with all of them and the probes to record."""
        if missing := [name for name in names if name not in self._files]:
            raise missing_tables(self.folder, self.manifest, missing)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view of each table. It can read nothing else.

        Its memory is bounded for any trace. DuckDB spills the rest to a folder in TMPDIR until the
        trace is closed.
        """
        if self._connection is None:
            import duckdb

            if not self._close.alive:  # the trace was closed
                self._open()
            with delayed():  # A signal between the two would leave the folder.
                spill = tempfile.mkdtemp(prefix="tracer-")
                self._held.callback(shutil.rmtree, spill, ignore_errors=True)
            rows = [file.rows for file in self._files.values()]
            connection = connect(rows, self._cpus, spill)
            self._held.callback(connection.close)
            self._own(self._make_views, connection)
            places = ", ".join(f"'{file.place}'" for file in self._files.values())
            run(connection, f"SET allowed_paths=[{places}]")
            run(connection, "SET enable_external_access=false")
            # DuckDB prints a progress bar to standard output if Python runs no script file.
            # In a notebook without ipywidgets the setting does not exist.
            with contextlib.suppress(duckdb.InvalidInputException):
                run(connection, "SET enable_progress_bar=false")
            run(connection, "SET lock_configuration=true")
            self._connection = connection
        return self._connection

    def _make_views(self, connection: duckdb.DuckDBPyConnection) -> None:
        for name, file in self._files.items():
            for view, rows in ((name, file.select()), (f"{name}_rows", file.select(numbered=True))):
                run(connection, f'CREATE VIEW "{view}" AS {rows}')

    def empty_if_missing(self, name: str) -> None:
        """Makes an empty table for a missing one, for joins that can do without its rows.

        An empty table `loss` would say that nothing was lost. Unless the manifest says that, it has
        a gap over the whole recording for the events of each scope.
        """
        if name in self._files or name in self.made:
            return
        columns = ", ".join(f'"{c.name}" {SQL_TYPES[c.type]}' for c in ALL_TABLES[name].columns)
        statements = [
            f'CREATE OR REPLACE TEMP TABLE "{made}" ({columns}{more})'
            for made, more in ((name, ""), (f"{name}_rows", ", row BIGINT"))
        ]
        if name == LOSS_TABLE.name and self.manifest["loss"].get("windows") != 0:
            statements.append(_UNKNOWN_LOSS)
        self.execute(*statements)
        self.made.add(name)

    def sql(self, query: str, *parameters: Any) -> pd.DataFrame:
        """Returns the result of a query on tables, and on views that were made, as a frame.

        UsageError if DuckDB refuses the query; BadTrace if a table is damaged or not recorded.
        """
        import duckdb

        def ask(db: duckdb.DuckDBPyConnection) -> pd.DataFrame:
            try:
                return run(db, query, parameters).df()
            except (duckdb.ProgrammingError, duckdb.PermissionException) as error:
                if isinstance(error, duckdb.InvalidInputException):  # also of a damaged file
                    raise
                self.require(*(absent_tables(str(error)) & ALL_TABLES.keys()))
                raise refused(self.said(error)) from None

        frame: pd.DataFrame = self._own(ask)
        return frame

    def arrow(self, query: str) -> pa.Table:
        """Returns the result of one of our queries as an Arrow table; BadTrace as in `sql`."""
        found: pa.Table = self._own(lambda db: db.sql(parsed(db, query)).to_arrow_table())
        return found

    def batches(
        self, query: str, rows: int = _BATCH, beside: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yields the result of one of our queries, `rows` rows at a time; BadTrace as in `sql`.

        No other query of this trace may run until the result is read to its end, except queries
        that run `beside` others. Those cannot use temporary tables.
        """
        connection = self.connection.cursor() if beside else self.connection

        def begin(db: duckdb.DuckDBPyConnection) -> Any:
            # Ends a result that was not read to its end.
            run(db, "SELECT 1").fetchall()
            relation = db.sql(parsed(db, query))
            # DuckDB 2 has to_arrow_reader, DuckDB 1 fetch_arrow_reader.
            return (getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader)(rows)

        reader = self._own(begin, connection)
        while (batch := self._own(lambda _: next(reader, None), connection)) is not None:
            yield batch

    def once(self, question: str, answer: Callable[[], T]) -> T:
        """Returns `answer()`, which is called once for a question until the trace is closed."""
        if question not in self._answers:
            self._answers[question] = answer()
        found: T = self._answers[question]
        return found

    def keep(self, name: str, rows: pa.Table) -> None:
        """Makes a temporary table, anew if it exists, from rows that were not made by SQL."""
        with self.lent("kept rows", rows):
            self.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT * FROM "kept rows"')

    def append(self, name: str, tables: Iterable[pa.Table]) -> None:
        """Adds rows that were not made by SQL to one of our tables, whole row groups at a time.

        Fewer rows take DuckDB as long. Other queries run while `tables` makes the next rows.
        """
        import pyarrow as pa

        waiting: list[pa.Table] = []
        for rows in tables:
            waiting.append(rows)
            count = sum(map(len, waiting))
            if count >= ROW_GROUP:
                whole = pa.concat_tables(waiting)
                last = count - count % ROW_GROUP
                self._insert(name, whole.slice(0, last))
                waiting = [whole.slice(last)]
        if waiting:
            self._insert(name, pa.concat_tables(waiting))

    def _insert(self, name: str, rows: pa.Table) -> None:
        with self.lent("kept rows", rows):
            self.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM "kept rows"')

    @contextlib.contextmanager
    def lent(self, name: str, rows: pa.Table) -> Iterator[None]:
        """Lets statements read rows that were not made by SQL, without a copy of them."""
        self.connection.register(name, rows)
        try:
            yield
        finally:
            self.connection.unregister(name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Returns the rows of one of our queries; BadTrace if a table is damaged."""
        found: list[tuple[Any, ...]] = self._own(lambda db: run(db, query).fetchall())
        return found

    def execute(self, *statements: str) -> None:
        """Runs our statements in their order; BadTrace if a table is damaged."""
        self._own(lambda db: [run(db, statement) for statement in statements])

    def create(self, statement: str, empty: bool = False) -> int:
        """Runs one of our statements CREATE TABLE AS; returns how many rows the table has.

        `empty`: an input of the query is known to have no rows, and so the query has none. Then it
        only gives the columns, and is not run.
        """
        ((rows,),) = self.rows(statement + " WITH NO DATA" * empty)
        return int(rows)

    def drop(self, *tables: str) -> None:
        """Removes those of our temporary tables that exist."""
        self.execute(*(f'DROP TABLE IF EXISTS "{table}"' for table in tables))

    def _own(
        self,
        run: Callable[[duckdb.DuckDBPyConnection], Any],
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> Any:
        """Runs queries of ours, on `connection` or else on the trace's own one."""
        import duckdb
        import pyarrow as pa

        try:
            return interruptible(self.connection if connection is None else connection, run)
        except duckdb.InterruptException:
            raise  # another thread has interrupted the connection: the data is not damaged
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError, OSError) as error:
            # Arrow's reader of batches raises DuckDB's errors as OSError without a number.
            if isinstance(error, OSError) and (error.errno or _INTERRUPTED in str(error)):
                raise
            # Our queries are correct, so the data is damaged in a place that the footer hides.
            raise BadTrace(
                f"the tables of {self.folder} are damaged: {self.said(error)}", self._mend()
            ) from None

    def said(self, error: Exception) -> str:
        """Returns an error of DuckDB in one line, with the tables' file names."""
        line = " ".join(str(error).split())
        for file in self._files.values():
            if not file.file.closed:
                line = re.sub(rf"{file.place}(?!\d)", lambda _: str(file.path), line)  # noqa: B023
        return line[:300]

    def close(self) -> None:
        """Closes the connection and the tables, and removes spilled data.

        A later query opens the trace again.
        """
        self._close()
        self._connection = None
        self.made.clear()
        self._answers.clear()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dump(value: Any) -> str:
    """Returns JSON text from `encoded`, with NaN and infinities as null.

    Characters that control a terminal or change the direction of text are escaped.
    """
    text = encoded(_finite(value)).decode()
    return _CONTROLS.sub(lambda odd: f"\\u{ord(odd[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
