"""Buffer heads: metadata blocks touched and dirtied (Park & Bahn 2023, Table 5, two rows)."""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
    DEV,
    EVENT,
    PID,
    TID,
    TS,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    device,
    number,
)

TABLE = Table(
    "buffers",
    "One row per buffer touched or dirtied.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        DEV,
        Column("sector", Type.UINT64, "block number, in blocks of `size`", "blocks"),
        Column("size", Type.INT64, "size of the block", "bytes"),
    ),
    example="SELECT event, count(*) FROM buffers GROUP BY 1",
)

_BUFFER = {"dev": device("dev"), "sector": number("sector"), "size": number("size")}

PROBE = Probe(
    "buffers",
    "buffer heads touched and dirtied, machine-wide",
    TABLE,
    (
        Event("block:block_touch_buffer", "touch_buffer", _BUFFER),
        Event("block:block_dirty_buffer", "dirty_buffer", _BUFFER),
    ),
    Scope.MACHINE,
    rate="a few events per metadata operation",
)
