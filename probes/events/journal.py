"""The journal of ext4: what its thread does to commit a transaction, step by step.

A call that makes a file durable often waits for a commit, which also holds what others changed.

- commit_start: the transaction takes no new changes; the thread waits for those that are under way.
- commit_flushing: the thread submits the data of files in the transaction (data=ordered).
- commit_logging: it writes the changed metadata into the journal, waits for that and for the data,
  and writes the commit record, mostly with a flush of the device's cache.
- commit_end: the transaction is durable.

Kernel: include/trace/events/jbd2.h, jbd2_journal_commit_transaction() in fs/jbd2/commit.c.
"""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
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
    "journal",
    "One row per step of a commit of ext4's journal, in the context of the journal's thread.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("dev", Type.TEXT, "file system, MAJOR:MINOR"),
        Column("transaction_id", Type.INT64, "number of the transaction"),
    ),
    example="SELECT dev, count(*) commits FROM journal WHERE event = 'commit_end' GROUP BY ALL",
)

_STEP = {
    "dev": device("dev"),
    "transaction_id": number("transaction"),
}

PROBE = Probe(
    "journal",
    "commits of ext4's journal; machine-wide",
    TABLE,
    (
        Event("jbd2:jbd2_start_commit", "commit_start", _STEP),
        Event("jbd2:jbd2_commit_flushing", "commit_flushing", _STEP),
        Event("jbd2:jbd2_commit_logging", "commit_logging", _STEP),
        Event("jbd2:jbd2_end_commit", "commit_end", _STEP),
    ),
    Scope.MACHINE,
    rate="four events per commit: every 5 s, and for many calls of fsync",
    optional=True,
)
