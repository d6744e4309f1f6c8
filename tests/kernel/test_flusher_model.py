"""The model of the flusher against the flusher: the same pages, for the same reason, in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.file_systems import FileSystems
from tests.support.sysctls import settings
from tracer.analysis.flushlayer.flusher import knobs, paired
from tracer.analysis.flushlayer.flusher.check import compared
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared
from tracer.analysis.flushlayer.flusher.regenerate import regenerate

pytestmark = pytest.mark.settings

NEAR_S = 0.02
"""Times closer than this have no certain order: the scheduler decides."""

LATE_S = 0.1
"""A step that begins so much later than the others may come after a look that others precede."""

STEPS, STEP_S = 17, 0.48
# The kernel's timer wheel turns 0.94 s into 0.96 s, at any usual HZ: two writes a look. The looks
# begin with the first write. With ages of a quarter more than whole steps, what was written lies
# at least 0.12 s away from looks, and from being just old enough at one.
LOOK_CENTISECS = 94
LATE, EARLY = 492, 300
"""Ages at which the flusher writes, in 0.01 s: what is recorded at one tells the other, too."""

LOAD = """
import os, time
begun = time.monotonic()
def at(second):
    time.sleep(max(0, begun + second - time.monotonic()))
def put(name, pages, offset=0):
    fd = os.open("{mount}/" + name, os.O_CREAT | os.O_RDWR, 0o600)
    assert os.pwrite(fd, os.urandom(4096 * pages), 4096 * offset) == 4096 * pages
    return fd
os.close(put("first", 3))
at(0.5)
os.unlink("{mount}/first")
at({step} * 1.5)
left = put("left", 23)
gone = put("gone", 31)
again = put("again", 16)
synced = put("synced", 2)
os.fdatasync(synced)
number = 0
for n in range(2, {steps}):
    at({step} * (n + 0.5))
    put("appended", 1, number)
    os.pwrite(again, b"y" * 4096, 5 * 4096)
    if n % 5 == 1:
        os.pwrite(synced, b"z" * 8192, 0)
        os.fdatasync(synced)
    if n == 7:
        os.close(gone)
        os.unlink("{mount}/gone")
    number += 1
at({step} * {steps})
"""


class Flushed:
    """A recording of the load on an ext4 of its own, and the files that are left of it."""

    def __init__(self, trace, mount, dev):
        self.dirtied, self.recorded = prepared(trace)
        self.knobs = knobs.recorded_knobs(trace)
        self.dev = dev
        self.files = {path.name: path.stat().st_ino for path in mount.iterdir() if path.is_file()}
        written = self.dirtied.written
        self.written = written.merge(self.dirtied.inodes, left_on="inode", right_index=True)
        looks = "SELECT ts FROM writeback WHERE event = 'start' AND reason = 'periodic' AND bdi = "
        self.looks = trace.sql(f"{looks}'{dev}'")["ts"].to_numpy(np.int64)

    def regenerated(self, at=None):
        """The model's writes, at these knobs or as recorded."""
        return regenerate(self.dirtied, self.recorded, at or self.knobs)

    def own(self, frame):
        """Rows of all that was written to this device but metadata, which is its own inode."""
        is_device = (frame["ino"] >= 1 << 20) & (frame["ino"] < 1 << 32)
        return frame[(frame["dev"] == self.dev) & ~is_device]

    def of_files(self, frame):
        """Rows of the files."""
        return frame[(frame["dev"] == self.dev) & frame["ino"].isin(self.files.values())]

    def pages(self, frame):
        """Pages of each file, by reason."""
        mine = self.of_files(frame)
        names = mine["ino"].map({ino: name for name, ino in self.files.items()})
        pages = mine.groupby([names, "reason"])["pages"].sum()
        return {key: int(n) for key, n in pages.items()}

    def times(self, frame):
        """Returns the times at which each page of the files was written, by file and reason."""
        mine = self.of_files(frame).sort_values("ts", kind="stable")
        return {
            key: np.repeat(rows["ts"].to_numpy(np.int64), rows["pages"])
            for key, rows in mine.groupby(["ino", "reason"])
        }

    def dirtying(self):
        """Rows of the writes that made pages of the files dirty."""
        pieces = self.dirtied.pieces.merge(self.dirtied.inodes, left_on="inode", right_index=True)
        return self.of_files(pieces)

    def appending(self):
        """Returns the times of the writes that appended a page."""
        mine = self.dirtying()
        return np.sort(mine["ts"].to_numpy(np.int64)[mine["ino"] == self.files["appended"]])

    def appended(self):
        """Returns how many pages were appended up to the look that finds the first one old."""
        times = self.appending()
        age = self.knobs.dirty_expire_centisecs * 10_000_000
        return int((times < self.looks[self.looks > times[0] + age].min()).sum())

    def disturbed(self):
        """Returns why the flusher or the load was disturbed: sync(2), or a late write or look."""
        if self.dev in set(self.recorded.synced_devices["dev"]):
            return "somebody called sync(2)"
        old = self.looks - self.knobs.dirty_expire_centisecs * 10_000_000
        writes = self.dirtying()["ts"].to_numpy(np.int64)
        near = np.abs(np.subtract.outer(np.concatenate([self.looks, old]), writes)).min() / 1e9
        if near < NEAR_S:
            return "writes met the flusher"
        appending = self.appending()
        late = np.ptp(appending / 1e9 - STEP_S * np.arange(len(appending)))
        return "a write came late" if late > LATE_S else None


@pytest.fixture(scope="module")
def flushed(record_loads, tmp_path_factory):
    """The load, recorded at both ages."""
    made = {}
    with FileSystems(tmp_path_factory.mktemp("disks")) as file_system:
        with settings() as sysctls:
            for age in (LATE, EARLY):
                sysctls(dirty_expire_centisecs=age, dirty_writeback_centisecs=LOOK_CENTISECS)
                for attempt in range(3):
                    mount, dev = file_system(name=f"{age}-{attempt}")
                    load = LOAD.format(mount=mount, steps=STEPS, step=STEP_S)
                    events = "writeback,inode_writeback,dirty,block,file_writes,syscalls,extents"
                    made[age] = Flushed(
                        record_loads({"load": load}, "-e", events).trace, mount, dev
                    )
                    if not made[age].disturbed():
                        break
                else:
                    pytest.fail(f"{made[age].disturbed()} in each of three recordings: run again")
        yield made


@pytest.mark.parametrize("age", [LATE, EARLY])
def test_the_model_writes_what_the_flusher_wrote(flushed, age):
    found = flushed[age]
    assert found.knobs.dirty_expire_centisecs == age
    made = found.regenerated()
    was = found.pages(found.written)
    assert found.pages(made.writes) == was
    assert was["left", "periodic"] == 23
    assert was["again", "periodic"] >= 16
    assert was["synced", "fsync"] == 2 + 2 * len(range(6, STEPS, 5))
    assert was["appended", "periodic"] == found.appended()
    # Neither the kernel nor the model writes files that were unlinked before their time.
    periodic = found.own(made.writes[made.writes["reason"] == "periodic"])
    assert set(periodic["ino"]) == {found.files[name] for name in ("left", "again", "appended")}
    gone = found.dirtied.pieces.merge(found.dirtied.inodes, left_on="inode", right_index=True)
    gone = gone[(gone["dev"] == found.dev) & (gone["how"] == paired.DROPPED)]
    assert 31 in gone.groupby("ino")["pages"].sum().to_list()
    # At the same looks, or calls.
    then = found.times(found.written)
    for key, times in found.times(made.writes).items():
        assert np.abs(times - then[key]).max() / 1e9 < STEP_S, key
    # For others, nobody knows which pages were dirty before the recording.
    columns = found.dirtied.written.columns
    own = replace(found.dirtied, written=found.own(found.written)[columns])
    checked = compared(own, replace(made, writes=found.own(made.writes)), 5.0)
    assert checked.misplaced_share < 0.05
    # Everything but metadata is where the file system told.
    assert found.dirtied.counts["pages_told"] >= found.of_files(found.written)["pages"].sum()


@pytest.mark.parametrize(("age", "other"), [(LATE, EARLY), (EARLY, LATE)])
def test_the_model_follows_the_knob_as_the_kernel_does(flushed, age, other):
    """Recorded at one age, the model at the other one writes what the kernel does."""
    found = flushed[age]
    turned = found.knobs.changed(dirty_expire_centisecs=other)
    made = found.pages(found.regenerated(turned).writes)
    wanted = flushed[other].pages(flushed[other].written)
    assert made["left", "periodic"] == wanted["left", "periodic"] == 23
    assert made["synced", "fsync"] == wanted["synced", "fsync"]
    if other > age:
        # Everything that was dirtied again was seen: no page is missing.
        assert made["again", "periodic"] == wanted["again", "periodic"]
