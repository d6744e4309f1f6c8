"""Small stories of write-back as traces: files are dirtied, written by the flusher, and freed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.fixed_writes import Recorded, prepared
from tracer.store.trace import Trace

JOB, KWORKER = 7, 50
DEV = "254:0"
S = 10**9
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": KWORKER, "tid": KWORKER, "role": "flusher"},
]
EXT4 = {"dev": DEV, "block_bytes": 4096}


class Story:
    """Events of a small trace, in seconds. Each attribute is a table."""

    def __init__(self) -> None:
        """Begins without events."""
        self.dirty: list[dict[str, Any]] = []
        self.block: list[dict[str, Any]] = []
        self.writeback: list[dict[str, Any]] = []
        self.inode_writeback: list[dict[str, Any]] = []
        self.file_writes: list[dict[str, Any]] = []
        self.extents: list[dict[str, Any]] = []

    def dirtied(self, at: float, *indices: int, ino: int = 11, pid: int = JOB) -> Story:
        """A process dirties the folios of a file that begin at these pages."""
        for index in indices:
            row = {"ts": round(at * S), "tid": pid, "pid": pid, "dev": DEV, "ino": ino}
            self.dirty.append({**row, "event": "dirty_folio", "index": index})
            self.dirty.append({**row, "event": "mark_inode_dirty"})
        return self

    def flushed(
        self,
        at: float,
        *bios: tuple[int, int],
        ino: int = 11,
        age: float | None = None,
        reason: str = "periodic",
        left: int | None = None,
    ) -> Story:
        """The flusher writes an inode: bios are (first page on the disk, pages)."""
        ts = round(at * S)
        by = {"tid": KWORKER, "pid": KWORKER}
        inode = {**by, "dev": DEV, "ino": ino, "nr_to_write": 1024}
        wrote = sum(pages for _, pages in bios)
        self.writeback += [
            {"ts": ts, **by, "event": "start", "reason": reason, "bdi": DEV},
            {"ts": ts + 900, **by, "event": "written", "reason": reason, "bdi": DEV},
        ]
        self.inode_writeback += [
            {"ts": ts + 1, "event": "start", **inode, "age": None if age is None else int(age * S)},
            {"ts": ts + 800, "event": "end", **inode, "wrote": wrote if left is None else left},
        ]
        for number, (page, pages) in enumerate(bios):
            self.block.append(bio(ts + 10 + number, page, pages))
        return self

    def wrote(self, at: float, *bios: tuple[int, int], ino: int = 11) -> Story:
        """The job writes past the page cache: bios are (first page on the disk, pages)."""
        ts = round(at * S)
        row = {"tid": JOB, "pid": JOB, "dev": DEV, "ino": ino}
        self.file_writes += [
            {"ts": ts, **row, "event": "direct_start"},
            {"ts": ts + 900, **row, "event": "direct_end"},
        ]
        for number, (page, pages) in enumerate(bios):
            self.block.append(bio(ts + 10 + number, page, pages, JOB, "WS"))
        return self

    def freed(self, at: float, ino: int = 11, dev: str = DEV) -> Story:
        """The file ends."""
        row = {"ts": round(at * S), "tid": JOB, "pid": JOB, "dev": dev, "ino": ino}
        self.file_writes.append({**row, "event": "free_inode"})
        return self

    def lies(self, at: float, page: int, pages: int, ino: int = 11, first: int = 0) -> Story:
        """The file system tells that pages of a file, from `first` on, lie from `page` on."""
        self.extents.append(
            {"ts": round(at * S), "tid": JOB, "event": "known", "dev": DEV, "ino": ino,
             "file_block": first, "disk_block": page, "blocks": pages}
        )  # fmt: skip
        return self

    def made(self, folder: Path, end: float = 100, without: str = "", **manifest: Any) -> Trace:
        """Makes the trace, which ends at `end`, without one of the tables."""
        tables = {
            name: sorted(rows, key=lambda row: row["ts"])
            for name, rows in vars(self).items()
            if name != without
        }
        clock = {"name": "mono", "start_ns": 0, "end_ns": round(end * S)}
        return make_trace(folder, {**tables, "processes": PROCESSES}, clock=clock, **manifest)

    def prepared(
        self, folder: Path, end: float = 100, **manifest: Any
    ) -> tuple[Dirtyings, Recorded]:
        """Returns the dirtyings of the story, and the events that no knob moves."""
        with self.made(folder / "t", end, **manifest) as trace:
            return prepared(trace)


def bio(ts: int, page: int, pages: int, tid: int = KWORKER, rwbs: str = "W") -> dict[str, Any]:
    """A bio at a time in ns."""
    place = {"dev": DEV, "sector": page * 8, "nr_sector": pages * 8}
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", **place, "rwbs": rwbs}


def pieces(found: Dirtyings, *columns: str) -> list[tuple[Any, ...]]:
    """Pieces as tuples, in order of time and file: by default with second, pages and their fate."""
    rows = found.pieces.sort_values(["ts", "index"])
    how = rows["how"].map(lambda number: paired.HOW[number])
    rows = rows.assign(ts=rows["ts"] / S, until=rows["until"] // S, how=how)
    return list(
        rows[list(columns or ("ts", "index", "pages", "how"))].itertuples(index=False, name=None)
    )
