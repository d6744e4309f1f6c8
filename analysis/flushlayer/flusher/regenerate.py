"""The write-backs of a trace's dirtyings at other settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import machine, model, paired
from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.fixed_writes import Recorded
from tracer.analysis.flushlayer.flusher.knobs import Knobs
from tracer.probes.errors import UsageError

_OWN_REASONS = ("periodic", "background")


@dataclass(frozen=True)
class Regenerated:
    """The writes of the flusher at other settings.

    `writes`, one row for each run of consecutive pages of a file written at once: ts (ns), dev,
    ino, index (first page in the file; null: not known), page (first page on the disk in the
    recording; null: the recording did not write it), pages, reason, dirtier (null: not known),
    inode (row of `Dirtyings.inodes`), first (dense number of the first page; the same number is the
    same page). `passed`: the dense number of the first page of each row of `Dirtyings.passed`; -1:
    its file is not known. `pages_known`: how many dense numbers there are. `summary`: see
    `summarised`.
    """

    writes: pd.DataFrame
    passed: NDArray[np.int64]
    summary: dict[str, Any]
    pages_known: int
    assumptions: list[str]


def regenerate(
    dirtyings: Dirtyings,
    recorded: Recorded,
    knobs: Knobs,
    pages_per_s: float | None = None,
    at_most: bool = False,
) -> Regenerated:
    """Runs the model of the kernel's flusher over a trace's dirtyings.

    `pages_per_s`: the write speed of a device; None: writes take no time, so that the dirty pages
    never stay above the background threshold for long. `at_most`: each time an inode is marked
    dirty, all of its pages that are dirty in the recording at that time are dirtied again; no event
    records such dirtyings. The true number of writes lies between the results without and with
    `at_most`, except for stores to mapped memory, which mark no inode. Raises UsageError if
    `pages_per_s` is out of range.
    """
    if pages_per_s is not None and not (np.isfinite(pages_per_s) and 0 < pages_per_s <= 1e9):
        raise UsageError(
            f"a device cannot write {pages_per_s} pages a second", "give up to 1e9, e.g. 25000"
        )
    pages = _Pages(_runs(dirtyings), len(dirtyings.inodes))
    names, device = np.unique(dirtyings.inodes["dev"].to_numpy(str), return_inverse=True)
    reasons = [*_OWN_REASONS]
    events = _events(dirtyings, recorded, pages, list(names), reasons)
    start = machine.start(
        device.astype(np.int32),
        pages.first,
        _shares(dirtyings, device, len(names)),
        _limits(knobs, pages_per_s, recorded.tick, at_most),
        _first_looks(recorded, list(names), knobs),
        knobs.writeback_ns,
    )
    out, sums = model.run(start, events, dirtyings.end_ns)
    writes = _frame(out, dirtyings, pages, reasons)
    summary = summarised(writes, sums, knobs, pages)
    return Regenerated(
        writes,
        _passed(dirtyings, pages),
        summary,
        len(pages.index),
        _assumptions(knobs, pages_per_s, recorded),
    )


def _runs(dirtyings: Dirtyings) -> pd.DataFrame:
    """Returns all runs of pages of files (inode, index, pages): dirtied, or written directly."""
    passed = dirtyings.passed[dirtyings.passed["inode"] >= 0]
    names = ("inode", "index", "pages")
    return pd.DataFrame(
        {
            name: np.concatenate(
                [dirtyings.pieces[name].to_numpy(np.int64), passed[name].to_numpy(np.int64)]
            )
            for name in names
        }
    )


def _passed(dirtyings: Dirtyings, pages: _Pages) -> NDArray[np.int64]:
    passed = dirtyings.passed
    first = np.full(len(passed), -1, np.int64)
    there = passed["inode"].to_numpy(np.int64) >= 0
    of_files = passed[there]
    first[there] = pages.number(of_files["inode"].to_numpy(), of_files["index"].to_numpy())
    return first


class _Pages:
    """Dense numbers for the pages of all files, in order of inode and index."""

    def __init__(self, runs: pd.DataFrame, inodes: int) -> None:
        inode = runs["inode"].to_numpy(np.int64)
        begin = runs["index"].to_numpy(np.int64)
        end = begin + runs["pages"].to_numpy(np.int64)
        order = np.lexsort((begin, inode))
        inode, begin, end = inode[order], begin[order], end[order]
        reach = pd.Series(end).groupby(inode).cummax().to_numpy(np.int64)
        fresh = np.ones(len(order), bool)
        fresh[1:] = (inode[1:] != inode[:-1]) | (begin[1:] > reach[:-1])
        last = np.append(np.flatnonzero(fresh)[1:] - 1, len(order) - 1)[: fresh.sum()]
        self._inode, self._begin, self._end = inode[fresh], begin[fresh], reach[last]
        self._offset = np.concatenate([[0], np.cumsum(self._end - self._begin)]).astype(np.int64)
        lengths = self._end - self._begin
        self.index: NDArray[np.int64] = np.repeat(self._begin - self._offset[:-1], lengths)
        self.index += np.arange(len(self.index))
        bounds = np.searchsorted(self._inode, np.arange(inodes + 1))
        self.first: NDArray[np.int64] = self._offset[bounds]

    def number(self, inode: NDArray[Any], index: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the dense number of each page, or of the inode's next known page."""
        # The search key combines inode and rank; indices are too large to fit beside the inode.
        places, ranks = np.unique(
            np.concatenate([self._begin, np.asarray(index, np.int64)]), return_inverse=True
        )
        begin, asked = np.split(ranks.astype(np.int64), [len(self._begin)])
        width = len(places) + 1
        at = (
            np.searchsorted(
                self._inode * width + begin, np.asarray(inode, np.int64) * width + asked, "right"
            )
            - 1
        )
        if not len(self._inode):
            return np.zeros(len(at), np.int64)
        inside = (at >= 0) & (self._inode[at] == inode)
        length = self._end[at] - self._begin[at]
        within = np.minimum(np.asarray(index, np.int64) - self._begin[at], length)
        found: NDArray[np.int64] = np.where(
            inside, self._offset[at] + within, self.first[np.asarray(inode, np.int64)]
        )
        return found


def _events(
    dirtyings: Dirtyings,
    recorded: Recorded,
    pages: _Pages,
    devices: list[str],
    reasons: list[str],
) -> dict[str, NDArray[Any]]:
    pieces = dirtyings.pieces
    first = pages.number(pieces["inode"].to_numpy(), pieces["index"].to_numpy())
    frames = [
        pd.DataFrame(
            {
                "ts": pieces["ts"], "kind": machine.DIRTY, "inode": pieces["inode"], "page": first,
                "pages": pieces["pages"], "block": pieces["page"], "who": pieces["dirtier"],
                "until": pieces["until"], "reason": 0,
            }
        ),
        _blank(dirtyings.marks["ts"], machine.MARK, dirtyings.marks["inode"]),
    ]  # fmt: skip
    gone = pieces["how"] == paired.DROPPED
    dropped = _blank(pieces["until"][gone], machine.DROP, pieces["inode"][gone])
    frames.append(dropped.assign(page=first[gone], pages=pieces["pages"][gone].to_numpy()))
    frames.append(_blank(recorded.freed["ts"], machine.FREE, recorded.freed["inode"]))
    syncs = recorded.synced
    begin = pages.number(syncs["inode"].to_numpy(), syncs["first"].to_numpy())
    end = pages.number(syncs["inode"].to_numpy(), syncs["last"].to_numpy() + 1)
    frames.append(
        _blank(syncs["ts"], machine.SYNC_INODE, syncs["inode"]).assign(
            page=begin, pages=end - begin, reason=_numbers(syncs["reason"], reasons)
        )
    )
    known = recorded.synced_devices[recorded.synced_devices["dev"].isin(devices)]
    frames.append(
        _blank(
            known["ts"], machine.SYNC_DEVICE, known["dev"].map(devices.index).astype(np.int64)
        ).assign(reason=_numbers(known["reason"], reasons))
    )
    # Pages that were not written by periodic or background write-back are written at their recorded
    # time, if they are dirty then.
    written = pieces[pieces["how"].isin((paired.SEEN, paired.EARLIER))]
    why = written.merge(
        dirtyings.written.drop_duplicates(["ts", "inode"])[["ts", "inode", "reason"]],
        left_on=["until", "inode"], right_on=["ts", "inode"], how="left",
    )["reason"]  # fmt: skip
    forced = ~why.isin(_OWN_REASONS).to_numpy()
    chosen = written[forced]
    frames.append(
        _blank(chosen["until"], machine.WRITE_PAGES, chosen["inode"]).assign(
            page=first[written.index.to_numpy()[forced]],
            pages=chosen["pages"].to_numpy(),
            reason=_numbers(why[forced].fillna("other"), reasons),
        )
    )
    events = pd.concat(frames, ignore_index=True)
    # Impossible ages and times in a hostile trace must stay in the range of the model.
    events["ts"] = events["ts"].clip(-(1 << 60), 1 << 60)
    order = np.lexsort((events["kind"], events["ts"]))
    types = {"kind": np.int8, "inode": np.int32}
    return {
        name: events[name].to_numpy(types.get(name, np.int64))[order] for name in events.columns
    }


def _blank(ts: pd.Series[Any], kind: int, inode: pd.Series[Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ts": ts.to_numpy(np.int64), "kind": kind, "inode": inode.to_numpy(np.int64),
            "page": 0, "pages": 0, "block": -1, "who": -1, "until": 0,
            "reason": 0,
        }
    )  # fmt: skip


def _numbers(names: pd.Series[Any], reasons: list[str]) -> NDArray[np.int64]:
    for name in names.unique():
        if name not in reasons:
            reasons.append(str(name))
    numbers: NDArray[np.int64] = names.map(reasons.index).to_numpy(np.int64)
    return numbers


def _shares(dirtyings: Dirtyings, device: NDArray[Any], devices: int) -> NDArray[np.float64]:
    """Returns each device's share of the pages written; wb_calc_thresh() has it for the last
    seconds."""
    written = np.zeros(max(devices, 1))
    np.add.at(written, device[dirtyings.written["inode"]], dirtyings.written["pages"])
    total = written.sum()
    return np.ones(len(written)) if total == 0 else written / total


def _limits(
    knobs: Knobs, pages_per_s: float | None, tick: tuple[int, int] | None, at_most: bool
) -> NDArray[np.int64]:
    thresholds = knobs.thresholds
    limits = np.full(machine.LIMITS, machine.NEVER, np.int64)
    limits[machine.EXPIRE] = knobs.expire_ns
    limits[machine.WRITEBACK] = knobs.writeback_ns
    if thresholds.background is not None:
        limits[machine.BACKGROUND_PAGES] = thresholds.background
    if thresholds.freerun is not None:
        limits[machine.FREERUN_PAGES] = thresholds.freerun
    # writeback_chunk_size(): the pages that the device writes in half a second, or an eighth of the
    # limit.
    rate = machine.FIRST_BANDWIDTH if pages_per_s is None else pages_per_s
    chunk = int(rate / 2)
    if thresholds.limit is not None:
        limits[machine.LIMIT_PAGES] = thresholds.limit
        chunk = min(chunk, thresholds.limit // 8)
    limits[machine.CHUNK] = chunk
    limits[machine.NS_PER_PAGE] = 0 if pages_per_s is None else max(1, round(1e9 / pages_per_s))
    limits[machine.AT_MOST] = int(at_most)
    limits[machine.TICK], limits[machine.TICK_ZERO] = tick or (0, 0)
    return limits


def _first_looks(recorded: Recorded, devices: list[str], knobs: Knobs) -> NDArray[np.int64]:
    """Returns the time in ns of each flusher's first look: the recorded one, or NEVER."""
    looks = np.full(max(1, len(devices)), machine.NEVER, np.int64)
    if knobs.writeback_ns:
        for number, name in enumerate(devices):
            if name in recorded.first_look:
                looks[number] = recorded.first_look[name]
    return looks


def _frame(
    out: NDArray[np.int64], dirtyings: Dirtyings, pages: _Pages, reasons: list[str]
) -> pd.DataFrame:
    inode = out[:, machine.OUT_INODE]
    first = out[:, machine.OUT_PAGE]
    index = pd.Series(pages.index[first] if len(first) else first, dtype="Int64")
    page = pd.Series(out[:, machine.OUT_BLOCK], dtype="Int64")
    who = pd.Series(out[:, machine.OUT_WHO], dtype="Int64")
    return pd.DataFrame(
        {
            "ts": out[:, machine.OUT_TS],
            "dev": dirtyings.inodes["dev"].to_numpy()[inode],
            "ino": dirtyings.inodes["ino"].to_numpy()[inode],
            "index": index.mask(index >= paired.NOWHERE),
            "page": page.mask(page < 0),
            "pages": out[:, machine.OUT_PAGES],
            "reason": np.array(reasons, object)[out[:, machine.OUT_REASON]],
            "dirtier": who.mask(who < 0),
            "inode": inode.astype(np.int32),
            "first": first,
        }
    )


def summarised(
    writes: pd.DataFrame, sums: NDArray[np.int64], knobs: Knobs, pages: _Pages
) -> dict[str, Any]:
    """Returns the summary of a run of the model, in pages and ns.

    by_reason: pages by reason; pages_written, unique_pages, pages_rewritten (written before);
    pages_dirtied, which includes pages_dirtied_hidden (`at_most`: no event records them);
    pages_absorbed (already dirty), pages_dropped, pages_still_dirty; peak_dirty_pages;
    background_pages, limit_pages: the thresholds; ns_above_background, ns_above_freerun,
    ns_above_limit (None: the threshold is not known); pages_above_freerun: pages dirtied where the
    kernel would have paused the dirtier; dirtyings_above_freerun: the number of these dirtyings;
    looks and chunks of the flusher.
    """
    counts = writes["pages"].to_numpy(np.int64)
    touched = np.zeros(len(pages.index) + 1, np.int64)
    np.add.at(touched, writes["first"].to_numpy(np.int64), 1)
    np.add.at(touched, writes["first"].to_numpy(np.int64) + counts, -1)
    unique = int((np.cumsum(touched)[:-1] > 0).sum())
    thresholds = knobs.thresholds
    by_reason = writes.groupby("reason")["pages"].sum().sort_values(ascending=False)

    def where(known: int | None, number: int) -> int | None:
        return None if known is None else int(sums[number])

    written = int(sums[machine.WRITTEN])
    return {
        "by_reason": {str(reason): int(n) for reason, n in by_reason.items()},
        "pages_written": written,
        "unique_pages": unique,
        "pages_rewritten": written - unique,
        "pages_dirtied": int(sums[machine.DIRTIED]),
        "pages_dirtied_hidden": int(sums[machine.HIDDEN]),
        "pages_absorbed": int(sums[machine.ABSORBED]),
        "pages_dropped": int(sums[machine.DROPPED]),
        "pages_still_dirty": int(sums[machine.DIRTY_NOW]),
        "peak_dirty_pages": int(sums[machine.PEAK]),
        "background_pages": thresholds.background,
        "limit_pages": thresholds.limit,
        "ns_above_background": where(thresholds.background, machine.ABOVE_BACKGROUND),
        "ns_above_freerun": where(thresholds.freerun, machine.ABOVE_FREERUN),
        "ns_above_limit": where(thresholds.limit, machine.ABOVE_LIMIT),
        "pages_above_freerun": where(thresholds.freerun, machine.PAGES_ABOVE_FREERUN),
        "dirtyings_above_freerun": where(thresholds.freerun, machine.DIRTYINGS_ABOVE_FREERUN),
        "looks": int(sums[machine.LOOKS]),
        "chunks": int(sums[machine.CHUNKS]),
    }


def _assumptions(knobs: Knobs, pages_per_s: float | None, recorded: Recorded) -> list[str]:
    said = [
        "open: tasks dirty pages at the recorded times and are never slowed down; pages for which"
        " the kernel would have paused a task are counted",
        "fsync, sync and journal commits happen at the recorded times and write the pages that are"
        " dirty then; journal and direct writes are as recorded",
        "one flusher a device; write-back cgroups, lazytime, laptop mode and memory reclaim are not"
        " modelled",
        "writes take no time"
        if pages_per_s is None
        else f"devices write {pages_per_s:g} pages a second",
    ]
    if knobs.thresholds.background is None or knobs.thresholds.limit is None:
        said.append(
            "the trace does not record the dirtyable memory, so thresholds given as ratios are not"
            " modelled; record samples, or give dirtyable_bytes"
        )
    elif not (knobs.dirty_bytes and knobs.dirty_background_bytes):
        said.append("dirtyable memory is constant: the median of the recording")
    if recorded.tick is None:
        said.append("the trace does not record the kernel's tick: timers have no granularity")
    if knobs.assumed:
        said.append(
            f"the trace does not record {', '.join(knobs.assumed)}: the kernel's defaults apply"
        )
    return said
