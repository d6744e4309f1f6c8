"""The data of write requests: the bio at their first sector, and who dirtied it."""

from tests.support.traces import make_trace
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.writing.request_data import make_request_data

JOB, OTHER, KWORKER = 7, 8, 50
DEV = "254:0"
PROCESSES = [
    {"pid": JOB, "tid": JOB, "comm": "job", "role": "target", "target": "a", "container_id": "c"},
    {"pid": OTHER, "tid": OTHER, "comm": "other", "role": "other"},
    {"pid": KWORKER, "tid": KWORKER, "ppid": 2, "comm": "kworker/u8:1", "role": "flusher"},
]
DIRTY = [
    {"ts": ts, "pid": pid, "tid": pid, "event": "dirty_folio", "dev": DEV, "ino": ino}
    for ts, pid, ino in ((1, JOB, 11), (2, OTHER, 12), (3, JOB, 13), (4, OTHER, 13))
]


def block(ts, event, sector, sectors, tid=KWORKER):
    of = {"dev": DEV, "sector": sector, "nr_sector": sectors, "rwbs": "W"}
    return {"ts": ts, "event": event, "pid": tid, "tid": tid, **of}


def written(*inodes):
    """Rows of a flusher that writes a page of each inode, 10 ns one after the other."""
    bracket, bios = [], []
    for at, ino in enumerate(inodes):
        row = {"pid": KWORKER, "tid": KWORKER, "dev": DEV, "ino": ino}
        bracket.append({"ts": 10 * at + 10, "event": "start", **row})
        bios.append(block(10 * at + 12, "bio_queue", 8 * at, 8))
        bracket.append({"ts": 10 * at + 14, "event": "end", "state": 0, **row})
    return bracket, bios


def data_of(folder, tables, columns):
    with make_trace(folder, {"processes": PROCESSES} | tables) as trace:
        requests(trace)
        make_request_data(trace, "(SELECT *, row AS request FROM requests)")
        return trace.rows(
            f"SELECT sector, {columns} FROM requests r JOIN request_data d ON r.row = d.request"
            " ORDER BY sector, issue_ns"
        )


def test_the_dirtier_of_each_request_is_told(tmp_path):
    bracket, bios = written(11, 12, 13)
    issues = [block(50 + at, "issue", 8 * at, 8) for at in range(3)]
    tables = {"block": bios + issues, "inode_writeback": bracket, "dirty": DIRTY}
    columns = "d.dirtier, d.comm, d.target, d.container, d.dirtiers"
    assert data_of(tmp_path / "t", tables, columns) == [
        (0, JOB, "job", "a", "c", 1), (8, OTHER, "other", None, None, 1),
        (16, OTHER, "other", None, None, 2),
    ]  # fmt: skip


def test_a_request_of_several_bios_has_the_data_of_the_first(tmp_path):
    bracket, bios = written(11, 12)
    merge = block(40, "backmerge", 8, 8)
    tables = {
        "block": [*bios, merge, block(50, "issue", 0, 16)],
        "inode_writeback": bracket,
        "dirty": DIRTY,
    }
    assert data_of(tmp_path / "t", tables, "nr_sector, dirtier") == [(0, 16, JOB)]


def test_the_data_of_a_request_is_not_that_of_an_earlier_write_to_its_place(tmp_path):
    bracket, bios = written(11, 12)
    again = [row | {"sector": 0} for row in bios]
    issues = [block(13, "issue", 0, 8), block(15, "complete", 0, 8), block(23, "issue", 0, 8)]
    rows = sorted([*again, *issues], key=lambda row: row["ts"])
    tables = {"block": rows, "inode_writeback": bracket, "dirty": DIRTY}
    assert data_of(tmp_path / "t", tables, "issue_ns, dirtier") == [(0, 13, JOB), (0, 23, OTHER)]


def test_the_rest_of_a_bio_is_data_of_the_same_file(tmp_path):
    """The device took the bio in two requests; an earlier bio wrote the place for another file."""
    bracket, bios = written(11, 12)
    rows = [
        bios[0] | {"nr_sector": 24},
        block(13, "issue", 0, 24),
        block(15, "complete", 0, 24),
        bios[1] | {"sector": 0, "nr_sector": 24},
        block(50, "issue", 0, 8),
        block(51, "issue", 8, 16),
    ]
    tables = {"block": rows, "inode_writeback": bracket, "dirty": DIRTY}
    assert data_of(tmp_path / "t", tables, "queue_ns, dirtier") == [
        (0, 12, JOB), (0, 22, OTHER), (8, None, OTHER),
    ]  # fmt: skip


def test_metadata_is_nobodys_data(tmp_path):
    bracket, bios = written(11, 12)
    rows = [bios[0] | {"rwbs": "WM"}, bios[1], block(50, "issue", 0, 8), block(51, "issue", 8, 8)]
    tables = {"block": rows, "inode_writeback": bracket, "dirty": DIRTY}
    assert data_of(tmp_path / "t", tables, "dirtier") == [(8, OTHER)]


def test_nobody_is_told_where_no_dirtying_was_recorded(tmp_path):
    bracket, bios = written(11, 12)
    issues = [block(50, "issue", 0, 8)]
    tables = {"block": bios + issues, "inode_writeback": bracket}
    assert data_of(tmp_path / "t", tables, "dirtier") == []
    dirty = [row for row in DIRTY if row["ino"] != 11]
    assert data_of(tmp_path / "other", tables | {"dirty": dirty}, "dirtier") == [(0, None)]


def test_the_name_is_that_of_the_process_that_dirtied_it(tmp_path):
    """The number may be another process's when the data is written."""
    bracket, bios = written(11)
    heir = {"pid": JOB, "tid": JOB, "comm": "heir", "role": "other", "start_ns": 6}
    tables = {
        "processes": [PROCESSES[0] | {"end_ns": 5}, heir, *PROCESSES[1:]],
        "block": [*bios, block(50, "issue", 0, 8)],
        "inode_writeback": bracket,
        "dirty": DIRTY,
    }
    columns = "d.dirtier, d.comm, d.target"
    assert data_of(tmp_path / "t", tables, columns) == [(0, JOB, "job", "a")]
