"""Samples for a terminal: one table per target and one for the machine. Counters show as rates."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.console import Console

from tracer.analysis.report.tables import records
from tracer.cli.output import print_table
from tracer.digits import counted
from tracer.probes.sampler.catalogue import COUNTERS

_MOST_ROWS = 40
_SHOWN = ("min", "mean", "max", "last")
_LARGE = {"bytes": ("MiB", 1 << 20), "bytes/s": ("MiB/s", 1 << 20), "Hz": ("MHz", 1_000_000)}
"""Larger units in which values of a small unit are shown."""
_COUNTERS = {series.name for series in COUNTERS.values()}


def print_samples(out: Console, frame: pd.DataFrame) -> None:
    """Prints the report's table `samples`, without idle instances (such as unused disks)."""
    tables: dict[str | None, list[list[Any]]] = {}
    for row in records(frame):
        idle = row["instance"] is not None and not row["max"]
        if row["name"] in _COUNTERS or idle:
            continue
        unit, size = _LARGE.get(row["unit"], (row["unit"], 1))
        values = [row[column] / size for column in _SHOWN]
        name = " ".join(filter(None, (row["name"], row["instance"])))
        tables.setdefault(row["target"], []).append([name, *values, unit])
    for target, rows in tables.items():
        left_out = len(rows) - _MOST_ROWS
        print_table(
            out,
            "Samples of the machine" if target is None else f"Samples of {target}",
            ("series", *_SHOWN, "unit"),
            rows[:_MOST_ROWS],
            left=("series", "unit"),
            note=f"{counted(left_out, 'more row')} with --json." if left_out > 0 else "",
        )
