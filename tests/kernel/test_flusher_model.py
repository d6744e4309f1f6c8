"""The model of the flusher against the flusher: the same pages, for the same reason, in time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.flushlayer.flusher import knobs, pairing
from analysis.flushlayer.flusher.check import compared
from analysis.flushlayer.flusher.recorded import prepared
from analysis.flushlayer.flusher.regenerate import regenerate

NEAR_S = 0.02
"""Which of a write and a look comes first is the scheduler's affair when they are so close."""

# Writes lie half a second away from the flusher's looks, which begin with the first dirty inode.
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
at({scale} * 1.5)
left = put("left", 23)
gone = put("gone", 31)
again = put("again", 16)
synced = put("synced", 2)
os.fdatasync(synced)
number = 0
for second in range(2, {seconds}):
    at({scale} * (second + 0.5))
    put("appended", 1, number)
    os.pwrite(again, b"y" * 4096, 5 * 4096)
    if second % 5 == 1:
        os.pwrite(synced, b"z" * 8192, 0)
        os.fdatasync(synced)
    if second == 7:
        os.close(gone)
        os.unlink("{mount}/gone")
    number += 1
at({scale} * {seconds})
"""


@pytest.fixture
def recorded_load(file_system, record, load):
    """Record the load on an ext4 of its own; returns what was dirtied, the knobs and the trace."""

    def run(name: str, seconds: int, scale: float):
        mount, dev = file_system(name=name)
        trace = record(
            load(LOAD.format(mount=mount, seconds=seconds, scale=scale)),
            "-e",
            "writeback,inode_writeback,dirty,block,file_writes,syscalls,extents",
        )
        found, recorded = prepared(trace)
        files = {p.name: p.stat().st_ino for p in mount.iterdir() if p.is_file()}
        return found, recorded, knobs.recorded(trace), dev, files, trace

    return run


def by_file(frame, dev, files):
    """Pages of each file of a device, by reason."""
    names = {ino: name for name, ino in files.items()}
    mine = frame[(frame["dev"] == dev) & frame["ino"].isin(list(names))]
    pages = mine.groupby([mine["ino"].map(names), "reason"])["pages"].sum()
    return {key: int(n) for key, n in pages.items()}


def recorded_by_file(found, dev, files):
    return by_file(found.written.merge(found.inodes, left_on="inode", right_index=True), dev, files)


def closest_s(trace, found, dev, files, knobs):
    """How near a write comes to a look of the flusher, or to what is just old at one."""
    mine = found.pieces.merge(found.inodes, left_on="inode", right_index=True)
    mine = mine[(mine["dev"] == dev) & mine["ino"].isin(files.values())]
    looks = trace.sql(
        f"SELECT ts FROM writeback WHERE event = 'start' AND reason = 'periodic' AND bdi = '{dev}'"
    )["ts"].to_numpy(np.int64)
    old = looks - knobs.dirty_expire_centisecs * 10_000_000
    writes = mine["ts"].to_numpy(np.int64)
    return np.abs(np.subtract.outer(np.concatenate([looks, old]), writes)).min() / 1e9


@pytest.mark.usefixtures("sysctls")
def test_the_model_writes_what_the_flusher_wrote(recorded_load):
    for attempt in range(3):
        found, recorded, at_knobs, dev, files, _ = recorded_load(f"disk{attempt}", 37, scale=1)
        was = recorded_by_file(found, dev, files)
        made = regenerate(found, recorded, at_knobs)
        assert by_file(made.writes, dev, files) == was
        if dev not in set(recorded.synced_devices["dev"]):
            break
        # Somebody called sync(2), and left the flusher nothing that is old enough.
    else:
        pytest.fail("somebody called sync(2) in each of three recordings: end what does, run again")
    assert was["left", "periodic"] == 23
    assert was["again", "periodic"] >= 16
    assert was["synced", "fsync"] == 2 + 2 * len(range(6, 37, 5))
    assert 30 <= was["appended", "periodic"] <= 35
    # What was unlinked before its time was never written, nor is it by the model.
    mine = made.writes[(made.writes["dev"] == dev) & (made.writes["reason"] == "periodic")]
    known = pd.Series(mine["ino"].unique())
    device = (known >= 1 << 20) & (known < 1 << 32)  # the disk's own inode: metadata
    assert set(known[~device]) == {files[name] for name in ("left", "again", "appended")}
    gone = found.pieces.merge(found.inodes, left_on="inode", right_index=True)
    gone = gone[(gone["dev"] == dev) & (gone["how"] == pairing.DROPPED)]
    assert 31 in gone.groupby("ino")["pages"].sum().to_list()
    assert compared(found, made, 5.0).misplaced_share < 0.05
    # Everything but metadata is where the file system told.
    mine = found.written.merge(found.inodes, left_on="inode", right_index=True)
    assert found.counts["pages_told"] >= mine[mine["ino"].isin(files.values())]["pages"].sum()


def test_the_model_follows_the_knob_as_the_kernel_does(recorded_load, sysctls):
    """Recorded at 7.76 s, the model at 2.72 s writes what the kernel does; and the other way."""
    seen = {}
    for expire in (776, 272):
        # Of 0.94 s the kernel's timer wheel makes 0.96 s, at any usual HZ: two writes a look. With
        # these ages, none comes within 77 ms of a look, or of an age just reached at one.
        sysctls(dirty_expire_centisecs=expire, dirty_writeback_centisecs=94)
        for attempt in range(3):
            *seen[expire], trace = recorded_load(f"at{expire}-{attempt}", seconds=28, scale=0.48)
            found, _, at_knobs, dev, files = seen[expire]
            if closest_s(trace, found, dev, files, at_knobs) > NEAR_S:
                break
        else:
            pytest.fail("writes met the flusher in each of three recordings: end what else runs")
    for expire, other in ((776, 272), (272, 776)):
        found, recorded, at_knobs, dev, files = seen[expire]
        assert at_knobs.dirty_expire_centisecs == expire
        was = recorded_by_file(found, dev, files)
        assert by_file(regenerate(found, recorded, at_knobs).writes, dev, files) == was
        turned = at_knobs.changed(dirty_expire_centisecs=other)
        made = by_file(regenerate(found, recorded, turned).writes, dev, files)
        of_other = seen[other]
        wanted = recorded_by_file(of_other[0], of_other[3], of_other[4])
        assert made["left", "periodic"] == wanted["left", "periodic"] == 23
        assert made["synced", "fsync"] == wanted["synced", "fsync"]
        if other > expire:
            # Everything that was dirtied again was seen: no page is missing.
            assert made["again", "periodic"] == wanted["again", "periodic"]
