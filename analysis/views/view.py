"""What a view is: a table made of a trace's tables, declared once, with its columns and units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from probes.schema import Column, Type
from tracer.store.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

_DTYPES = {
    Type.INT16: "Int16",
    Type.INT32: "Int32",
    Type.INT64: "Int64",
    Type.UINT64: "UInt64",
    Type.FLOAT64: "Float64",
    Type.BOOL: "boolean",
    Type.TEXT: "object",
}
"""Pandas' types that have a null: no number becomes another because a row lacks one."""


@dataclass(frozen=True)
class View:
    """A named function over a trace's tables; in SQL, a table of that name."""

    name: str
    about: str
    """What a row is, in a sentence."""
    columns: tuple[Column, ...]
    needs: tuple[str, ...]
    """Tables without which there is no such view; others sharpen what it says."""
    build: Callable[[Trace], None]
    """Makes it where it is not yet made and the tables are there."""
    example: str
    """One useful SQL query, shown by `tracer query --help`."""

    def make(self, trace: Trace) -> str:
        """Make the view, unless it is made; returns its name in SQL.

        Raises BadTrace where the trace lacks a table that it needs.
        """
        trace.require(*self.needs)
        if not is_made(trace, self.name):
            self.build(trace)
        return self.name

    def frame(self, trace: Trace, where: str = "true", columns: Sequence[str] = ()) -> pd.DataFrame:
        """Its rows for which `where` (SQL) holds, in `columns` or in all; null is pandas' NA.

        A frame lies in memory whole: of millions of rows ask for less, or ask in SQL for sums.
        """
        import pandas as pd

        chosen = [c for c in self.columns if not columns or c.name in columns]
        names = ", ".join(f'"{c.name}"' for c in chosen)
        view = self.make(trace)
        rows = trace.arrow(f'SELECT {names} FROM "{view}" WHERE {where}')
        return pd.DataFrame(
            {
                column.name: pd.Series(
                    rows[column.name].to_pandas(integer_object_nulls=True),
                    dtype=_DTYPES[column.type],
                )
                for column in chosen
            }
        )


def apart(later: str, earlier: str) -> str:
    """SQL for the time (ns) between two moments; null where 64 bits do not hold it.

    A trace may be of anybody's making, and its clock may jump as it likes.
    """
    return f"try_cast(({later})::HUGEINT - ({earlier}) AS BIGINT)"


def is_made(trace: Trace, name: str) -> bool:
    """Whether the trace's connection has a table or view of ours of that name."""
    made = (
        "SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND temporary"
        " UNION ALL SELECT 1 FROM duckdb_views() WHERE view_name = ? AND temporary"
    )
    return bool(trace.connection.execute(made, [name, name]).fetchall())
