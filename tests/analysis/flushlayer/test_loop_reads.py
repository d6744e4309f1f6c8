"""Reads of a loop device, which threads of the kernel read again on the disk of its file."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.flushlayer.trace.loop_reads import LoopReads

DISK, FIRST, SECOND, LOOP = "8:0", "8:1", "8:2", "7:0"
IMAGE, OTHER_FILE = 77, 78
JOB, KWORKER, NOBODY = 7, 50, 99
START, FAR = 1000, 100_000
"""The first sectors of the partitions."""
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "other", "comm": "python", "ppid": 1},
    {"pid": KWORKER, "tid": KWORKER, "role": "other", "comm": "kworker/u8:1", "ppid": 2},
]
UPPER = {"dev": LOOP, "bytes": 1 << 30, "on": [FIRST], "backing_file": "/image",
         "backing_ino": IMAGE}  # fmt: skip
IN_IMAGE, IN_OTHER, NOWHERE = START + 80, START + 160, START + 800
"""Sectors of the image, of another file, and of a file that no event names."""


def bio(ts, dev, sector, tid, rwbs="R"):
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", "dev": dev, "sector": sector,
            "nr_sector": 16, "rwbs": rwbs}  # fmt: skip


def extent(ino, sector):
    """The file has 8 blocks of 4096 bytes from a sector of the disk on."""
    return {"ts": 1, "tid": JOB, "event": "known", "dev": FIRST, "ino": ino, "file_block": 0,
            "disk_block": (sector - START) // 8, "blocks": 8}  # fmt: skip


def trace_of(folder, *bios, loop=UPPER, without=()):
    tables = {
        "block": list(bios),
        "processes": PROCESSES,
        "extents": [extent(IMAGE, IN_IMAGE), extent(OTHER_FILE, IN_OTHER)],
    }
    disks = [
        {"dev": DISK, "bytes": 1 << 40},
        {"dev": FIRST, "bytes": 512 * (FAR - START), "partition_of": DISK, "start": START},
        {"dev": SECOND, "bytes": 512 * FAR, "partition_of": DISK, "start": FAR},
        loop,
    ]
    mounts = [{"dev": dev, "path": f"/{dev}", "type": "ext4", "source": "x"}
              for dev in (FIRST, SECOND)]  # fmt: skip
    return make_trace(
        folder,
        {name: rows for name, rows in tables.items() if name not in without},
        disks=disks,
        mounts=mounts,
        file_systems=[{"dev": FIRST, "block_bytes": 4096}],
    )


def upper(ts):
    return bio(ts, LOOP, 8 * ts, JOB)


@pytest.mark.parametrize(
    ("tid", "sector", "rwbs", "again", "guess"),
    [
        (KWORKER, IN_IMAGE, "R", True, LoopReads()),
        (KWORKER, NOWHERE, "R", True, LoopReads(guessed=2)),
        (KWORKER, IN_OTHER, "R", False, LoopReads()),  # a limit of speed held it back
        (KWORKER, IN_IMAGE, "RM", False, LoopReads()),  # where the blocks of the image lie
        (KWORKER, FAR + 80, "R", False, LoopReads()),  # another partition
        (KWORKER, 80, "R", False, LoopReads()),  # no partition
        (JOB, IN_IMAGE, "R", False, LoopReads()),  # a copy of the image
        (JOB, NOWHERE, "R", False, LoopReads()),
        (NOBODY, IN_IMAGE, "R", True, LoopReads()),
        (NOBODY, NOWHERE, "R", False, LoopReads(doubtful=2)),
        (NOBODY, IN_OTHER, "R", False, LoopReads()),
    ],
)
def test_a_read_below_a_loop_device(tmp_path, tid, sector, rwbs, again, guess):
    """Reads of two pages: three of the loop device, and one of the disk."""
    bios = [*(upper(ts) for ts in (10, 20, 30)), bio(31, DISK, sector, tid, rwbs)]
    with trace_of(tmp_path / "t", *bios) as trace:
        found = page_writebacks(trace, reads=True)
        assert (len(found), found.below) == ((6, {DISK: 2}) if again else (8, {}))
        assert found.loop_reads == guess
        assert len(page_writebacks(trace, [DISK], reads=True)) == 2


def test_a_loop_device_that_nobody_uses_has_no_reads_below(tmp_path):
    with trace_of(tmp_path / "t", bio(31, DISK, IN_IMAGE, KWORKER)) as trace:
        assert len(page_writebacks(trace, reads=True)) == 2


def test_a_loop_device_of_an_unknown_file_hides_nothing(tmp_path):
    bios = [upper(10), bio(31, DISK, IN_IMAGE, KWORKER)]
    unknown = {key: value for key, value in UPPER.items() if key != "backing_ino"}
    with trace_of(tmp_path / "t", *bios, loop=unknown) as trace:
        assert len(page_writebacks(trace, reads=True)) == 4


def test_reads_for_writes_to_a_loop_device_are_left_out_too(tmp_path):
    """A write of a part of a page makes the page cache below read the page."""
    bios = [bio(10, LOOP, 8, JOB, "WS"), bio(31, DISK, IN_IMAGE, KWORKER)]
    with trace_of(tmp_path / "t", *bios) as trace:
        found = page_writebacks(trace, reads=True)
    assert (len(found), found.by_device, found.below) == (2, {LOOP: 2}, {DISK: 2})


@pytest.mark.parametrize("model", ["paper", "timed"])
def test_an_answer_says_what_it_guesses(tracer, tmp_path, model):
    bios = [upper(10), bio(31, DISK, NOWHERE, KWORKER), bio(41, DISK, NOWHERE, NOBODY)]
    trace_of(tmp_path / "t", *bios).close()
    options = ("--model", model, "--buffer", "read-write", "--capacity", "1M")
    told = tracer("simulate", tmp_path / "t", *options, "--json").json
    said = " ".join(told["assumptions"])
    assert told["below_left_out"] == {DISK: 2}
    assert "2 of these pages were read by threads of the kernel" in said
    assert "2 pages were read below a loop device by unknown threads" in said
    assert "unknown threads" in " ".join(tracer("simulate", tmp_path / "t", *options).out.split())


def test_a_trace_without_processes_knows_the_image_by_its_blocks_alone(tmp_path):
    bios = [upper(10), bio(31, DISK, IN_IMAGE, KWORKER), bio(41, DISK, NOWHERE, KWORKER)]
    with trace_of(tmp_path / "t", *bios, without=("processes",)) as trace:
        found = page_writebacks(trace, reads=True)
    assert (len(found), found.loop_reads) == (4, LoopReads(doubtful=2))
