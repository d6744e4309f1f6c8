"""A table's Parquet file, checked before a row of it is read.

The author of the trace may be hostile. The file is opened once and held open: it cannot be a link,
a FIFO or a device, nobody can replace it, and DuckDB reaches it through a path in which no folder
name is a pattern or a partition value.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tracer.probes.errors import BadTrace
from tracer.probes.schema import Column, Table, Type
from tracer.store.files import open_regular

SQL_TYPES = {
    Type.INT16: "SMALLINT",
    Type.INT32: "INTEGER",
    Type.INT64: "BIGINT",
    Type.UINT64: "UBIGINT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOL: "BOOLEAN",
    Type.TEXT: "VARCHAR",
}
"""DuckDB's names of column types."""

_PARQUET_TYPES = {
    Type.INT16: ("INT32", "Int(bitWidth=16, isSigned=true)"),
    Type.INT32: ("INT32", "None", "Int(bitWidth=32, isSigned=true)"),
    Type.INT64: ("INT64", "None", "Int(bitWidth=64, isSigned=true)"),
    Type.UINT64: ("INT64", "Int(bitWidth=64, isSigned=false)"),
    Type.FLOAT64: ("DOUBLE", "None"),
    Type.BOOL: ("BOOLEAN", "None"),
    Type.TEXT: ("BYTE_ARRAY", "String"),
}
"""Parquet's names of column types: the stored type, then its logical types as in pyarrow."""

_HEAD, _TAIL = 4, 8
"""Bytes before the first row group, and after the footer (its length and the magic)."""
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_MOST_FOOTER = 3 << 20
"""Most bytes of a footer. A table of 1e9 rows has less. A 3 MiB footer can take 1 GiB parsed."""
_MOST_PARTS = 100_000
"""Most row groups or columns."""
_MOST_COLUMN = 256 << 20
"""Most bytes of a column in a row group, unpacked: half a million texts of 500 bytes."""


@dataclass(frozen=True)
class TableFile:
    """An open file that has the columns of its table, with valid types.

    `absent` holds columns that were added to the format after the trace was made. They are null.
    `rows` is the number of rows.
    """

    table: Table
    path: Path
    file: BinaryIO
    absent: frozenset[str]
    rows: int

    @property
    def place(self) -> str:
        """A path of this process to the open file, independent of its current name."""
        return f"/proc/self/fd/{self.file.fileno()}"

    def select(self, numbered: bool = False) -> str:
        """Returns SQL for the rows, with only the declared columns in their order.

        `numbered` adds the column `row`: the row's place in the file (from 0), which is the order
        in which events with equal times were recorded.

        Reading a text that is longer than its column's `longest` is an error. A number that is
        not finite is null: nothing measures infinity.
        """
        columns = ", ".join(self._column(column) for column in self.table.columns)
        if numbered:
            columns += ", file_row_number AS row"
        options = "hive_partitioning = false" + ", file_row_number = true" * numbered
        return f"SELECT {columns} FROM read_parquet('{self.place}', {options})"

    def _column(self, column: Column) -> str:
        name = f'"{column.name}"'
        if column.name in self.absent:
            return f"NULL::{SQL_TYPES[column.type]} AS {name}"
        if column.type is Type.FLOAT64:
            return f"CASE WHEN isfinite({name}) THEN {name} END AS {name}"
        if column.type is not Type.TEXT:
            return name
        long = f"a text of the column {column.name} has more than {column.longest} bytes"
        return (
            f"CASE WHEN strlen({name}) > {column.longest} THEN error('{long}') ELSE {name} END"
            f" AS {name}"
        )


def open_table(path: Path, table: Table, mend: str) -> TableFile:
    """Returns the table's open file. Raises BadTrace, ending with `mend`, or FileNotFoundError."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        said = getattr(error, "strerror", None) or error
        raise BadTrace(f"{path} cannot be read: {said}", mend) from None
    try:
        return TableFile(table, path, file, *_checked(file, table))
    except ValueError as error:
        file.close()
        raise BadTrace(f"{path} is damaged: {error}", mend) from None
    except BaseException:
        file.close()
        raise


def _checked(file: BinaryIO, table: Table) -> tuple[frozenset[str], int]:
    """Returns the columns that the file lacks, and its number of rows.

    Raises ValueError if it does not fit the table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_footer(file)
    limits = {
        "thrift_string_size_limit": _MOST_FOOTER,
        "thrift_container_size_limit": _MOST_PARTS,
    }
    try:
        with pq.ParquetFile(f"/proc/self/fd/{file.fileno()}", **limits) as opened:
            return _absent(opened.schema, opened.metadata, table), opened.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error).splitlines()[0][:200] if str(error) else "unreadable") from None


def _absent(found: Any, facts: Any, table: Table) -> frozenset[str]:
    names = [found.column(number).path for number in range(facts.num_columns)]
    places = {name: number for number, name in enumerate(names)}
    often = Counter(map(str.lower, names))  # DuckDB ignores case and takes the first match
    for column in table.columns:
        if often[column.name] > 1:
            raise ValueError(f"it has {often[column.name]} columns called {column.name}")
        if column.name in places:
            _check_column(found.column(places[column.name]), column)
        elif not column.nullable:
            raise ValueError(f"it lacks the column {column.name}")
    known = [places[column.name] for column in table.columns if column.name in places]
    rows = 0
    for group in (facts.row_group(number) for number in range(facts.num_row_groups)):
        rows += group.num_rows
        if group.num_columns != len(names):
            raise ValueError("a row group has other columns than the table")
        for chunk in (group.column(number) for number in known):
            size = chunk.total_uncompressed_size
            if chunk.file_path or not 0 <= size <= _MOST_COLUMN:
                raise ValueError(f"the column {chunk.path_in_schema} unpacks to {size} bytes")
            if chunk.num_values != group.num_rows:
                said = f"the column {chunk.path_in_schema} has {chunk.num_values} values"
                raise ValueError(f"{said} in a row group of {group.num_rows} rows")
    if rows != facts.num_rows:
        raise ValueError(f"it claims {facts.num_rows} rows, and its row groups {rows}")
    return frozenset(column.name for column in table.columns if column.name not in places)


def _check_footer(file: BinaryIO) -> None:
    """Raises ValueError if the file has no footer or one larger than a table needs."""
    size = file.seek(0, 2)
    if size < _HEAD + _TAIL:
        raise ValueError("it is not a Parquet file")
    file.seek(size - _TAIL)
    tail = file.read(_TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] == _ENCRYPTED:
        raise ValueError("it is encrypted")
    if tail[4:] != _MAGIC or length > size - _HEAD - _TAIL:
        raise ValueError("it is not a Parquet file, or is cut off")
    if length > _MOST_FOOTER:
        raise ValueError(f"its footer has {length} bytes")


def _check_column(found: Any, column: Column) -> None:
    """Raises ValueError if a column has another type, or may wrongly be null."""
    stored, *meanings = _PARQUET_TYPES[column.type]
    kind, meaning = found.physical_type, str(found.logical_type)
    if found.max_repetition_level or kind != stored or meaning not in meanings:
        said = kind if meaning == "None" else f"{kind}, {meaning}"
        raise ValueError(f"its column {column.name} is {said}, not {column.type.value}")
    if not column.nullable and found.max_definition_level:
        raise ValueError(f"its column {column.name} may be null")
