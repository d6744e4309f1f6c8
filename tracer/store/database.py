"""The DuckDB of a trace: how much of the machine it takes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MOST_THREADS = 8
"""Most threads of DuckDB: more threads cost more memory than they save time."""
ROW_GROUP = 122_880
"""Rows of a row group of DuckDB's tables, which one thread reads."""
_THREAD_BYTES = 88 << 20
"""DuckDB's memory limit for each thread that a large trace has, and for two more; beyond it, DuckDB
spills."""


def threads_for(rows: Iterable[int], cpus: int) -> int:
    """Returns the number of DuckDB's threads for tables with so many rows, at most `cpus`.

    Tables of one row group each have one thread: more would only wake each other, which takes a
    fifth more CPU time.
    """
    return 1 if max(rows, default=0) <= ROW_GROUP else min(MOST_THREADS, cpus)


def integer_type(most: int) -> str:
    """Returns DuckDB's shortest type for the integers from 0 to `most`, of 2 bytes or more."""
    return "SMALLINT" if most < 1 << 15 else "INTEGER" if most < 1 << 31 else "BIGINT"


def connect(rows: Iterable[int], cpus: int | None, spill: str) -> duckdb.DuckDBPyConnection:
    """Returns a connection to a database in memory, which spills to the folder `spill`.

    `rows` are the numbers of rows of the tables to ask, and `cpus` is the number of CPUs to use, or
    None for all.
    """
    import duckdb

    cpus = cpus or len(os.sched_getaffinity(0))
    return duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # Nothing is on a disk. A checkpoint reads tables back from where they were spilled.
            "checkpoint_threshold": "1TiB",
            "temp_directory": spill,
            "threads": threads_for(rows, cpus),
            "memory_limit": f"{(min(MOST_THREADS, cpus) + 2) * _THREAD_BYTES}B",
        }
    )
