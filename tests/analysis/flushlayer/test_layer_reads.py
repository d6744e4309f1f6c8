"""A layer for reads and writes: the reads that it serves, counted again in a few lines."""

from __future__ import annotations

import random

import pandas as pd
import pytest

from tests.support.page_events import ONE, PAGE
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

JOB, OTHER = 7, 8
DEV, INO, FIRST_BLOCK = "254:0", 12, 1000
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": OTHER, "tid": OTHER, "role": "other", "comm": "cp", "ppid": 1},
]
CAPACITY = 40


def recording(folder, accesses, unit=1):
    """Makes a trace of (thread, page, reads): pages that missed the page cache, and direct writes.

    Each page that the job reads is used three times; the page cache serves the last two. A page is
    one of the kernel's, and has `unit` pages of 4096 bytes.
    """
    block, events = [], []
    for number, (tid, page, reads) in enumerate(accesses):
        ts = 1000 * (number + 1)
        block.append({"ts": ts, "cpu": 0, "pid": tid, "tid": tid, "event": "bio_queue", "dev": DEV,
                      "sector": 8 * unit * (FIRST_BLOCK + page), "nr_sector": 8 * unit,
                      "rwbs": "R" if reads else "WS"})  # fmt: skip
        if reads:
            event = {"pid": tid, "tid": tid, "dev": DEV, "ino": INO, "index": page, "pages": 1}
            events += [{**event, "ts": ts - 5, "event": "add"}] + [
                {**event, "ts": ts + later, "event": "access", "continues": False}
                for later in (10, 20, 30)
            ]
            events.append({**event, "ts": ts + 40, "event": "delete"})
    tables = {"processes": PROCESSES, "block": block, "page_cache": events, "dirty": []}
    clock = {"name": "mono", "start_ns": 0, "end_ns": 1000 * (len(accesses) + 2)}
    host = {"machine": "aarch64", "cpus": 2, "memory_bytes": 1 << 30, "page_size": PAGE * unit}
    make_trace(folder, tables, targets=ONE, clock=clock, host=host).close()


def served_by_lru(accesses, capacity):
    """Returns the reads, and those served by a layer that keeps the pages used last.

    A page is there if fewer than `capacity` other pages came between its uses.
    """
    frame = pd.DataFrame(accesses, columns=["tid", "page", "reads"])
    last: dict[int, int] = {}
    served = 0
    for at, row in enumerate(frame.itertuples()):
        if row.page in last:
            between = frame.page[last[row.page] + 1 : at].nunique()
            served += int(row.reads and between < capacity)
        last[row.page] = at
    return int(frame.reads.sum()), served


@pytest.fixture
def accesses():
    draw = random.Random(11)
    return [(JOB, draw.randrange(97), draw.random() < 0.7) for _ in range(503)]


@pytest.mark.parametrize("identity", ["block", "file"])
def test_reads_served_by_the_layer(tracer, tmp_path, accesses, identity):
    recording(tmp_path / "a.trace", accesses)
    options = ("--buffer", "read-write", "--capacity-pages", CAPACITY, "--identity", identity)
    told = tracer("simulate", "a.trace", *options, "--all-writers", "--json").json
    reads, served = served_by_lru(accesses, CAPACITY)
    assert (told["reads"], told["read_hits"]) == (reads, served)
    assert 0 < served < reads
    assert told["page_cache"] == {
        "used_pages": 3 * reads, "missed_pages": reads, "read_pages": reads,
        "kernel_page_bytes": PAGE, "other_pages": 0, "shared_devices": [], "inferred": False,
        "unknown_share": {},
    }  # fmt: skip
    assert any("served 66.7% of the" in said for said in told["assumptions"])


def test_reads_on_a_kernel_with_pages_of_64_kib(tracer, tmp_path, accesses):
    """Each page counts as 16 of 4096 bytes, in the page cache as in the reads of the layer."""
    recording(tmp_path / "a.trace", accesses, 16)
    options = ("--buffer", "read-write", "--capacity-pages", 16 * CAPACITY, "--all-writers")
    told = tracer("simulate", "a.trace", *options, "--json").json
    reads, served = served_by_lru(accesses, CAPACITY)
    assert (told["reads"], told["read_hits"]) == (16 * reads, 16 * served)
    assert told["page_cache"] == {
        "used_pages": 48 * reads, "missed_pages": 16 * reads, "read_pages": 16 * reads,
        "kernel_page_bytes": 16 * PAGE, "other_pages": 0, "shared_devices": [], "inferred": False,
        "unknown_share": {},
    }  # fmt: skip
    assert any("each use of one counts as 16 pages" in said for said in told["assumptions"])
    assert "each use of one counts as 16 pages" in " ".join(
        tracer("simulate", "a.trace", *options).out.split()
    )


def test_reads_of_a_job_that_writes_nothing(tracer, tmp_path, accesses):
    reading = [(JOB, page, True) for _, page, _ in accesses]
    others = [(OTHER, page + 500, True) for _, page, _ in accesses[:50]]
    recording(tmp_path / "a.trace", [*reading, *others])
    options = ("simulate", "a.trace", "--buffer", "read-write", "--capacity", CAPACITY * PAGE)
    reads, served = served_by_lru(reading, CAPACITY)
    said = tracer(*options).out
    assert f"page reads                  {reads}" in said
    assert f"served by the layer         {served} (" in said
    page = tmp_path / "a.html"
    assert tracer(*options, "--html", page).status == 0
    assert f"of {reads} page reads that missed the page cache" in page.read_text()


DISK, HALF, REST, MAPPED, FAR = "8:0", "8:1", "8:2", "253:0", 100_000
DISKS = [
    {"dev": DISK, "bytes": 512 * 3 * FAR},
    {"dev": HALF, "bytes": 512 * FAR, "partition_of": DISK, "start": 0},
    {"dev": REST, "bytes": 512 * FAR, "partition_of": DISK, "start": FAR},
    {"dev": DEV, "bytes": 512 * FAR},
    {"dev": MAPPED, "bytes": 512 * FAR, "on": [REST, DEV]},
]
READ = {DEV: (3, 0), HALF: (5, 0), MAPPED: (7, FAR)}
"""Pages that the job reads from each file system, and the first sector below it."""
UNKNOWN = "0:3"


def reading(folder):
    """Makes a trace of reads from three file systems: a disk's, a partition's, and one on LVM.

    LVM hands its reads on to a partition. Another process reads, too, and the job reads a device
    itself, whose pages belong to no file system.
    """
    block, events = [], []

    def read(tid, dev, index, *bios):
        ts = 1000 * (len(events) + 1)
        block.extend(
            {"ts": ts, "cpu": 0, "pid": tid, "tid": tid, "event": "bio_queue", "dev": disk,
             "sector": sector, "nr_sector": 8, "rwbs": "R"} for disk, sector in bios
        )  # fmt: skip
        event = {"pid": tid, "tid": tid, "dev": dev, "ino": INO, "index": index, "pages": 1}
        events.extend(
            [{**event, "ts": ts - 5, "event": "add"},
             {**event, "ts": ts + 10, "event": "access", "continues": False}]
        )  # fmt: skip

    for dev, (pages, first) in READ.items():
        below = DISK if dev in (HALF, MAPPED) else dev
        for n in range(pages):
            upper = [(MAPPED, 8 * n)] if dev == MAPPED else []
            read(JOB, dev, n, *upper, (below, first + 8 * n))
    read(OTHER, HALF, 90, (DISK, 8 * 90))
    read(JOB, UNKNOWN, 0, (DISK, 2 * FAR + 8))
    mounts = [{"dev": dev, "path": f"/{dev}", "type": "ext4", "source": "x"} for dev in READ]
    tables = {"processes": PROCESSES, "block": block, "page_cache": events, "dirty": []}
    clock = {"name": "mono", "start_ns": 0, "end_ns": 10**9}
    make_trace(folder, tables, targets=ONE, clock=clock, disks=DISKS, mounts=mounts).close()


@pytest.mark.parametrize(
    ("dev", "pages", "shared"),
    [
        ((), 3 + 5 + 7 + 1, []),
        ((DEV,), 3 + 7, [MAPPED]),
        ((HALF,), 5, []),
        ((REST,), 7, [MAPPED]),
        ((MAPPED,), 7, []),
        ((DISK,), 5 + 7, [MAPPED]),
        ((DISK, DEV), 3 + 5 + 7, []),
        (("9:9",), 0, []),
    ],
)
def test_the_page_cache_of_a_device_has_the_files_that_lie_there(
    tracer, tmp_path, dev, pages, shared
):
    reading(tmp_path / "a.trace")
    asked = [word for one in dev for word in ("--dev", one)]
    options = ("--buffer", "read-write", "--capacity", "1M", *asked)
    told = tracer("simulate", "a.trace", *options, "--json").json
    found = told["page_cache"]
    assert (found["used_pages"], found["missed_pages"], found["read_pages"]) == (pages,) * 3
    assert found["shared_devices"] == shared
    assert found["other_pages"] == (1 if dev else 0)
    said = " ".join(told["assumptions"])
    assert ("1 page uses do not count" in said) == bool(dev)
    assert (f"files of {MAPPED} lie on other devices, too" in said) == bool(shared)


@pytest.mark.parametrize(("dev", "reads"), [(HALF, 5), (MAPPED, 7)])
def test_the_reads_of_a_device_are_those_that_its_page_cache_missed(tracer, tmp_path, dev, reads):
    reading(tmp_path / "a.trace")
    options = ("--buffer", "read-write", "--capacity", "1M", "--dev", dev)
    told = tracer("simulate", "a.trace", *options, "--json").json
    assert told["reads"] == told["page_cache"]["missed_pages"] == reads


def test_other_buffers_take_no_reads(tracer, tmp_path, accesses):
    recording(tmp_path / "a.trace", accesses)
    told = tracer("simulate", "a.trace", "--all-writers", "--json").json
    assert (told["reads"], told["read_hits"]) == (None, None)
    assert "page_cache" not in told
