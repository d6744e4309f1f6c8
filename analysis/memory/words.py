"""The words and rows of a prediction of reads, for a terminal and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from tracer.analysis.findings.finding import name, percent, seconds, size
from tracer.analysis.memory.answer import BOUNDS, KERNEL, MemoryAnswer
from tracer.analysis.memory.cache import FAULT_AROUND_BYTES
from tracer.analysis.memory.clocks import HIGH, LOW, summed
from tracer.analysis.memory.recorded import MUCH_MAPPED
from tracer.analysis.report.reads import epoch_name, partial_in_words, together_in_words

HEADINGS = {KERNEL: "kernel", "lru": "LRU", "min": "best", "resident": "kept"}
"""Headings of the models' columns."""
NOTE = (
    "MiB; all but used are read from disk. Later: mean of the whole epochs after the first. "
    "Kernel: by its lists of pages and its read-ahead. LRU, best and kept are without read-ahead; "
    "best evicts the page whose next use is the farthest away, kept never evicts."
)
LEAST_AND_MOST = (
    "the range of the kernel's model over the times at which the kernel may bring its statistics up"
    " to date."
)
"""Words that say what a range is."""
_MIB = 1 << 20
_SHORT_NS = 10_000_000_000
"""Time of reading below which the age of the kernel's statistics may decide what it evicts."""
_MOST_NAMES = 4
"""Names in a list of targets."""


def rows(reads: pd.DataFrame, page_bytes: int) -> list[tuple[object, ...]]:
    """Returns a target's rows: the first epoch, and the mean of the later ones, in MiB.

    memory, cache, epoch, used, recorded, each of HEADINGS, and the least and the most of `kernel`.
    """
    models = [f"{model}_pages" for model in (KERNEL, *BOUNDS)]
    found = []
    for memory in sorted(reads["memory_bytes"].unique().tolist()):
        part = reads[reads["memory_bytes"] == memory]
        cache = int(part["cache_bytes"].iloc[0])
        for label, epochs in split(part):
            mean = epochs[["used_pages", "recorded_pages", *models]].mean() * page_bytes / _MIB
            by_clock = summed(epochs) / len(epochs) * page_bytes / _MIB
            ends = float(by_clock.min()), float(by_clock.max())
            found.append((size(memory), size(cache), label, *mean.tolist(), *ends))
    return found


def sum_rows(sums: pd.DataFrame, page_bytes: int) -> list[tuple[object, ...]]:
    """Returns the rows of targets that share the memory, by memory, with the columns of `rows`."""
    columns = [f"{column}_pages" for column in ("used", "recorded", KERNEL, *BOUNDS)]
    columns += [LOW, HIGH]
    return [
        (size(int(row["memory_bytes"])), size(int(row["cache_bytes"])), "all",
         *(row[columns] * page_bytes / _MIB).tolist())
        for _, row in sums.sort_values("memory_bytes").iterrows()
    ]  # fmt: skip


def together(targets: list[str]) -> str:
    """Returns the names of several targets, some of them if there are many."""
    shown = [name(target) for target in targets[:_MOST_NAMES]]
    more = len(targets) - len(shown)
    last = f"{more} more" if more else shown.pop()
    return f"{', '.join(shown)} and {last}"


def split(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Returns a target's rows of no epoch, of the first one, and of later ones, with their names.

    The rows are in order of time. Later epochs of which only a part was recorded are left out.
    """
    counted = part[part["epoch"].notna()]
    outside = part[part["epoch"].isna()]
    begin = counted.groupby(_keys(counted), sort=False).ngroup() == 0
    first, later = counted[begin], counted[~begin & ~counted["partial"].fillna(False)]
    parts = [("none", outside), ("first", first), ("later", later)]
    return [(label, rows) for label, rows in parts if len(rows)]


def _keys(reads: pd.DataFrame) -> list[str]:
    """Returns the columns that tell the epochs of a target apart."""
    return [column for column in ("epoch", "pass") if column in reads]


def _compared(error: float) -> tuple[str, str]:
    """Returns an error of the kernel's model in two parts of a sentence."""
    if round(error, 3) == 0:
        return "as much", "as was read"
    if error >= 1:
        return f"{1 + error:,.1f} times", "what was read"
    return f"{percent(100 * abs(error))} {'more' if error > 0 else 'less'}", "than was read"


def _with_range(error: float, low: float, high: float) -> str:
    """Returns an error of the kernel's model in words, with its range if that is another one."""
    (said, read), (least, _), (most, _) = map(_compared, (error, low, high))
    if least == said == most:
        return f"{said} {read}"
    why = "depending on when its statistics are brought up to date"
    return f"{said} {read} ({least} to {most}, {why})"


def basis(found: MemoryAnswer) -> list[str]:
    """Returns sentences on what the prediction rests on, and how good it is."""
    said = [f"{sentence}." for sentence in found.knowledge.sentences]
    if found.knowledge.unknown and max(found.knowledge.unknown.values()) > 0:
        said.append("The prediction lacks these reads.")
    if found.lossy:
        said.append("Events were lost, so the prediction lacks some accesses.")
    if found.lossy is None:
        said.append("It is not known whether events were lost.")
    said += [f"{sentence}." for sentence in _about_partial(found.reads)]
    said += [
        f"{together_in_words(name(target), count)}."
        for target, count in sorted(found.marked_together.items())
    ]
    said += [f"{together(names)} share each amount of memory." for names in found.shared]
    said += _about_other_cgroups(found.other_cgroups)
    for target in sorted(found.own_bytes):
        said += _basis_of(target, found)
    for names in found.shared:
        said += [f"{together(names)}: {_enough(names, found)}.", *_about_no_room(names, found)]
    said += _about_warm(found)
    if found.reading_ns is not None and found.reading_ns < _SHORT_NS:
        said.append(
            f"The recording has {seconds(found.reading_ns / 1e9)} of reading. The kernel decides by"
            " statistics that are up to 2 s old, so the prediction of a run as short is rough."
        )
    said.append(f"Read-ahead: {size(found.read_ahead_bytes)}.")
    return said


def _about_warm(found: MemoryAnswer) -> list[str]:
    most = "Up to " if found.lossy else ""
    many = f"{most}{size(found.warm_pages * found.page_bytes)} of files were in memory before the"
    if found.staying_pages is not None:
        return [f"{many} recording; they stay there, and take no room of a target."]
    if not found.warm_pages:
        return []
    return [
        f"{many} recording; the prediction begins with an empty cache. With --warm, they stay"
        " there, and take no room of a target."
    ]


def _about_partial(reads: pd.DataFrame) -> list[str]:
    keys = _keys(reads)
    partial = reads[reads["partial"].fillna(False)].drop_duplicates(["target", *keys])
    return [
        partial_in_words(name(target), [epoch_name(*row) for row in epochs[keys].to_numpy()])
        for target, epochs in partial.groupby("target", sort=True)
    ]


def _about_other_cgroups(others: Mapping[str, list[str]]) -> list[str]:
    by_limit: dict[tuple[str, ...], list[str]] = {}
    for target, paths in sorted(others.items()):
        by_limit.setdefault(tuple(paths), []).append(target)
    return [
        f"{_listed(names)}: the kernel's model takes {_listed(list(paths))}, which"
        f" {'are' if len(paths) > 1 else 'is'} below the same limit, to have no pages of files."
        for paths, names in by_limit.items()
    ]


def _listed(names: list[str]) -> str:
    return together(names) if len(names) > 1 else name(names[0])


def uses_no_page_twice(names: list[str], found: MemoryAnswer) -> bool:
    """Returns whether LRU reads the same for these targets with any memory."""
    own = sum(found.own_bytes.get(name) or 0 for name in names)
    return found.enough_bytes[names[0]] == own


def _enough(names: list[str], found: MemoryAnswer) -> str:
    """Returns in words the least memory with which LRU reads no page of these targets twice."""
    if uses_no_page_twice(names, found):
        return (
            "LRU reads the same with any memory, since no page is used twice, unless it"
            f"{' stays in memory, or' if found.staying_pages else ''} is taken out in between"
        )
    shared = " together" if len(names) > 1 else ""
    return f"with {size(found.enough_bytes[names[0]])}{shared}, LRU reads no page twice"


def _about_no_room(names: list[str], found: MemoryAnswer) -> list[str]:
    """Returns which amounts of memory these targets cannot share, as their own memory fills it."""
    mine = found.reads[found.reads["target"] == names[0]]
    full = mine[mine["cache_bytes"] < found.page_bytes]["memory_bytes"]
    if not len(full):
        return []
    less = " or less have" if full.nunique() > 1 else " have"
    return [
        f"{_listed(names)}: {size(int(full.max()))}{less} no room for page cache beside the own"
        " memory, so the kernel may kill a process. The rows have what is read if it goes on."
    ]


def _least_cache(target: str, found: MemoryAnswer) -> float:
    """Returns the least cache of a target that holds a page and not all data; infinity: none."""
    mine = found.reads[found.reads["target"] == target]
    short = mine["memory_bytes"] < found.enough_bytes.get(target, 0)
    caches = mine[short & (mine["cache_bytes"] >= found.page_bytes)]["cache_bytes"]
    return float(caches.min()) if len(caches) else math.inf


def _about_mappings(target: str, found: MemoryAnswer) -> list[str]:
    """Returns what is not known of the uses of mapped files, if a target has many."""
    share, mapped = found.mapped_share.get(target, 0.0), found.mapped_bytes.get(target, 0)
    if share >= MUCH_MAPPED:
        many, far = f"{percent(100 * share)} of its uses of files go through mappings", "far "
    elif mapped >= MUCH_MAPPED * _least_cache(target, found):
        many, far = f"it maps {size(mapped)} of files", ""
    else:
        return []
    said = [
        f"{name(target)}: {many}. A page that is mapped makes no event when it is used again, so"
        f" all models may read {far}too little with less memory than the recording had."
    ]
    if found.read_ahead_bytes < max(FAULT_AROUND_BYTES, found.page_bytes):
        said.append(
            f"{name(target)}: with less read-ahead than {size(FAULT_AROUND_BYTES)}, the kernel's"
            " model reads each page that was mapped around a fault, though the job may not have"
            " touched it, so it may read up to 16 times too much."
        )
    return said


def _own_memory(target: str, found: MemoryAnswer) -> str:
    """Returns how much of the memory is a target's own, with the verb."""
    most, median = size(found.own_bytes[target] or 0), size(found.own_median_bytes[target] or 0)
    if most == median:
        return f"{most} of the memory are"
    return f"up to {most} of the memory (median of the samples: {median}) are"


def _basis_of(target: str, found: MemoryAnswer) -> list[str]:
    """Returns the sentences on one target."""
    mine, shown = found.own_bytes[target], name(target)
    shares = any(target in names for names in found.shared)
    said = []
    if mine is None:
        so = "it counts as 0" if shares else "all memory is page cache"
        said.append(f"{shown}: its own memory is not known, so {so} (give --own-memory).")
    else:
        rest = "" if shares else ", the rest page cache"
        said.append(f"{shown}: {_own_memory(target, found)} its own{rest}.")
    if target in found.without_shared:
        said.append(
            f"{shown}: its samples do not tell its shared memory (tmpfs, /dev/shm), which counts as"
            " page cache; its own memory may be larger (give --own-memory)."
        )
    said += _about_mappings(target, found)
    if target in found.enough_bytes and not shares:
        said.append(f"{shown}: {_enough([target], found)}.")
    if not shares:
        said += _about_no_room([target], found)
    if target in found.error:
        limit = found.limit_bytes.get(target)
        at = f"at its limit of {size(limit)}" if limit else "without a limit"
        if limit and any(target in names for names in found.recorded_shared):
            at = f"at the limit of {size(limit)} that it shares"
        ends = found.error_low[target], found.error_high[target]
        error = _with_range(found.error[target], *ends)
        said.append(f"{shown}: of the recording itself, {at}, the kernel's model reads {error}.")
    return said
