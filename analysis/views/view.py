"""The class of views: tables derived from a trace's tables, declared with columns and units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracer.probes.schema import Column, Type
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
"""Pandas types with a null, so that a null does not turn integers into floats."""


@dataclass(frozen=True)
class View:
    """A named function over a trace's tables. In SQL, it is a table of that name."""

    name: str
    about: str
    """Description of a row, in one sentence."""
    columns: tuple[Column, ...]
    needs: tuple[str, ...]
    """Tables that the view requires. Other tables are used if the trace has them."""
    build: Callable[[Trace], None]
    """Function that makes the view. The required tables exist, and the view does not."""
    example: str
    """One useful SQL query, shown by `tracer query --help`."""

    def make(self, trace: Trace) -> str:
        """Makes the view if it does not exist yet, and returns its name in SQL.

        Raises BadTrace if the trace lacks a table that the view needs.
        """
        trace.require(*self.needs)
        make_once(trace, self.name, self.build)
        return self.name

    def frame(self, trace: Trace, where: str = "true", columns: Sequence[str] = ()) -> pd.DataFrame:
        """Returns the rows for which `where` (SQL) holds, in `columns` or in all columns.

        Rows are in no order, unless the view has one. Null is pandas' NA. The whole frame is in
        memory: for millions of rows, request fewer rows and columns, or compute sums in SQL.
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
    """Returns SQL for the time (ns) between two moments; null if it does not fit into 64 bits.

    A trace is untrusted input, so its times may be arbitrary.
    """
    return f"try_cast(({later})::HUGEINT - ({earlier}) AS BIGINT)"


def make_once(trace: Trace, name: str, build: Callable[[Trace], None]) -> None:
    """Makes the table or view `name` by `build`, unless the trace's connection has it."""
    if name not in trace.made:
        build(trace)
        trace.made.add(name)
