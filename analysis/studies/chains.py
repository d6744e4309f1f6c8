"""Call paths to events on the disk of a run: Table 6 and claim P4 of Park & Bahn 2023.

Call graphs are recorded on the whole machine, and the trace is written to another disk. So only
events on the run's own disk count. Reads of dropped caches are on that disk, too: shares are given
of all events, and of those that are writes.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracer.analysis.report.perf import summed
from tracer.analysis.views.call_graphs import WRITE_BACK, call_chains
from tracer.store.devices import Devices
from tracer.store.trace import Trace

INSERT = "block:block_rq_insert"
MEASURES = (
    "insert_by_wb_workfn",
    "insert_by_wb_workfn_why",
    "insert_writes_by_wb_workfn",
    "insert_reads",
    "insert_other_disks",
)
"""The names of the measures."""

_OWN = "own_disk_chains"


def own_chains(trace: Trace, dev: str | None) -> pd.DataFrame:
    """Returns the call paths to each event on the disks of `dev`; None: on all devices together.

    Columns: event, chain, count, share, writes, write_share (null: the event names no operation, or
    none is a write), other_disks (share of all counts of the event that are not on these disks;
    null: the event names no device, or `dev` is None), comm, stacks, path (of the most frequent
    stack, from the function that identifies the chain). Events that name no device all count,
    except those of the block layer, of which the disk is then not known.
    """
    rows = _own(trace, dev)
    frame = summed(trace, f'(SELECT * REPLACE (NULL::VARCHAR AS dev) FROM "{rows}" WHERE on_disk)')
    other = trace.sql(
        f"""
        SELECT event, CASE WHEN bool_or(by_device)
            THEN coalesce(sum(count) FILTER (NOT on_disk), 0) / sum(count) END AS other_disks
        FROM "{rows}" GROUP BY event
        """
    )
    found = frame.drop(columns="dev").merge(other, on="event", how="left")
    place = found.columns.get_loc("comm")
    assert isinstance(place, int)
    found.insert(place, "other_disks", found.pop("other_disks"))
    return found


def chain_measures(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the measures of inserted requests on the disks of `dev`; None: on all devices.

    insert_by_wb_workfn and insert_writes_by_wb_workfn: the flusher's share of all of them, and of
    the writes. insert_reads: the reads' share. insert_other_disks: the share of all inserted
    requests of the machine that are on other disks.
    """
    rows = _own(trace, dev)
    found = trace.sql(
        f"""
        SELECT sum(count) FILTER (on_disk) AS n,
            sum(count) FILTER (on_disk AND chain = ?) AS flusher,
            sum(count) FILTER (on_disk AND operation = 'write') AS writes,
            sum(count) FILTER (on_disk AND operation = 'write' AND chain = ?) AS flusher_writes,
            sum(count) FILTER (on_disk AND operation = 'read') AS reads,
            count(operation) > 0 AS told,
            sum(count) FILTER (NOT on_disk) AS others, sum(count) AS every
        FROM "{rows}" WHERE event = ?
        """,
        WRITE_BACK,
        WRITE_BACK,
        INSERT,
    ).fillna(0)
    one = found.iloc[0]
    if not one["n"]:
        return {"insert_by_wb_workfn_why": _why_none(trace, dev, bool(one["every"]))}
    measures = {"insert_by_wb_workfn": one["flusher"] / one["n"]}
    if one["told"]:
        measures["insert_reads"] = one["reads"] / one["n"]
        if one["writes"]:
            measures["insert_writes_by_wb_workfn"] = one["flusher_writes"] / one["writes"]
    if dev is not None:
        measures["insert_other_disks"] = one["others"] / one["every"]
    return measures


def _own(trace: Trace, dev: str | None) -> str:
    """Makes a table of the rows of `call_chains` and returns its name.

    It adds by_device (the event names devices and `dev` is given) and on_disk (the row counts).
    """
    view = call_chains(trace)
    disks = [] if dev is None else Devices(trace.manifest).requested(dev)
    listed = ", ".join("'" + disk.replace("'", "''") + "'" for disk in disks) or "NULL"
    given = "false" if dev is None else "true"
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {_OWN} AS
        SELECT v.*, by_device,
            CASE WHEN by_device THEN coalesce(dev IN ({listed}), false) ELSE true END AS on_disk
        FROM {view} v JOIN (
            SELECT event, {given} AND (
                bool_or(dev IS NOT NULL) OR starts_with(event, 'block:')
            ) AS by_device
            FROM {view} GROUP BY event
        ) e ON v.event = e.event
        """
    )
    return _OWN


def _why_none(trace: Trace, dev: str | None, elsewhere: bool) -> str:
    """Returns the reason why no request was inserted on the run's disk."""
    if dev is None or not elsewhere:
        return f"no {INSERT} was recorded"
    known = {disk.get("dev"): disk.get("scheduler") for disk in trace.manifest["disks"]}
    schedulers = {known.get(disk) or "not known" for disk in Devices(trace.manifest).requested(dev)}
    said = ", ".join(sorted(schedulers)) or "not known"
    return f"no {INSERT} on the run's own disk was recorded (its scheduler: {said})"
