"""Regenerated write-back counts each page on one level of stacked devices."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import sweep

pytestmark = pytest.mark.slow

S = 10**9
LOOP, DISK = "7:0", "254:0"
JOB, LOOPER = 7, 51
FILE = 77
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": LOOPER, "tid": LOOPER, "role": "other", "comm": "kworker/loop0", "ppid": 2},
    *(
        {"pid": tid, "tid": tid, "role": "flusher", "comm": "kworker", "ppid": 2}
        for tid in (50, 52)
    ),
]
DISKS = [
    {"dev": DISK, "bytes": 1 << 40},
    {"dev": LOOP, "bytes": 1 << 30, "on": [DISK], "backing_file": "/image", "backing_ino": FILE},
]
MOUNTS = [
    {"dev": DISK, "path": "/", "type": "ext4", "source": "x"},
    {"dev": LOOP, "path": "/m", "type": "ext4", "source": "y"},
]
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 200 * S}


class Story:
    """Pages that become dirty, and a flusher that writes them."""

    def __init__(self):
        names = ("dirty", "block", "writeback", "inode_writeback", "file_writes")
        self.tables = {name: [] for name in names} | {"processes": PROCESSES}

    def dirtied(self, ts, dev, ino, tid, first):
        for number in range(4):
            row = {"ts": ts + number, "tid": tid, "pid": tid, "dev": dev, "ino": ino}
            folio = {**row, "event": "dirty_folio", "index": first + number}
            self.tables["dirty"] += [folio, {**row, "event": "mark_inode_dirty"}]
        return self

    def flushed(self, ts, dev, ino, page, tid, age):
        by = {"tid": tid, "pid": tid}
        bracket = {**by, "reason": "periodic", "bdi": dev}
        inode = {**by, "dev": dev, "ino": ino, "nr_to_write": 1024}
        bio = {"event": "bio_queue", "dev": dev, "sector": 8 * page, "nr_sector": 32, "rwbs": "W"}
        self.tables["writeback"] += [
            {"ts": ts, "event": "start", **bracket},
            {"ts": ts + 900, "event": "written", **bracket},
        ]
        self.tables["inode_writeback"] += [
            {"ts": ts + 1, "event": "start", **inode, "age": age},
            {"ts": ts + 800, "event": "end", **inode, "wrote": 4},
        ]
        self.tables["block"].append({"ts": ts + 10, **by, **bio})
        return self


def test_pages_of_a_loop_device_count_once(tmp_path):
    """A thread of the loop device writes them into its file, where they become dirty again."""
    story = Story().dirtied(S, LOOP, 11, JOB, 0).flushed(40 * S, LOOP, 11, 100, 50, 39 * S)
    story.dirtied(40 * S + 2000, DISK, FILE, LOOPER, 100)
    story.flushed(80 * S, DISK, FILE, 5100, 52, 40 * S)
    # Another file beside that of the loop device counts.
    story.dirtied(41 * S, DISK, FILE + 1, JOB, 0).flushed(85 * S, DISK, FILE + 1, 7000, 52, 44 * S)
    text = 'capacity = [1.0]\nidentity = ["file"]\n'
    found = []
    manifest = {"disks": DISKS, "mounts": MOUNTS, "clock": CLOCK}
    with make_trace(tmp_path / "t", story.tables, **manifest) as trace:
        for knobs in ("", "[knobs]\ndirty_expire_centisecs = [3000]\n"):
            (tmp_path / "sweep.toml").write_text(text + knobs)
            frame = sweep.run(trace, sweep.load(tmp_path / "sweep.toml"), all_writers=True)
            found += frame[["requests", "unique_pages"]].values.tolist()
    assert found == [[8, 8]] * 3
