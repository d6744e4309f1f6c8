"""Tables of reads through the page cache: by epoch, by file, and who evicted whose pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import pandas as pd

from tracer.analysis.report.mergeable import added
from tracer.analysis.report.table import PASS, Column, MergedTable
from tracer.analysis.views.phases.marked_together import marked_together
from tracer.analysis.views.reading.page_uses import page_uses
from tracer.analysis.views.reading.reads import reads
from tracer.analysis.views.threads import owns, same_work
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_COUNTED = ("accessed", "missed", "read", "unused", "evicted", "refaulted")
_OTHERS = ("disk", "ns", "unplaced")
_MIB = 1 << 20
_MOST_EPOCHS = 4

_MEASURES = (
    Column("accessed_mib", "pages that calls read and faults touched, each time", "used MiB"),
    Column("hit_percent", "share of them that was in the cache", "hit %"),
    Column("read_mib", "pages brought in, asked for or read ahead", "read MiB"),
    Column(
        "disk_mib",
        "read of the device for them; in a row without target and file: nobody knows for whom; "
        "null: no block events",
    ),
    Column("amplification", "bytes brought in for each byte used"),
    Column("unused_mib", "pages read ahead that left the cache or the recording unused", "unused"),
    Column("evicted_mib", "pages that reclaim took out", "evicted", gives_way=True),
    Column("refaulted_mib", "pages brought in that had been evicted before", "again"),
    Column("wait_s", "time for which threads waited for the device; null: not known", "wait s"),
    Column(
        "unknown_mib",
        "read by calls whose file or place in it is not known, and not in the other columns; null: "
        "the kernel logged the accesses, so none are inferred",
    ),
)
_USED = "Used: pages of calls, of faults, and those mapped around faults. "
_UNUSED = "Unused: read ahead, never used. "
_AGAIN = "Again: brought in though they had been evicted before. All in MiB."


_SHORT = ("unused_mib", "evicted_mib", "wait_s")
"""Measures that a terminal does not show of each file, so that names have room."""


def _sums(trace: Trace, keys: str, more: str = "") -> pd.DataFrame:
    reads(trace)
    page = page_bytes(trace.manifest)
    counts = ", ".join(f"sum({name})::DOUBLE * {page} AS {name}" for name in _COUNTED)
    return trace.sql(
        f"SELECT {keys}, {counts}, sum(disk_bytes)::DOUBLE AS disk, sum(wait_ns)::DOUBLE AS ns,"
        f" sum(if(inferred, unplaced, NULL))::DOUBLE AS unplaced{more}"
        " FROM reads GROUP BY ALL"
    ).astype(dict.fromkeys((*_COUNTED, *_OTHERS), "Float64"))


def _measured(parts: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    groups = parts.groupby(keys, dropna=False, sort=False)
    found = groups[[*_COUNTED, *_OTHERS]].sum(min_count=1).reset_index()
    used, read = found["accessed"], found["read"]
    found["accessed_mib"] = used / _MIB
    found["hit_percent"] = (100 * (used - found["missed"]) / used).where(used > 0)
    found["read_mib"] = read / _MIB
    found["disk_mib"] = found["disk"] / _MIB
    found["amplification"] = (read / used).where(used > 0)
    found["unused_mib"] = found["unused"] / _MIB
    found["evicted_mib"] = found["evicted"] / _MIB
    found["refaulted_mib"] = found["refaulted"] / _MIB
    found["wait_s"] = found["ns"] / 1e9
    found["unknown_mib"] = found["unplaced"] / _MIB
    return found


def _epochs_of(trace: Trace) -> pd.DataFrame:
    return _sums(
        trace,
        "coalesce(target, '') AS target, coalesce(epoch, -1)::BIGINT AS epoch,"
        " coalesce(pass, 1)::BIGINT AS pass",
        ", max(partial::INTEGER) AS max_partial",
    ).astype({"max_partial": "Int64"})


def _epochs(parts: pd.DataFrame) -> pd.DataFrame:
    keys = ["target", "epoch", "pass"]
    found = _measured(parts, keys)
    found["partial"] = added(parts, keys)["max_partial"].astype("boolean")
    found = found.sort_values(["target", "pass", "epoch"], ignore_index=True)
    found["target"] = found["target"].replace("", None)
    found["epoch"] = found["epoch"].astype("Int64").where(found["epoch"] >= 0)
    found["pass"] = found["pass"].astype("Int64").where(found["epoch"].notna())
    several = bool((found["pass"] > 1).any())
    shown = [column.name for column in READS_BY_EPOCH.columns if several or not column.rare]
    return found[shown]


READS_BY_EPOCH = MergedTable(
    "reads_by_epoch",
    "Reads of files by epoch",
    (
        Column("target", "target whose threads read; null: others", "target", text=True),
        Column("epoch", "from 0; null: in none", "epoch"),
        PASS,
        Column(
            "partial",
            "true: the epoch began before the recording or did not end in it, so only a part of its"
            " reads is here; null: in none, or nobody marked the epoch",
        ),
        *_MEASURES,
    ),
    needs=("page_cache",),
    keys=("target", "epoch", "pass"),
    unknown=("disk", "ns"),
    parts=_epochs_of,
    finish=_epochs,
    note=_USED + _UNUSED + _AGAIN,
)


def about_partial(trace: Trace) -> list[str]:
    """Returns a sentence for each target that has epochs of which only a part was recorded."""
    reads(trace)
    rows = trace.rows(
        "SELECT DISTINCT coalesce(target, 'others') AS target, epoch,"
        " if((SELECT max(pass) FROM reads) > 1, pass, NULL) AS pass"
        " FROM reads WHERE partial ORDER BY 1, 3, 2"
    )
    return [
        partial_in_words(target, [epoch_name(*row[1:]) for row in epochs])
        for target, epochs in groupby(rows, itemgetter(0))
    ]


def epoch_name(epoch: int, number: int | None = None) -> str:
    """Returns the name of an epoch, with the number of its pass if there are several."""
    return str(epoch) if number is None else f"{epoch} (pass {number})"


def partial_in_words(target: str, epochs: Sequence[str]) -> str:
    """Returns a sentence on the epochs of a target of which only a part was recorded."""
    which = ", ".join(epochs[:_MOST_EPOCHS]) + " ..." * (len(epochs) > _MOST_EPOCHS)
    return (
        f"{target}: only a part of the reads of epoch {which} was recorded, because it began"
        " before the recording or did not end in it"
    )


def about_together(trace: Trace) -> list[str]:
    """Returns a sentence for each target whose epochs are those of several processes."""
    found = [(target or "others", count) for target, count in marked_together(trace).items()]
    return [together_in_words(target, count) for target, count in sorted(found)]


def together_in_words(target: str, processes: int) -> str:
    """Returns a sentence on the processes of a target that mark epochs of the same numbers."""
    return (
        f"{target}: {processes} processes mark epochs of the same numbers, so the reads of these"
        " epochs are added up"
    )


_INODE = "'inode ' || ino::VARCHAR || ' of ' || dev"
# Other devices, and other containers, may have a file of the same name.
_FILE = f"""
CASE WHEN path IN (
    SELECT path FROM reads GROUP BY path HAVING count(DISTINCT (dev, ino)) > 1
) THEN path || ', ' || {_INODE} ELSE coalesce(path, {_INODE}, 'not known') END AS file
"""


def _files_of(trace: Trace) -> pd.DataFrame:
    return _sums(trace, f"coalesce(target, '') AS target, {_FILE}")


def _files(parts: pd.DataFrame) -> pd.DataFrame:
    found = _measured(parts, ["target", "file"])
    found["others"] = found["target"] == ""
    found = found.sort_values(
        ["others", "read", "accessed", "target", "file"],
        ascending=[True, False, False, True, True],
        ignore_index=True,
    )
    found["target"] = found["target"].replace("", None)
    return found[[column.name for column in READS_BY_FILE.columns]]


READS_BY_FILE = MergedTable(
    "reads_by_file",
    "Reads of files, by file",
    (
        Column("target", "target whose threads read; null: others", "target", text=True),
        Column(
            "file",
            "its name at the end of the recording, with its number if others have this name; or its"
            " number",
            "file",
            text=True,
        ),
        *(replace(one, heading="") if one.name in _SHORT else one for one in _MEASURES),
    ),
    needs=("page_cache",),
    keys=("target", "file"),
    unknown=("disk", "ns"),
    parts=_files_of,
    finish=_files,
    note=_USED + _AGAIN,
)

_EVICTERS = f"""
SELECT coalesce(u.target, '') AS target, CASE
        WHEN b.target = u.target THEN 'itself'
        WHEN b.target IS NOT NULL THEN b.target
        WHEN b.container IS NOT NULL THEN 'container ' || left(b.container, 12)
        WHEN b.kernel THEN {same_work("b.comm")}
        ELSE coalesce(b.comm, 'unknown') END AS evicter,
    sum(evicted)::DOUBLE * {{page}} AS evicted
FROM page_uses u LEFT JOIN threads b ON {owns("b", "u", "by_tid")}
WHERE evicted > 0 GROUP BY ALL
"""


def _evictions_of(trace: Trace) -> pd.DataFrame:
    page_uses(trace)
    return trace.sql(_EVICTERS.format(page=page_bytes(trace.manifest)))


def _evictions(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.groupby(["target", "evicter"], sort=False)["evicted"].sum().reset_index()
    found["evicted_mib"] = found["evicted"] / _MIB
    whole = found.groupby("target")["evicted"].transform("sum")
    found["share"] = (found["evicted"] / whole).where(whole > 0)
    found = found.sort_values(
        ["evicted", "target", "evicter"], ascending=[False, True, True], ignore_index=True
    )
    found["target"] = found["target"].replace("", None)
    return found[[column.name for column in EVICTIONS.columns]]


EVICTIONS = MergedTable(
    "evictions",
    "Who evicted whose pages from the cache",
    (
        Column("target", "target that used the pages last; null: others", "whose", text=True),
        Column(
            "evicter",
            "the target itself, another target, a container, a kernel thread or a process in whose "
            "context the pages were reclaimed",
            "evicted by",
            text=True,
        ),
        Column("evicted_mib", "pages evicted", "MiB"),
        Column("share", "share of the target's evicted pages", "share"),
    ),
    needs=("page_cache",),
    keys=("target", "evicter"),
    parts=_evictions_of,
    finish=_evictions,
    note="kswapd evicts when the whole machine is short of memory; kdamond evicts what nobody has "
    "used for long, if the kernel's DAMON is set up to; a thread at the limit of its cgroup evicts "
    "pages of that cgroup.",
)
