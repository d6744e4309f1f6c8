"""Writes below stacked devices have the reason, file and dirtier of the write above them."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.report.writeback import FLUSHED_PAGES
from tracer.analysis.views.flushes import flushes

JOB, OTHER, CRYPT = 7, 8, 60
DISK, PART, MIRROR, MAPPED, TOP, LOOP = "8:0", "8:1", "8:16", "253:0", "253:1", "7:0"
AT = 1000
"""The sector at which the partition begins."""
FILE = 77
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": CRYPT, "tid": CRYPT, "ppid": 2, "role": "other"},
]


def bio(ts, dev, sector, sectors=8, tid=CRYPT):
    named = {"dev": dev, "sector": sector, "nr_sector": sectors, "rwbs": "WS"}
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", **named}


def remap(ts, dev, sector, from_dev, from_sector, sectors=8, tid=CRYPT):
    came = {"from_dev": from_dev, "from_sector": from_sector}
    return bio(ts, dev, sector, sectors, tid) | {"event": "remap"} | came


def stacked(dev, *on, **more):
    return {"dev": dev, "bytes": 1 << 30, "on": list(on), **more}


def trace_of(folder, top, block, *uppers):
    """A job's fsync of a file on the device `top`, and these events of the block layer."""
    fsync = {"ts": 5, "tid": JOB, "pid": JOB, "nr": 74, "name": "fsync", "dur_ns": 1000}
    named = {"tid": JOB, "pid": JOB, "dev": top, "ino": FILE}
    tables = {
        "processes": PROCESSES,
        "syscalls": [fsync],
        "dirty": [{"ts": 2, "event": "dirty_folio", **named}],
        "file_writes": [
            {"ts": 6, "event": "fsync_start", **named},
            {"ts": 7, "event": "writepages_start", **named},
        ],
        "block": block,
    }
    disks = [
        {"dev": DISK, "bytes": 1 << 30},
        {"dev": PART, "bytes": 1 << 29, "partition_of": DISK, "start": AT},
        {"dev": MIRROR, "bytes": 1 << 30},
        *uppers,
    ]
    mounts = [{"dev": top, "path": "/", "type": "ext4", "source": "x"}]
    return make_trace(folder, tables, disks=disks, mounts=mounts)


KNOWN = ("fsync", FILE, JOB)


def told(trace):
    """The device, reason, inode and dirtier of each write, and whether it is below another."""
    flushes(trace)
    rows = trace.rows("SELECT dev, reason, ino, dirtier, below FROM flushes ORDER BY row")
    return [(dev, (reason, ino, dirtier), below) for dev, reason, ino, dirtier, below in rows]


def test_another_thread_hands_on_what_a_job_wrote_to_a_device_on_a_partition(tmp_path):
    block = [
        bio(10, MAPPED, 80, tid=JOB),
        # First the sector of the partition, then that of the disk.
        remap(20, DISK, 80, MAPPED, 80),
        remap(21, DISK, AT + 80, PART, 80),
        bio(22, DISK, AT + 80),
    ]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, PART)) as trace:
        assert told(trace) == [(MAPPED, KNOWN, False), (DISK, KNOWN, True)]
        assert FLUSHED_PAGES.of(trace)[["reason", "pages"]].values.tolist() == [["fsync", 1]]


def test_every_level_and_every_copy_is_known(tmp_path):
    block = [bio(10, TOP, 80, tid=JOB), remap(20, MAPPED, 880, TOP, 80), bio(21, MAPPED, 880)]
    # Both copies are made before either is sent.
    block += [remap(30, DISK, 16, MAPPED, 880), remap(31, MIRROR, 24, MAPPED, 880)]
    block += [bio(32, DISK, 16), bio(33, MIRROR, 24)]
    uppers = stacked(TOP, MAPPED), stacked(MAPPED, DISK, MIRROR)
    with trace_of(tmp_path / "t", TOP, block, *uppers) as trace:
        assert told(trace) == [
            (TOP, KNOWN, False),
            *((d, KNOWN, True) for d in (MAPPED, DISK, MIRROR)),
        ]


def test_the_parts_of_a_split_write_are_known(tmp_path):
    block = [bio(10, MAPPED, 80, 64, tid=JOB)]
    block += [remap(20, DISK, 8, MAPPED, 80, 32), bio(21, DISK, 8, 32)]
    block += [remap(22, MIRROR, 8, MAPPED, 112, 32), bio(23, MIRROR, 8, 32)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK, MIRROR)) as trace:
        assert told(trace)[1:] == [(DISK, KNOWN, True), (MIRROR, KNOWN, True)]


def test_a_write_that_no_remap_precedes_is_not_another_ones(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(20, DISK, 80, MAPPED, 80), bio(21, DISK, 80)]
    # The device's own write to the same place, later; and one of a file system on the partition.
    block += [bio(30, DISK, 80), remap(40, DISK, AT + 80, PART, 80), bio(41, DISK, AT + 80)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        nothing = (DISK, ("other", None, None), True)
        assert told(trace)[1:] == [(DISK, KNOWN, True), nothing, nothing]


@pytest.mark.parametrize(("offset", "known"), [(0, True), (16, False)])
def test_a_loop_device_on_a_partition_needs_no_remap(tmp_path, offset, known):
    loop = stacked(LOOP, PART, backing_file="/dev/sda1", backing_ino=None, backing_offset=offset)
    block = [bio(10, LOOP, 80, tid=JOB), bio(20, DISK, AT + 80)]
    with trace_of(tmp_path / "t", LOOP, block, loop) as trace:
        assert (told(trace)[1] == (DISK, KNOWN, True)) is known


def test_a_trace_without_the_origins_of_remaps_says_what_the_thread_below_did(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), remap(20, DISK, 80, None, None), bio(21, DISK, 80)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        assert told(trace) == [(MAPPED, KNOWN, False), (DISK, ("other", None, None), True)]


def test_a_write_to_no_known_device_is_nobodys(tmp_path):
    block = [bio(10, MAPPED, 80, tid=JOB), bio(11, None, 80, tid=OTHER)]
    with trace_of(tmp_path / "t", MAPPED, block, stacked(MAPPED, DISK)) as trace:
        assert told(trace)[1] == (None, ("other", None, None), False)
        assert page_writebacks(trace, all_writers=True).by_device == {MAPPED: 1}
