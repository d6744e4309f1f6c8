"""The answer of `tracer predict --memory`: reads of each target and epoch, with another memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.memory.clocks import BY_CLOCK, HIGH, LOW, ranged, summed
from tracer.analysis.memory.enough import enough_pages
from tracer.analysis.memory.knowledge import Knowledge, knowledge
from tracer.analysis.memory.own_memory import given_memory, sampled_memory
from tracer.analysis.memory.page_runs import REMOVE
from tracer.analysis.memory.prediction import KERNEL, MODELS, kernel_reads, predict
from tracer.analysis.memory.read_around import read_ahead_of
from tracer.analysis.memory.recorded import Recorded, recorded
from tracer.analysis.memory.resident import resident_misses
from tracer.analysis.memory.sharing import Sharing, recorded_limits, sharing
from tracer.analysis.memory.two_lists import clocks
from tracer.analysis.memory.warm import held_by_others, warm_pages, without_pages
from tracer.analysis.views.phases.marked_together import marked_together
from tracer.analysis.views.stretches import NO_TIME
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

RESIDENT = "resident"
BOUNDS = ("lru", "min", RESIDENT)
"""Models beside the kernel's: without read-ahead, so their pages read are those missed."""
_KIB = 1 << 10

_MOST = 1 << 62
"""More bytes of memory than any machine has."""

_READ_OF = """
SELECT dev FROM page_uses WHERE read > 0 AND (target IS NOT NULL OR $everybody)
GROUP BY dev ORDER BY sum(read) DESC LIMIT 1
"""
_LARGE = "SELECT 1 FROM page_cache WHERE event = 'add' AND pages > 1 LIMIT 1"


@dataclass(frozen=True)
class MemoryAnswer:
    """Predicted reads, and what they rest on."""

    reads: pd.DataFrame
    """A row per target, memory and epoch, in order of time. target, epoch (null: in none), pass (of
    its processes through that epoch, from 1; null: in none; missing if none begins anew with its
    numbers), partial (true: only a part of the epoch was recorded; null: in none), memory_bytes,
    cache_bytes (of these, for the page cache; of all targets that share the memory), used_pages,
    recorded_pages (read in the recording), and for each model MODEL_pages (read). The one of the
    kernel is that of the first of the clocks; two-lists_pages_by_clock is a list of those of each,
    two-lists_pages_low and two-lists_pages_high are the least and the most of them."""
    sums: pd.DataFrame
    """Targets that share the memory, together: a row per memory. targets (a list), and the columns
    of `reads` from memory_bytes on, all epochs added up."""
    clocks_ns: list[int | None]
    """Clocks of the kernel's statistics: times from the first access to the first update; None:
    always up to date."""
    shared: list[list[str]]
    """The targets of each limit that several targets share in the prediction."""
    recorded_shared: list[list[str]]
    """The targets of each limit that several targets shared in the recording."""
    other_cgroups: dict[str, list[str]]
    """Paths of the other cgroups below the limit of each target, which the kernel's model takes to
    have no page; targets without them are left out."""
    own_bytes: dict[str, int | None]
    """Memory of each target that is not page cache, or shared memory: as given, or the largest
    sample, which may miss a peak between two samples; None: not known, taken for 0. The kernel's
    model follows the samples over time; all others take this number."""
    own_median_bytes: dict[str, int | None]
    """The median of these samples."""
    without_shared: list[str]
    """Targets whose own memory lacks their shared memory, as their samples do not tell it."""
    limit_bytes: dict[str, int]
    """Tightest memory limit of each target in the recording; targets without one are left out."""
    error: dict[str, float]
    """Pages that the kernel's model reads at the recording's own limit, divided by those recorded,
    less 1; by target."""
    error_low: dict[str, float]
    """The least of these errors over the clocks of the model's statistics."""
    error_high: dict[str, float]
    """The largest one."""
    enough_bytes: dict[str, int]
    """Least memory at which plain LRU reads no page twice, own memory included; of a target that
    shares it, that of all targets that do."""
    read_ahead_bytes: int
    page_bytes: int
    lossy: bool | None
    """Events were lost, so pages may be missing; None: not known."""
    warm_pages: int
    """Pages that targets use, and that never come into the cache in the recording: they were there
    before. If events were lost, at most that many."""
    staying_pages: int | None
    """The same, if they stay there in the prediction; None: it begins with an empty cache."""
    reading_ns: int | None
    """Time from the first use of a file by a target to the last one; None: not known."""
    knowledge: Knowledge
    """The share of each target's reads that is not known, if accesses are inferred."""
    mapped_share: dict[str, float]
    """The share of each target's uses that go through mappings; targets without are left out."""
    mapped_bytes: dict[str, int]
    """The size of the pages that each target uses through mappings; each page counts once."""
    marked_together: dict[str, int]
    """Processes of a target that mark epochs of the same numbers: these count together; targets in
    which one process marks them are left out."""


def answer_memory(
    trace: Trace,
    memory: Sequence[int],
    own: int | None = None,
    read_ahead: int | None = None,
    shared: bool | None = None,
    warm: bool = False,
) -> MemoryAnswer:
    """Predicts the reads of each target for each amount of memory (bytes).

    `own`: memory of a target that is not page cache; None: as the samples have it. `read_ahead`:
    bytes of the kernel's read-ahead; None: as the device of the recording has it. `shared`: True if
    all targets have each amount together, False if each has it for itself; None: as they shared
    limits in the recording. `warm`: pages that were in memory before the recording stay there, and
    take no room of a target, instead of an empty cache. Raises UsageError if no target uses files,
    and BadTrace if the trace lacks the table page_cache.
    """
    trace.require("page_cache", "processes")
    for table in ("samples", "phases"):
        trace.empty_if_missing(table)
    taken = recorded(trace)
    names = [name for name in taken.targets if name is not None]
    if not names:
        who = "process" if of_everybody(trace) else "target"
        raise UsageError(
            f"no {who} of {trace.folder} used a file", "record one: tracer record -p PID ..."
        )
    own_memory = sampled_memory(trace, names) if own is None else given_memory(names, own)
    own_bytes = {name: own_memory.most(name) for name in names}
    there_before = warm_pages(trace, taken)
    stay = there_before if warm else NO_TIME
    beside = held_by_others(taken, stay)
    alone = replace(beside, runs=without_pages(taken.runs, stay))
    limits = recorded_limits(trace, names)
    as_recorded = sharing(trace, beside.targets, limits, None)
    now = as_recorded if shared is None else sharing(trace, beside.targets, limits, shared)
    ahead = read_ahead if read_ahead is not None else _read_ahead(trace)
    pages = ahead // taken.page_bytes
    large = bool(trace.rows(_LARGE))

    def kernel(under: Sharing, amounts: list[list[int]]) -> NDArray[np.int64]:
        members = [under.members(number) for number in range(under.limits)]
        return kernel_reads(
            under.charged(beside.runs), _capacities(taken, under, {}, amounts), pages,
            large_folios=large, limits=under.limit_of_cgroup, page_bytes=taken.page_bytes,
            own=own_memory.below(members, taken.page_bytes),
        )  # fmt: skip

    amounts = [[amount] * now.limits for amount in memory]
    by_clock = kernel(now, amounts)
    # More than all pages is as good as all.
    most = max(1, taken.runs.all_pages)
    wanted = np.minimum(_capacities(taken, now, own_bytes, amounts), most)
    whole = alone.runs.as_one(now.limit)
    wanted = wanted[: whole.tenants]
    found = {
        KERNEL: by_clock[0],
        "lru": predict(whole, wanted, model="lru").read,
        "min": predict(whole, wanted, model="min").read,
        RESIDENT: resident_misses(whole, wanted),
    }
    reads = _frame(taken, memory, now, own_bytes, found, by_clock)
    least = [
        min((limits.bytes.get(name, _MOST) for name in as_recorded.members(number)), default=_MOST)
        for number in range(as_recorded.limits)
    ]
    gaps = trace.manifest["loss"].get("windows")
    again = kernel(as_recorded, [least])
    errors = _errors(taken, again[:, :, 0])
    warm_count = int((there_before[:, 1] - there_before[:, 0]).sum())
    return MemoryAnswer(
        reads,
        _sums(reads, now),
        clocks(taken.runs),
        now.shared,
        as_recorded.shared,
        now.others,
        own_bytes,
        {name: own_memory.median(name) for name in names},
        own_memory.without_shared,
        limits.bytes,
        {name: each[0] for name, each in errors.items()},
        {name: min(each) for name, each in errors.items()},
        {name: max(each) for name, each in errors.items()},
        _enough_bytes(alone, now, own_bytes),
        ahead,
        taken.page_bytes,
        None if gaps is None else gaps > 0,
        warm_count,
        warm_count if warm else None,
        _reading_ns(taken),
        knowledge(trace),
        taken.mapped_share,
        taken.mapped_bytes,
        _together(trace, names),
    )


def _reading_ns(taken: Recorded) -> int | None:
    """Returns the time from the first use of a file by a target to the last one."""
    named = np.array([name is not None for name in taken.targets])
    times = taken.runs.ts[named[taken.runs.tenant] & (taken.runs.kind != REMOVE)]
    return int(times.max()) - int(times.min()) if len(times) else None


def _together(trace: Trace, names: Sequence[str]) -> dict[str, int]:
    """Returns how many processes of these targets mark epochs of the same numbers."""
    others = name_of_others(trace) if of_everybody(trace) else None
    found = {target or others: count for target, count in marked_together(trace).items()}
    return {name: found[name] for name in names if name in found}


def _capacities(
    taken: Recorded, under: Sharing, own: dict[str, int | None], memory: list[list[int]]
) -> NDArray[np.int64]:
    """Returns the pages that fit below each limit beside the own memory (int64[limit, amount]).

    The limit of other processes has room for all.
    """
    found = np.empty((under.limits, len(memory)), np.int64)
    for number in range(under.limits):
        names = under.members(number)
        for at, amounts in enumerate(memory):
            free = max(0, amounts[number] - _own(names, own)) if names else _MOST
            found[number, at] = min(free // taken.page_bytes, _MOST)
    return found


def _own(names: Sequence[str], own: dict[str, int | None]) -> int:
    """Returns the bytes of these targets that are not page cache, as far as they are known."""
    return sum(own.get(name) or 0 for name in names)


def _frame(
    taken: Recorded,
    memory: Sequence[int],
    under: Sharing,
    own: dict[str, int | None],
    found: dict[str, NDArray[np.int64]],
    by_clock: NDArray[np.int64],
) -> pd.DataFrame:
    used = taken.runs.accessed()
    owns = {
        name: _own(names, own)
        for number in range(under.limits)
        for names in [under.members(number)]
        for name in names
    }
    parts = []
    for at, amount in enumerate(memory):
        free = {name: max(0, amount - mine) for name, mine in owns.items()}
        part = taken.groups.assign(
            memory_bytes=amount,
            used_pages=_padded(used, len(taken.groups)),
            recorded_pages=taken.read,
        )
        # Other processes have no target, and their rows are left out.
        part["cache_bytes"] = [free.get(name, 0) for name in part["target"]]
        for model, pages in found.items():
            part[f"{model}_pages"] = _padded(pages[:, at], len(taken.groups))
            if model == KERNEL:
                part = part.assign(**ranged(_padded(by_clock[:, :, at], len(taken.groups))))
        parts.append(part[part["target"].notna()].drop(columns="tenant"))
    reads = pd.concat(parts, ignore_index=True)
    return reads if (reads["pass"] > 1).any() else reads.drop(columns="pass")


def _sums(reads: pd.DataFrame, under: Sharing) -> pd.DataFrame:
    """Returns the reads of targets that share a limit, added up."""
    counts = [str(column) for column in reads if str(column).endswith("_pages")]
    parts = []
    for names in under.shared:
        mine = reads[reads["target"].isin(names)]
        groups = mine.groupby(["memory_bytes", "cache_bytes"])
        part = groups[counts].sum().reset_index()
        part = part.assign(**ranged(np.array([summed(rows) for _, rows in groups]).T))
        part.insert(0, "targets", pd.Series([names] * len(part), dtype=object))
        parts.append(part)
    if not parts:
        ranges = LOW, HIGH, BY_CLOCK
        return pd.DataFrame(columns=["targets", "memory_bytes", "cache_bytes", *counts, *ranges])
    return pd.concat(parts, ignore_index=True)


def _padded(values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Returns values of all groups (the last axis): the last ones may have no run."""
    more = length - values.shape[-1]
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)])


def _errors(taken: Recorded, again: NDArray[np.int64]) -> dict[str, list[float]]:
    """Returns the errors of the kernel's model on the recording, by target and clock.

    `again`: pages read by clock and group.
    """
    pages = _padded(again, len(taken.groups))
    errors = {}
    for name, rows in taken.groups.groupby("target"):
        read = int(taken.read[rows.index].sum())
        if read > 0:
            predicted = pages[:, rows.index].sum(axis=1).tolist()
            errors[str(name)] = [count / read - 1 for count in predicted]
    return errors


def _enough_bytes(taken: Recorded, under: Sharing, own: dict[str, int | None]) -> dict[str, int]:
    """Returns the least memory of each target at which LRU misses only pages that are new."""
    pages = enough_pages(taken, under.limit)
    return {
        name: int(pages[number]) * taken.page_bytes + _own(under.members(number), own)
        for name, number in zip(taken.targets, under.limit.tolist(), strict=True)
        if name is not None
    }


def _read_ahead(trace: Trace) -> int:
    """Returns the bytes of read-ahead of the device that the targets read most; else 128 KiB."""
    found = trace.rows(_READ_OF.replace("$everybody", str(of_everybody(trace))))
    for (dev,) in found:
        known = read_ahead_of(trace.manifest, dev)
        if known is not None:
            return known
    return 128 * _KIB


__all__ = ["BOUNDS", "KERNEL", "MODELS", "RESIDENT", "MemoryAnswer", "answer_memory"]
