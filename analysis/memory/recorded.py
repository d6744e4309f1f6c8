"""A recording's accesses of the page cache as input of the models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import FAULT, READ, REMOVE, WRITE, PageRuns
from tracer.analysis.memory.read_around import without_read_around
from tracer.analysis.memory.taken_back import Rows, without_taken_back
from tracer.analysis.views.lives import Lives, lives_of
from tracer.analysis.views.phases.partial_epochs import begun, is_partial, partial_epochs
from tracer.analysis.views.reading.page_states import ACCESS, ADD, DELETE, NOTHING
from tracer.analysis.views.reading.page_states import FAULT as TOUCHED
from tracer.analysis.views.reading.page_states import MAP as MAPPED
from tracer.analysis.views.reading.page_uses import IN_CONTEXT, VIEW, page_uses
from tracer.analysis.views.stretches import joined
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_USES = {ACCESS: READ, TOUCHED: FAULT, MAPPED: FAULT, ADD: WRITE}
_KINDS = _USES | {DELETE: REMOVE}
_NO_EPOCH = -1

# If accesses are inferred, no event tells what others do with the pages that they bring in.
_ADDED = f"u.kind = {NOTHING} AND u.read > 0 AND u.target IS NULL"
_KIND = f"if($unseen AND {_ADDED}, {ADD}, u.kind)"
_FILES = "SELECT base, pages FROM page_files ORDER BY file"
# Whoever uses no page, and only removes files or reads ahead, is no tenant. An epoch in which a
# tenant uses no page counts if all of it was recorded. The groups of a tenant are in order of time:
# outside of epochs, then by the begin of the epoch, or if nobody marked it, its first use.
_GROUPS = f"""
CREATE OR REPLACE TEMP TABLE page_groups AS
WITH sums AS (
    SELECT coalesce(target, '') AS target, coalesce(epoch, {_NO_EPOCH}) AS epoch,
        coalesce(pass, 1) AS pass, sum(read)::BIGINT AS read, min(ts) AS used,
        bool_or({_KIND} IN {tuple(_USES)} AND pages > 0 AND accessed >= 0) AS uses
    FROM {IN_CONTEXT} u GROUP BY ALL
), users AS (
    SELECT target, epoch, pass, read, used FROM sums
    QUALIFY bool_or(uses) OVER (PARTITION BY target)
), those AS (
    SELECT target, bool_or(epoch != {_NO_EPOCH}) AS in_epochs FROM users
    WHERE target != '' GROUP BY target
), idle AS (
    SELECT DISTINCT t.target, m.epoch, m.pass, 0::BIGINT AS read, NULL::BIGINT AS used
    FROM those t, partial_epochs m
    WHERE (m.target = t.target OR (m.everybodys AND t.in_epochs)) AND m.epoch != {_NO_EPOCH}
), listed AS (
    SELECT target, epoch, pass, read, used FROM users UNION ALL
    SELECT target, epoch, pass, read, used FROM idle ANTI JOIN users USING (target, epoch, pass)
    WHERE NOT {is_partial("idle")}
), timed AS (
    SELECT *, {is_partial("listed")} AS partial, coalesce({begun("listed")}, used) AS begun
    FROM listed
)
SELECT (row_number() OVER (
        ORDER BY target, epoch != {_NO_EPOCH}, begun, epoch, pass
    ) - 1)::INTEGER AS number,
    (dense_rank() OVER (ORDER BY target) - 1)::INTEGER AS tenant, target, epoch, pass, read, partial
FROM timed
"""
_RUNS = f"""
SELECT u.ts, f.base + u.first AS first, u.first AS index, u.pages::INTEGER AS pages,
    u.file::INTEGER AS file, {_KIND}::TINYINT AS kind, u.tid, u.accessed < 0 AS taken_back,
    coalesce(g.number, 0) AS number, coalesce(g.tenant, 0) AS tenant
FROM {IN_CONTEXT} u JOIN page_files f USING (file) LEFT JOIN page_groups g
    ON coalesce(u.target, '') = g.target AND coalesce(u.epoch, {_NO_EPOCH}) = g.epoch
    AND coalesce(u.pass, 1) = g.pass
WHERE u.pages > 0 AND ({_KIND} IN {tuple(_USES)} OR (u.kind = {DELETE} AND $removals))
    AND (g.number IS NOT NULL OR (u.kind = {DELETE} AND EXISTS (FROM page_groups)))
ORDER BY u.row
"""


@dataclass(frozen=True)
class Recorded:
    """Accesses of a recording, and the names of their groups and tenants."""

    runs: PageRuns
    groups: pd.DataFrame
    """A row per group: tenant, its target (None: others; they have a name if the trace is
    everybody's), epoch (null: in none), pass (of its processes through that epoch, from 1; null: in
    none), and partial (true: only a part of the epoch was recorded; null: in none, or nobody marked
    it). Those of a tenant are in order of time."""
    targets: list[str | None]
    """The target of each tenant; None: others, as in `groups`."""
    read: NDArray[np.int64]
    """Pages that the recording brought into the cache, by group (int64[groups])."""
    page_bytes: int

    @property
    def mapped_share(self) -> dict[str, float]:
        """The share of each target's uses that go through mappings; targets without are left out.

        Later uses of a page that is mapped already make no event, so the runs lack them.
        """
        runs = self.runs
        faults, uses = (
            np.bincount(runs.tenant, runs.pages * np.isin(runs.kind, kinds), len(self.targets))
            for kinds in ((FAULT,), (FAULT, READ))
        )
        return {
            name: float(count / of)
            for name, count, of in zip(self.targets, faults, uses, strict=True)
            if name is not None and count > 0
        }

    @property
    def mapped_bytes(self) -> dict[str, int]:
        """The size of the pages that each target uses through mappings; each page counts once.

        Targets without such pages are left out.
        """
        runs = self.runs
        found = {}
        for tenant, name in enumerate(self.targets):
            mine = (runs.kind == FAULT) & (runs.tenant == tenant)
            first = runs.first[mine].astype(np.int64)
            mapped = joined(first, first + runs.pages[mine])
            count = int((mapped[:, 1] - mapped[:, 0]).sum())
            if name is not None and count > 0:
                found[name] = count * self.page_bytes
        return found


MUCH_MAPPED = 0.1
"""Share of uses through mappings, or of a cache that such pages fill, from which a prediction is
said to lack uses."""


def recorded(trace: Trace) -> Recorded:
    """Returns the accesses of all processes. Needs the table page_cache."""
    page_uses(trace)
    partial_epochs(trace)
    files = trace.arrow(_FILES)
    inferred = bool(trace.rows(f"SELECT 1 FROM {VIEW} WHERE inferred LIMIT 1"))
    unseen = str(inferred and not of_everybody(trace))
    trace.execute(_GROUPS.replace("$unseen", unseen))
    groups = trace.sql(
        "SELECT tenant, target, epoch, pass, partial, read FROM page_groups ORDER BY number"
    )
    # Without the events of reclaim, an eviction looks like a removal.
    told = str("reclaim" in trace.tables)
    found = trace.arrow(_RUNS.replace("$removals", told).replace("$unseen", unseen))
    rows = {name: found[name].to_numpy() for name in found.column_names}
    rows = without_taken_back(rows, rows["kind"] == MAPPED, rows["kind"] == ACCESS)
    kinds = np.zeros(max(_KINDS) + 1, np.int8)
    kinds[list(_KINDS)] = list(_KINDS.values())
    mapped = np.isin(rows["kind"], (TOUCHED, MAPPED))
    alone = mapped & np.isin(rows["file"], without_read_around(trace))
    reader = _readers(rows, len(files), lives_of(trace), alone)
    runs = PageRuns(
        first=rows["first"],
        pages=rows["pages"],
        file=rows["file"],
        reader=reader,
        tenant=rows["tenant"],
        kind=kinds[rows["kind"]],
        group=rows["number"],
        base=files["base"].to_numpy().astype(np.int64),
        size_pages=files["pages"].to_numpy().astype(np.int64),
        random=_random(reader, alone),
        ts=rows["ts"],
    )
    others = name_of_others(trace) if of_everybody(trace) else None
    groups["target"] = pd.Series([name or others for name in groups["target"]], dtype=object)
    names = groups.drop_duplicates("tenant")["target"]
    groups["epoch"] = groups["epoch"].astype("Int64").where(groups["epoch"] != _NO_EPOCH)
    groups["pass"] = groups["pass"].astype("Int64").where(groups["epoch"].notna())
    groups["partial"] = groups["partial"].astype("boolean")
    page = page_bytes(trace.manifest)
    return Recorded(
        runs,
        groups.drop(columns="read"),
        names.tolist(),
        groups["read"].to_numpy(np.int64),
        page,
    )


def _random(reader: NDArray[np.int32], alone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns one flag per reader: True if its uses are `alone`."""
    flags = np.zeros(int(reader.max(initial=-1)) + 1, np.bool_)
    flags[reader[alone]] = True
    return flags


def _readers(rows: Rows, files: int, lives: Lives, alone: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Returns a number for each time that a thread opens a file.

    Uses through mappings without read-ahead (`alone`) have readers of their own.
    No event tells of that, so a thread that reads the first page of a file is taken to have opened
    it anew.
    """
    tid = rows["tid"].astype(np.int64)
    life = lives.of(tid, rows["ts"])
    # Nothing is known of a thread without a life but its number.
    reader = np.where(life >= 0, life, len(lives.tid) + tid)
    thread = pd.factorize(reader * (files + 1) + rows["file"])[0]
    begins = (rows["index"] == 0) & (rows["kind"] == ACCESS)
    opened = pd.Series(begins).groupby(thread).cumsum().to_numpy(np.int64)
    each = 2 * (thread * (len(thread) + 1) + opened) + alone
    numbers: NDArray[np.int32] = pd.factorize(each)[0].astype("i4")
    return numbers
