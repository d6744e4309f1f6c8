"""Pages of stacked devices count once: on stacks drawn at random, and in cases that have names."""

import tempfile
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.drawing import batches
from tests.oracles.drawn_stacks import World
from tests.oracles.stacked import Stack
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks

pytestmark = pytest.mark.slow

WORLDS, TOGETHER = 40, 10
"""Stacks at most, and those of a trace: each has its own devices, threads and time."""
DISK, FIRST, SECOND, MAPPED, OTHER, LOOP, ARRAY = (
    *("8:0", "8:1", "8:2"),
    *("253:0", "253:1", "7:0", "9:0"),
)
AT, FAR, END = 1000, 4000, 10_000
"""The sectors between which the two partitions lie."""
PARTS = [
    {"dev": DISK, "bytes": 512 * END},
    {"dev": FIRST, "bytes": 512 * (FAR - AT), "partition_of": DISK, "start": AT},
    {"dev": SECOND, "bytes": 512 * (END - FAR), "partition_of": DISK, "start": FAR},
]
UNTOLD = [{name: part[name] for name in part if name != "start"} for part in PARTS]
FILE, OWN, FLUSHER = 77, 80, 50
Row = dict[str, Any]
Counts = tuple[dict[str, int], dict[str, int]]


def numbered(pages: Sequence[Hashable]) -> list[int]:
    """Returns dense numbers for pages, by when each first came."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(page, len(numbers)) for page in pages]


def together(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def test_pages_count_once_as_they_do_for_the_oracle():
    for first, cases in enumerate(batches(TOGETHER, WORLDS)):
        worlds = [World(numbers, number) for number, numbers in enumerate(cases)]
        stacks = [Stack(world.tables, world.manifest) for world in worlds]
        tables = {
            name: [row for world in worlds for row in world.tables[name]]
            for name in worlds[0].tables
        }
        manifest = {
            "disks": [disk for world in worlds for disk in world.manifest["disks"]],
            "mounts": [mount for world in worlds for mount in world.manifest["mounts"]],
            "own_files": together(world.manifest["own_files"] for world in worlds),
        }
        with (
            tempfile.TemporaryDirectory(dir=PLACE) as folder,
            make_trace(Path(folder) / "t", tables, **manifest) as trace,
        ):
            found = page_writebacks(trace, all_writers=True)
            every = [stack.count() for stack in stacks]
            assert found.by_device == together(one.by_device for one in every), first
            assert found.below == together(one.below for one in every), first
            assert len(found) == sum(len(one.pages) for one in every)
            begin = 0
            for number, expected in enumerate(every):
                own = found.page[begin : begin + len(expected.pages)].tolist()
                assert numbered(own) == numbered(expected.pages), (first, number)
                begin += len(own)
            for number, (world, stack) in enumerate(zip(worlds, stacks, strict=True)):
                count = min(len(world.devices), world.numbers.randint(1, 3))
                chosen = world.numbers.sample(world.devices, count)
                expected = stack.count(chosen)
                found = page_writebacks(trace, chosen, all_writers=True)
                assert found.by_device == expected.by_device, (first, number, chosen)
                assert found.below == expected.below, (first, number, chosen)
                assert found.page.tolist() == numbered(expected.pages)


def bio(ts: int, dev: str, sector: int = 0, rwbs: str = "W", tid: int = 1) -> Row:
    """Returns the row of a bio of one page."""
    row = {"ts": ts, "event": "bio_queue", "tid": tid, "pid": tid, "rwbs": rwbs}
    return row | {"dev": dev, "sector": sector, "nr_sector": 8}


def stacked(dev: str, *on: str, **more: Any) -> Row:
    """Returns the facts about a device on others."""
    return {"dev": dev, "bytes": 512 * END, "on": list(on), **more}


def in_file(dev: str, on: str) -> Row:
    """Returns the facts about a loop device in the file `FILE` of a file system."""
    return stacked(dev, on, backing_file="/img", backing_ino=FILE)


def mounts(*devices: str) -> list[Row]:
    return [{"dev": dev, "path": f"/{dev}", "type": "ext4", "source": "x"} for dev in devices]


def written_back(bdi: str = DISK, ino: int = FILE) -> dict[str, list[Row]]:
    """Returns the tables in which the flusher writes a file back from time 10 to 30."""
    thread = {"tid": FLUSHER, "pid": FLUSHER}
    inode = {**thread, "dev": bdi, "ino": ino}
    return {
        "writeback": [
            {**thread, "ts": 9, "event": "start", "bdi": bdi, "reason": "periodic"},
            {**thread, "ts": 31, "event": "written", "bdi": bdi, "reason": "periodic"},
        ],
        "inode_writeback": [
            {**inode, "ts": 10, "event": "start"},
            {**inode, "ts": 30, "event": "end"},
        ],
    }


def counts(
    folder: Path, disks: list[Row], bios: list[Row], devices: list[str] | None = None, **more: Any
) -> Counts:
    """Returns the pages that count, and those that do not, by device. `more` has other tables, and
    what else the manifest tells."""
    facts = {name: more.pop(name) for name in ("mounts", "own_files", "btrfs") if name in more}
    facts.setdefault("own_files", {})
    with make_trace(folder / "t", {"block": bios, **more}, disks=disks, **facts) as trace:
        found = page_writebacks(trace, devices, all_writers=True)
        assert len(found) == sum(found.by_device.values())
        return found.by_device, found.below


WRITTEN = [bio(1, LOOP), bio(20, DISK, AT, tid=FLUSHER)]
"""A page of a loop device, and one of its file."""
IN_FIRST = {"disks": [*PARTS, in_file(LOOP, FIRST)], "bios": WRITTEN, "mounts": mounts(FIRST)}
ONCE, TWICE = ({LOOP: 1}, {DISK: 1}), ({LOOP: 1, DISK: 1}, {})


@pytest.mark.parametrize(
    "middle",
    [
        stacked(MAPPED, FIRST),
        stacked(MAPPED, FIRST, backing_file="/dev/sda1", backing_ino=None),
        in_file(MAPPED, FIRST),
    ],
    ids=["mapped", "loop on a partition", "loop in a file"],
)
def test_a_device_between_two_others_may_have_no_writes(tmp_path, middle):
    disks = [*PARTS, middle, stacked(ARRAY, MAPPED)]
    bios = [bio(1, ARRAY), bio(20, DISK, AT, tid=FLUSHER)]
    more = {"mounts": mounts(FIRST)} if middle.get("backing_ino") else {}
    expected = Stack({"block": bios, **written_back()}, {"disks": disks, "own_files": {}}).count()
    assert (expected.by_device, expected.below) == ({ARRAY: 1}, {DISK: 1})
    found = counts(tmp_path, disks, bios, **written_back(), **more)
    assert found == ({ARRAY: 1}, {DISK: 1})


def test_the_only_partition_is_read_as_the_whole_disk_below_a_mapped_device(tmp_path):
    bios = [bio(1, MAPPED), bio(2, DISK, AT)]
    found = counts(tmp_path, [*UNTOLD[:2], stacked(MAPPED, FIRST)], bios, mounts=mounts(MAPPED))
    assert found == ({MAPPED: 1}, {DISK: 1})


def test_both_count_where_a_partition_without_a_start_is_one_of_several(tmp_path):
    bios = [bio(1, MAPPED), bio(2, DISK, FAR)]
    found = counts(tmp_path, [*UNTOLD, stacked(MAPPED, SECOND)], bios, mounts=mounts(FIRST))
    assert found == ({MAPPED: 1, DISK: 1}, {})


def test_both_count_where_two_mounted_partitions_have_no_starts(tmp_path):
    both = IN_FIRST | {"disks": [*UNTOLD, in_file(LOOP, FIRST)], "mounts": mounts(FIRST, SECOND)}
    assert counts(tmp_path, **both, **written_back()) == TWICE


def test_metadata_written_while_a_file_is_written_back_is_no_write_of_the_file(tmp_path):
    bios = [bio(1, LOOP), bio(20, DISK, AT, "WM", FLUSHER)]
    assert counts(tmp_path, **IN_FIRST | {"bios": bios}, **written_back()) == TWICE


def test_a_file_is_told_by_its_bracket_though_events_are_lost_in_it(tmp_path):
    gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "cause": "buffer overrun", "count": 7}
    loss = [{**gap, "from": 12, "to": 15}]
    assert counts(tmp_path, **IN_FIRST, **written_back(), loss=loss) == ONCE


@pytest.mark.parametrize("what", ["direct", "writepages"])
def test_a_file_is_told_by_its_file_system(tmp_path, what):
    named = {"tid": FLUSHER, "pid": FLUSHER, "dev": FIRST, "ino": FILE}
    rows = [
        {**named, "ts": 10, "event": f"{what}_start"},
        {**named, "ts": 30, "event": f"{what}_end"},
    ]
    assert counts(tmp_path, **IN_FIRST, file_writes=rows) == ONCE


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="both count: extents tell the file of a page for --identity, not here",
)
def test_a_file_is_told_by_its_extents(tmp_path):
    row = {"ts": 2, "tid": 1, "event": "known", "dev": FIRST, "ino": FILE}
    extents = [{**row, "file_block": 0, "disk_block": 0, "blocks": 4}]
    assert counts(tmp_path, **IN_FIRST, extents=extents) == ONCE


def test_both_count_where_no_event_tells_of_files(tmp_path):
    assert counts(tmp_path, **IN_FIRST) == TWICE


def test_both_count_below_a_loop_device_of_which_nothing_else_is_told(tmp_path):
    untold = IN_FIRST | {"disks": [*PARTS, stacked(LOOP, FIRST, name="loop0")]}
    assert counts(tmp_path, **untold, **written_back()) == TWICE


def test_one_of_two_loop_devices_in_a_file_suffices(tmp_path):
    two = IN_FIRST | {"disks": [*PARTS, in_file("7:1", FIRST), in_file(LOOP, FIRST)]}
    assert counts(tmp_path, **two, **written_back()) == ONCE


def test_a_file_on_an_idle_mapped_device_is_not_told_further_below(tmp_path):
    disks = [*PARTS, stacked(MAPPED, FIRST), in_file(LOOP, MAPPED)]
    idle = IN_FIRST | {"disks": disks, "mounts": mounts(MAPPED)}
    assert counts(tmp_path, **idle, **written_back(MAPPED)) == TWICE


def test_a_file_may_lie_on_btrfs(tmp_path):
    fsid, bdi, dev = "35cbcaf9-a890-4565-b69e-000000000001", "btrfs-1", "0:50"
    case = IN_FIRST | {
        "disks": [*PARTS, in_file(LOOP, dev)],
        "mounts": [{"dev": dev, "path": "/m", "type": "btrfs", "source": "x"}],
        "btrfs": [{"fsid": fsid, "bdi": bdi, "dev": dev, "devices": [FIRST]}],
    }
    assert counts(tmp_path, **case, **written_back(bdi)) == ONCE


def test_a_file_may_lie_on_an_overlay(tmp_path):
    overlay = {"dev": "0:70", "path": "/m", "type": "overlay", "source": "x", "on": FIRST}
    case = IN_FIRST | {
        "disks": [*PARTS, in_file(LOOP, "0:70")],
        "mounts": [*mounts(FIRST), overlay],
    }
    assert counts(tmp_path, **case, **written_back()) == ONCE


def test_a_device_that_the_recorder_alone_writes_is_not_idle(tmp_path):
    bios = [bio(20, MAPPED, tid=FLUSHER), bio(21, DISK, FAR, tid=FLUSHER)]
    own = {"mounts": mounts(MAPPED), "own_files": {MAPPED: [OWN]}, **written_back(MAPPED, OWN)}
    found = counts(tmp_path, [*PARTS, stacked(MAPPED, SECOND)], bios, **own)
    assert found == ({}, {DISK: 1})


def test_no_page_gets_lost_where_devices_lie_on_one_another(tmp_path):
    disks = [*PARTS, stacked(MAPPED, OTHER), stacked(OTHER, MAPPED)]
    by_device, below = counts(tmp_path, disks, [bio(1, MAPPED), bio(2, OTHER), bio(3, DISK)])
    assert {**by_device, **below} == {MAPPED: 1, OTHER: 1, DISK: 1}


def test_bios_may_name_partitions(tmp_path):
    bios = [bio(1, MAPPED), bio(2, SECOND), bio(3, FIRST)]
    found = counts(tmp_path, [*PARTS, stacked(MAPPED, SECOND)], bios, mounts=mounts(FIRST))
    assert found == ({MAPPED: 1, FIRST: 1}, {SECOND: 1})


def test_a_device_below_need_not_be_in_the_manifest(tmp_path):
    bios = [bio(1, MAPPED), bio(2, "8:16")]
    assert counts(tmp_path, [stacked(MAPPED, "8:16")], bios) == ({MAPPED: 1}, {"8:16": 1})


def test_a_page_of_two_named_devices_counts_once(tmp_path):
    bios = [bio(1, MAPPED), bio(2, DISK, FAR), bio(3, DISK, AT)]
    disks = [*PARTS, stacked(MAPPED, SECOND)]
    assert counts(tmp_path, disks, bios, [DISK, SECOND, MAPPED]) == ({MAPPED: 1, DISK: 2}, {})
