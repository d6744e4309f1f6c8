"""The declaration of a report's table: the terminal, the page and JSON are made from it.

A merged table is made in two steps, so that the tables of many traces can be merged into one. The
first step makes the parts of a trace: counts, sums, extremes and histograms, one row per key. The
parts of several traces are added up key by key. The second step computes the shares, means and
quantiles of the table from the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from tracer.analysis.report.mergeable import added
from tracer.analysis.views.context import PASS as OF_VIEWS
from tracer.store.trace import Trace


@dataclass(frozen=True)
class Column:
    """One column. The end of its name is its unit (total_s, mean_us, p99_ms, mib)."""

    name: str
    doc: str
    heading: str = ""
    """Heading on a terminal; "": the column is only on the page and in JSON."""
    text: bool = False
    """The terminal aligns its cells left."""
    factor: float = 1
    """The terminal shows values times this number."""
    rare: bool = False
    """The frame may lack the column, if it has nothing to tell apart."""
    gives_way: bool = False
    """The terminal leaves it out beside a rare column, which needs its room."""


@dataclass(frozen=True)
class ReportTable:
    """One table of the report."""

    name: str
    """The table's name in JSON."""
    title: str
    columns: tuple[Column, ...]
    needs: tuple[str, ...]
    """The trace's tables without which it cannot be made."""
    make: Callable[[Trace], pd.DataFrame] | None = None
    """Makes the frame; None: an option of the report makes it."""
    note: str = ""
    """Sentences about several columns."""

    def of(self, trace: Trace) -> pd.DataFrame:
        """Returns the table of one trace."""
        if self.make is None:
            raise TypeError(f"an option of the report makes the table {self.name}")
        return self.make(trace)

    def is_possible(self, trace: Trace) -> bool:
        """Returns whether the trace has the tables that this one needs."""
        return all(need in trace.tables for need in self.needs)

    @property
    def meaning(self) -> str:
        """The columns in words, one per line."""
        return "\n".join(f"{column.name}: {column.doc}" for column in self.columns)


@dataclass(frozen=True, kw_only=True)
class MergedTable(ReportTable):
    """A table that is computed from parts that can be merged over traces."""

    keys: tuple[str, ...]
    """Columns that identify a row of the parts. Columns named min_... and max_... are extremes.
    All other columns are sums; null means that there was nothing to sum."""
    unknown: tuple[str, ...] = ()
    """Columns whose null means that the value is not known: the sum with another one is null."""
    parts: Callable[[Trace], pd.DataFrame]
    """Makes the parts of one trace, one row per key."""
    finish: Callable[[pd.DataFrame], pd.DataFrame]
    """Makes the table from the parts."""

    def of(self, trace: Trace) -> pd.DataFrame:
        """Returns the table of one trace."""
        return self.finish(self.parts(trace))

    def together(self, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Returns the merged parts of several traces. Merging is associative and commutative."""
        return added(pd.concat(list(parts), ignore_index=True), self.keys, self.unknown)


QUANTILES = "Quantiles are off by less than 1/128; those of few values are exact."
"""Note of the tables whose quantiles come from `tracer.analysis.report.histogram.spread`."""

PASS = Column(
    OF_VIEWS.name, f"{OF_VIEWS.doc}; missing if no process does so", OF_VIEWS.name, rare=True
)
"""Column of the tables by epoch."""
