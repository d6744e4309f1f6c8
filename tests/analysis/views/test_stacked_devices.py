"""A page counts once in a chain of devices, on the uppermost one, unless --dev names others."""

import json
from itertools import pairwise

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.views.disks.devices import notes
from tracer.analysis.views.waiting.waits import waits

DISK, FIRST, SECOND, OTHER, UPPER, TOP = "8:0", "8:1", "8:2", "8:16", "253:0", "253:1"
FAR = 100_000
BELOW = [
    {"dev": DISK, "bytes": 512 * 2 * FAR},
    {"dev": FIRST, "bytes": 512 * (FAR - 1000), "partition_of": DISK, "start": 1000},
    {"dev": SECOND, "bytes": 512 * FAR, "partition_of": DISK, "start": FAR},
    {"dev": OTHER, "bytes": 512 * FAR},
]
FILE = 77
IN_FILE = {"dev": DISK, "sector": 2000}


def bio(ts, dev=UPPER, sector=0, rwbs="W", tid=1):
    named = {"dev": dev, "sector": sector, "nr_sector": 8, "rwbs": rwbs}
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", **named}


def trace_of(folder, bios, *uppers, **tables):
    mounts = [{"dev": FIRST, "path": "/", "type": "ext4", "source": "x"}]
    return make_trace(folder, {"block": bios, **tables}, disks=[*BELOW, *uppers], mounts=mounts)


def named(dev, *on, **more):
    return {"dev": dev, "bytes": 512 * FAR, "on": list(on), **more}


def test_a_mapped_device_on_a_partition_leaves_the_other_partition_alone(tmp_path):
    bios = [bio(1), bio(2, DISK, FAR + 8), bio(3, DISK, 1008), bio(4, DISK, FAR + 16)]
    with trace_of(tmp_path / "t", bios, named(UPPER, SECOND)) as trace:
        found = page_writebacks(trace)
        assert (found.by_device, found.below) == ({UPPER: 1, DISK: 1}, {DISK: 2})
        assert page_writebacks(trace, [DISK]).by_device == {DISK: 3}
        assert page_writebacks(trace, [UPPER, SECOND]).by_device == {UPPER: 1, DISK: 2}
        assert notes(trace.manifest, {DISK, UPPER}, once=True) == []
        assert "counted twice" in notes(trace.manifest, {DISK, UPPER})[0]


def test_an_idle_device_hides_nothing_below_it(tmp_path):
    with trace_of(tmp_path / "t", [bio(1, DISK, FAR)], named(UPPER, SECOND)) as trace:
        found = page_writebacks(trace)
        assert (found.by_device, found.below) == ({DISK: 1}, {})


def test_a_mirror_counts_once(tmp_path):
    bios = [bio(1), bio(2, DISK, FAR), bio(2, OTHER, 0), bio(3), bio(4, DISK, FAR), bio(4, OTHER)]
    with trace_of(tmp_path / "t", bios, named(UPPER, SECOND, OTHER)) as trace:
        found = page_writebacks(trace)
        assert found.page.tolist() == [0, 0]
        assert found.below == {DISK: 2, OTHER: 2}


def test_the_uppermost_of_three_counts(tmp_path):
    uppers = (named(UPPER, OTHER), named(TOP, UPPER))
    with trace_of(tmp_path / "t", [bio(1, TOP), bio(2), bio(3, OTHER)], *uppers) as trace:
        found = page_writebacks(trace)
        assert (found.by_device, found.below) == ({TOP: 1}, {UPPER: 1, OTHER: 1})


@pytest.mark.parametrize(
    ("more", "pages", "below"),
    [
        ({"backing_file": "/image", "backing_ino": FILE}, {UPPER: 1, DISK: 1}, {DISK: 1}),
        ({"backing_file": "/image"}, {UPPER: 1, DISK: 2}, {}),
        ({"backing_file": "/dev/sda1", "backing_ino": None}, {UPPER: 1}, {DISK: 2}),
    ],
    ids=["a known file", "an unknown file", "a device"],
)
def test_a_loop_device_carries_its_file_alone(tmp_path, more, pages, below):
    bios = [bio(1), bio(5, **IN_FILE, tid=50), bio(15, DISK, 3000, tid=50)]
    brackets = [
        {"ts": ts, "tid": 50, "event": "start", "dev": DISK, "ino": ino}
        for ts, ino in ((4, FILE), (14, FILE + 1))
    ]
    upper = named(UPPER, FIRST, **more)
    sync = [{"ts": 3, "tid": 50, "event": "start", "reason": "sync"}]
    tables = {"writeback": sync, "inode_writeback": brackets}
    with trace_of(tmp_path / "t", bios, upper, **tables) as trace:
        found = page_writebacks(trace)
        assert (found.by_device, found.below) == (pages, below)
        twice = "counted twice" in "".join(notes(trace.manifest, {DISK, UPPER}, once=True))
        assert twice == (not below)


def test_reads_and_flushes_of_the_device_below_do_not_count_either(tmp_path):
    bios = [
        *(bio(ts, dev, rwbs=rwbs) for ts, rwbs in ((1, "W"), (2, "R")) for dev in (UPPER, OTHER)),
        *({**bio(3, dev, rwbs="F"), "nr_sector": 0} for dev in (UPPER, OTHER)),
    ]
    with trace_of(tmp_path / "t", bios, named(UPPER, OTHER)) as trace:
        found = page_writebacks(trace, reads=True, flushes_too=True)
        assert (found.page.tolist(), found.below) == ([0, 0], {OTHER: 2})
        assert found.bios.names["device"] == [UPPER]
        assert int(found.bios.flush.sum()) == 1


def test_simulate_says_what_it_leaves_out(tmp_path, tracer):
    with trace_of(tmp_path / "t", [bio(1), bio(2, OTHER)], named(UPPER, OTHER)):
        pass
    told = json.loads(tracer("simulate", tmp_path / "t", "--json").out)
    assert told["below_left_out"] == {OTHER: 1}
    assert any(f"--dev {OTHER} counts them there" in line for line in told["assumptions"])
    told = json.loads(tracer("simulate", tmp_path / "t", "--dev", OTHER, "--json").out)
    assert (told["below_left_out"], told["by_device"]) == ({}, {OTHER: 1})


@pytest.mark.parametrize(("kind", "said"), [("tmpfs", False), ("btrfs", True)])
def test_a_trace_that_was_recorded_to_memory_has_no_writes_to_leave_out(tmp_path, kind, said):
    mounts = [{"dev": "0:40", "path": "/t", "type": kind, "source": "x"}]
    own = {"0:40": [5]}
    with make_trace(tmp_path / "t", {"block": [bio(1)]}, mounts=mounts, own_files=own) as trace:
        told = notes(trace.manifest, {UPPER})
    assert any("could not be left out" in note for note in told) == said


@pytest.mark.parametrize("apart_ns", [0, 1])
@pytest.mark.parametrize("chain", [(TOP, UPPER, OTHER), ("9:0", OTHER)])
def test_a_wait_for_a_read_is_for_the_uppermost_device(tmp_path, chain, apart_ns):
    """A thread queues the bios of several devices at one time, or one after the other."""
    job = {"pid": 1, "tid": 1, "role": "target", "target": "job", "comm": "python"}
    tables = {"processes": [job], "block": [], "syscalls": [], "off_cpu": []}
    mine, count = {"pid": 1, "tid": 1}, 60
    for ts in range(0, 1000 * count, 1000):
        tables["block"] += [
            bio(ts + 200 + apart_ns * level, dev, rwbs="R") for level, dev in enumerate(chain)
        ]
        tables["syscalls"].append(
            mine | {"ts": ts + 100, "name": "pread64", "dur_ns": 800, "ret": 4096}
        )
        tables["off_cpu"].append(
            mine
            | {"ts": ts + 300, "dur_ns": 500, "state": "D", "waker_tid": 0, "wake_ns": ts + 800}
            | {"interrupt": True, "run_delay_ns": 0}
        )
    uppers = [named(*two) for two in pairwise(chain)]
    bios = tables.pop("block")
    with trace_of(tmp_path / "t", bios, *uppers, **tables) as trace:
        found = trace.rows(f"SELECT kind, detail, count(*) FROM {waits(trace)} GROUP BY ALL")
    assert found == [("disk", chain[0], count)]
