"""One device under several names: block events have the disk's, file systems their partition's."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.flusher.dirtying import dirtyings
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.report.block import operation_times
from tracer.analysis.report.page_heat import page_heat
from tracer.analysis.report.writeback import writeback_reasons
from tracer.analysis.views.disks.devices import notes
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.errors import BadTrace

JOB, OTHER, KWORKER = 7, 8, 50
DISK, FIRST, SECOND, LOOP = "8:0", "8:1", "8:2", "7:0"
AT, FAR = 1000, 100_000
"""The sectors at which the partitions begin."""
FSID, BDI = "35cbcaf9-a890-4565-b69e-e6ec26acd374", "btrfs-1"
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": KWORKER, "tid": KWORKER, "ppid": 2, "role": "flusher"},
]
DISKS = [
    {"dev": DISK, "bytes": 512 * 10 * FAR},
    {"dev": FIRST, "bytes": 512 * (FAR - AT), "partition_of": DISK, "start": AT},
    {"dev": SECOND, "bytes": 512 * FAR, "partition_of": DISK, "start": FAR},
]


def mounts(*devices):
    return [{"dev": d, "path": f"/{d}", "type": "ext4", "source": "x"} for d in devices]


ONE = {"disks": DISKS, "mounts": mounts(FIRST)}
BOTH = {"disks": DISKS, "mounts": mounts(FIRST, SECOND)}
BTRFS = {
    "disks": DISKS,
    "mounts": mounts("0:50"),
    "btrfs": [{"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [FIRST, SECOND]}],
}


def bio(ts, sector=AT, tid=JOB, rwbs="W", dev=DISK, event="bio_queue"):
    named = {"dev": dev, "sector": sector, "nr_sector": 8, "rwbs": rwbs}
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, **named}


def said(ts, event, ino=None, dev=FIRST, tid=JOB, **more):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "dev": dev, "ino": ino, **more}


def dirtied(ts, ino, tid=JOB, dev=DISK):
    return said(ts, "dirty_folio", ino, dev, tid)


def called(ts, name, tid=JOB):
    return {"ts": ts, "tid": tid, "pid": tid, "nr": 1, "name": name, "dur_ns": 100}


def file(ino, dev=FIRST, **more):
    return {"dev": dev, "ino": ino, "path": f"/{dev}/{ino}", "how": "handle", "born_ns": 0, **more}


def found(tmp_path, columns, tables, manifest, name="t"):
    with make_trace(tmp_path / name, {"processes": PROCESSES, **tables}, **manifest) as trace:
        flushes(trace)
        return trace.connection.execute(f"SELECT {columns} FROM flushes ORDER BY row").fetchall()


FSYNC = {
    "block": [bio(30), bio(40, AT + 80, rwbs="WSM")],
    "dirty": [dirtied(5, 11)],
    "file_writes": [
        said(15, "fsync_start", 11),
        said(20, "writepages_start", 11),
        said(35, "writepages_end", 11),
    ],
    "syscalls": [called(10, "fdatasync")],
    "files": [file(11)],
}


def test_an_fsync_on_a_partition_has_its_file_and_its_dirtier(tmp_path):
    (data, _) = found(tmp_path, "dev, reason, ino, path, dirtier, certainty", FSYNC, ONE)
    assert data == (DISK, "fsync", 11, "/8:1/11", JOB, "exact")


def test_so_it_has_on_a_disk_of_which_no_partition_is_known(tmp_path):
    """Somebody else's trace, or a file system on the disk itself."""
    tables = {**FSYNC, "file_writes": [{**row, "dev": DISK} for row in FSYNC["file_writes"]]}
    tables["files"] = [file(11, DISK)]
    (data, _) = found(tmp_path, "reason, ino, path, dirtier, certainty", tables, {})
    assert data == ("fsync", 11, "/8:0/11", JOB, "exact")


def test_a_synchronous_write_on_a_partition_is_an_fsync_and_no_direct_write(tmp_path):
    tables = {
        "block": [bio(30)],
        "file_writes": [said(20, "fsync_start", 11), said(25, "writepages_start", 11)],
        "syscalls": [called(10, "pwrite64")],
    }
    assert found(tmp_path, "reason, ino, certainty", tables, ONE) == [("fsync", 11, "exact")]


def test_the_log_of_xfs_on_a_partition_is_the_journals(tmp_path):
    tables = {
        "block": [bio(30, rwbs="FWFSM")],
        "file_writes": [said(20, "fsync", 11), said(25, "log")],
        "syscalls": [called(10, "fsync")],
    }
    assert found(tmp_path, "reason, ino, certainty", tables, ONE) == [("journal", None, "exact")]


def test_a_btrfs_on_partitions_is_found_by_its_members(tmp_path):
    tables = {
        "block": [bio(40), bio(50, FAR), bio(60, FAR + 8, rwbs="WSM")],
        "dirty": [dirtied(5, 257, dev=BDI)],
        "file_writes": [
            said(20, "fsync", 257, None, fsid=FSID, root=5),
            said(30, "ordered_extent", 257, None, fsid=FSID, root=5),
        ],
        "syscalls": [called(10, "fsync")],
        "files": [file(257, BDI, root=5)],
    }
    columns = "reason, ino, root, path, dirtier, certainty"
    data = ("fsync", 257, 5, "/btrfs-1/257", JOB, "exact")
    log = ("journal", 1, None, None, None, "exact")
    assert found(tmp_path, columns, tables, BTRFS) == [data, data, log]


def test_files_of_one_number_on_two_partitions_are_told_apart_but_for_their_dirtiers(tmp_path):
    """The event that names the dirtier names only the disk."""
    tables = {
        **FSYNC,
        "block": [bio(30), bio(130, FAR, OTHER)],
        "dirty": [dirtied(5, 11), dirtied(6, 11, OTHER)],
        "file_writes": [
            *FSYNC["file_writes"],
            said(115, "fsync_start", 11, SECOND, OTHER),
            said(120, "writepages_start", 11, SECOND, OTHER),
        ],
        "syscalls": [called(10, "fsync"), called(110, "fsync", OTHER)],
        "files": [file(11), file(11, SECOND)],
    }
    assert found(tmp_path, "path, dirtiers, certainty", tables, BOTH) == [
        ("/8:1/11", 2, "ambiguous"),
        ("/8:2/11", 2, "ambiguous"),
    ]


@pytest.mark.parametrize("number, noted", [(11, True), (12, False)])
def test_the_flusher_s_model_notes_files_that_it_cannot_tell_apart(tmp_path, number, noted):
    tables = {
        "block": [bio(30), bio(130, FAR)],
        "dirty": [dirtied(5, 11), dirtied(6, number)],
        "file_writes": [
            said(20, "writepages_start", 11),
            said(120, "writepages_start", number, SECOND),
        ],
        "syscalls": [called(10, "fsync"), called(110, "fsync")],
    }
    with make_trace(tmp_path / "t", {"processes": PROCESSES, **tables}, **BOTH) as trace:
        notes = dirtyings(trace).notes
    assert (
        any(note.startswith("1 inode numbers belong to files on several") for note in notes)
        is noted
    )


def test_a_write_out_does_not_end_on_another_partition(tmp_path):
    """The end of the write-out is among lost events; the thread then writes a file of the same
    number on the other partition."""
    whole = {"offset": 0, "last": (1 << 63) - 1, "nr_to_write": (1 << 63) - 1, "sync_mode": 1}
    tables = {
        "block": [bio(130)],
        "dirty": [dirtied(5, 11, OTHER), dirtied(60, 11)],
        "file_writes": [
            said(20, "writepages_start", 11, **whole),
            said(50, "writepages_end", 11, SECOND),
            said(120, "writepages_start", 11),
        ],
        "syscalls": [called(110, "fsync")],
    }
    assert found(tmp_path, "ino, dirtiers", tables, BOTH) == [(11, 2)]


def test_a_write_out_on_one_partition_cleans_no_file_on_the_other(tmp_path):
    whole = {"offset": 0, "last": (1 << 63) - 1, "nr_to_write": (1 << 63) - 1, "sync_mode": 1}
    tables = {
        "block": [bio(30), bio(130, FAR)],
        "dirty": [dirtied(5, 11, OTHER), dirtied(100, 11)],
        "file_writes": [
            said(20, "writepages_start", 11, **whole),
            said(35, "writepages_end", 11),
            said(40, "free_inode", 11),
            said(120, "writepages_start", 11, SECOND, **whole),
            said(135, "writepages_end", 11, SECOND),
        ],
        "syscalls": [called(10, "fsync"), called(110, "fsync")],
    }
    assert found(tmp_path, "ino, dirtiers", tables, BOTH) == [(11, 1), (11, 2)]


def test_a_flushers_bracket_cleans_no_file_if_no_event_says_where_partitions_begin(tmp_path):
    """Each partition may have a file of this number, so the written file is not known."""
    inode = {"tid": KWORKER, "pid": KWORKER, "dev": DISK, "ino": 11, "state": 0}
    times = (100, 200)
    mark = {**dirtied(5, 11, OTHER), "event": "mark_inode_dirty", "flags": 4}
    tables = {
        "dirty": [dirtied(5, 11, OTHER), mark],
        "block": [bio(ts + 5, FAR, KWORKER) for ts in times],
        "inode_writeback": [
            {"ts": at, "event": event, **inode}
            for ts in times
            for at, event in ((ts, "start"), (ts + 9, "end"))
        ],
        "writeback": [{"ts": 1, "tid": KWORKER, "event": "start", "reason": "sync", "bdi": DISK}],
    }
    unknown = [{k: v for k, v in disk.items() if k != "start"} for disk in DISKS]
    answer = found(tmp_path, "dirtier, certainty", tables, {**BOTH, "disks": unknown})
    assert answer == [(OTHER, "ambiguous")] * 2


def test_a_bracket_of_the_flusher_cleans_the_file_whose_partition_it_wrote_to(tmp_path):
    def flushed(ts, sector=None):
        inode = {"tid": KWORKER, "pid": KWORKER, "dev": DISK, "ino": 11, "state": 0}
        begun, ended = ({"ts": ts, "event": "start"}, {"ts": ts + 9, "event": "end"})
        return [begun | inode, ended | inode], [bio(ts + 5, sector, KWORKER)] if sector else []

    def mark(ts, tid):
        return {**dirtied(ts, 11, tid), "event": "mark_inode_dirty", "flags": 4}

    brackets = [flushed(100), flushed(200, AT), flushed(300, FAR), flushed(400, AT)]
    tables = {
        "dirty": [dirtied(5, 11, OTHER), mark(5, OTHER), dirtied(250, 11), mark(250, JOB)],
        "block": [row for _, bios in brackets for row in bios],
        "inode_writeback": [row for rows, _ in brackets for row in rows],
        "writeback": [{"ts": 1, "tid": KWORKER, "event": "start", "reason": "sync", "bdi": DISK}],
    }
    assert found(tmp_path, "dirtier, dirtiers, target, whose, certainty", tables, BOTH) == [
        (OTHER, 1, None, "other", "ambiguous"),
        (JOB, 2, None, "shared", "ambiguous"),
        (JOB, 1, "job", "target", "ambiguous"),
    ]


def test_a_file_of_the_recorders_hides_none_on_another_partition(tmp_path):
    tables = {
        "block": [bio(30), bio(130, FAR)],
        "file_writes": [
            said(20, "writepages_start", 11),
            said(120, "writepages_start", 11, SECOND),
        ],
        "syscalls": [called(10, "fsync"), called(110, "fsync")],
    }
    manifest = {**BOTH, "own_files": {SECOND: [11]}}
    assert found(tmp_path, "ino, own", tables, manifest) == [(11, False), (11, True)]


def test_a_trace_that_does_not_tell_where_partitions_begin_goes_on_as_before(tmp_path):
    unknown = [{k: v for k, v in disk.items() if k != "start"} for disk in DISKS]
    columns = "reason, ino, path, certainty"
    alone = {**ONE, "disks": unknown}
    (data, _) = found(tmp_path, columns, FSYNC, alone, "alone")
    assert data == ("fsync", 11, "/8:1/11", "exact")
    several = {**BOTH, "disks": unknown}
    (data, _) = found(tmp_path, columns, FSYNC, several, "several")
    assert data == ("fsync", None, None, "exact")
    with make_trace(tmp_path / "t", FSYNC, **several) as trace:
        assert notes(trace.manifest, {DISK})[0].startswith(
            "the trace does not say where 8:1, 8:2 begin on 8:0"
        )
        assert page_writebacks(trace, [DISK]).by_device == {DISK: 2}
        with pytest.raises(BadTrace, match="where partition 8:1 begins"):
            page_writebacks(trace, [FIRST])


WRITTEN = {
    "block": [
        *(bio(ts, AT + 8 * ts) for ts in range(10, 13)),
        *(bio(ts, FAR + 8 * ts) for ts in range(20, 25)),
        bio(30, dev=LOOP),
        {**bio(31, 0, rwbs="F"), "nr_sector": 0},
    ]
}


@pytest.mark.parametrize(
    ("names", "pages"),
    [(None, 9), ([DISK], 8), ([FIRST], 3), ([SECOND], 5), ([FIRST, LOOP], 4), (["1:1"], 0)],
)
def test_the_flush_layer_takes_the_write_backs_of_a_partition(tmp_path, names, pages):
    with make_trace(tmp_path / "t", WRITTEN, **BOTH) as trace:
        found = page_writebacks(trace, names, flushes_too=True)
        assert len(found) == pages
        assert int(found.bios.flush.sum()) == (names != ["1:1"])


@pytest.mark.parametrize(
    ("name", "pages"), [("0:50", 8), (BDI, 8), (FSID, 8), (FIRST, 3), (SECOND, 5)]
)
def test_a_btrfs_is_chosen_by_any_of_its_names_and_a_member_by_its_own(tmp_path, name, pages):
    with make_trace(tmp_path / "t", WRITTEN, **BTRFS) as trace:
        assert len(page_writebacks(trace, [name])) == pages


def test_a_btrfs_without_members_has_no_write_backs(tmp_path):
    nowhere = [{"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": []}]
    with make_trace(tmp_path / "t", WRITTEN, disks=DISKS, btrfs=nowhere) as trace:
        assert len(page_writebacks(trace, [BDI])) == 0


def test_tables_of_one_device_take_a_partition_too(tmp_path):
    issued = [bio(row["ts"], row["sector"], event="issue") for row in WRITTEN["block"][:8]]
    done = [bio(row["ts"] + 5, row["sector"], event="complete") for row in issued]
    begun = {"tid": KWORKER, "pid": KWORKER, "event": "start", "reason": "periodic"}
    tables = {
        "block": sorted([*WRITTEN["block"], *issued, *done], key=lambda row: row["ts"]),
        "writeback": [{"ts": 1, "bdi": DISK, **begun}, {"ts": 2, "bdi": LOOP, **begun}],
    }
    with make_trace(tmp_path / "t", tables, **BOTH) as trace:
        assert int(page_heat(trace, SECOND)["writebacks"].sum()) == 5
        assert list(writeback_reasons(trace, FIRST)["writebacks"]) == [1]
        assert set(operation_times(trace, FIRST)["operation"]) == {"write"}
        assert operation_times(trace, "1:1").empty


def test_a_loop_device_on_a_partition_counts_twice(tmp_path):
    disks = [*DISKS, {"dev": LOOP, "on": [FIRST]}, {"dev": "7:1", "on": [LOOP]}]
    with make_trace(tmp_path / "t", {"block": []}, disks=disks) as trace:
        (twice,) = notes(trace.manifest, {DISK, LOOP})
        assert twice.startswith("7:0 lies on 8:1 (on 8:0): ")
        assert notes(trace.manifest, {LOOP}) == []
        (direct,) = notes(trace.manifest, {"7:1", LOOP})
        assert direct.startswith("7:1 lies on 7:0: ")
