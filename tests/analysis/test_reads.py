"""Small cases of the view `reads`; a simulated page cache (tests/oracles) found them."""

from __future__ import annotations

from tests.support.traces import make_trace, split_table
from tracer.analysis.views.reads import READS
from tracer.store.trace import Trace

FILE = {"dev": "254:0", "ino": 12}
SIZE = [{**FILE, "size": 100 * 4096, "path": "/data"}]
JOB, OTHER = 7, 8
CONTINUES = {"continues": True}


def row(ts, tid, event, index=0, pages=1, **more):
    return {"ts": ts, "pid": tid, "tid": tid, "event": event, "index": index, "pages": pages,
            **FILE, "continues": False if event == "access" else None, **more}  # fmt: skip


def counts(folder, events, *names, group=None, **tables):
    """Sums of `reads`; with `group`, several threads read tables in parts of so many rows."""
    rows = {"processes": [], "page_cache": events, "files": SIZE, "block": [], **tables}
    make_trace(folder / "t", rows).close()
    if group:
        for table in {"page_cache", "syscalls"} & rows.keys():
            split_table(folder / "t", table, group)
    with Trace(folder / "t") as trace:
        READS.make(trace)
        sums = ", ".join(n if "(" in n else f"sum({n})::BIGINT" for n in names)
        return trace.rows(f"SELECT {sums} FROM reads")[0]


MISS = [row(1, JOB, "sync_read_ahead"), row(2, JOB, "read_ahead"), row(3, JOB, "add")]


def test_a_page_that_another_thread_uses_first_is_missed_by_its_reader(tmp_path):
    events = [*MISS, row(4, OTHER, "access"), row(5, JOB, "access")]
    assert counts(tmp_path, events, "accessed", "missed", "read_ahead") == (2, 1, 0)


def test_pages_that_a_thread_only_asked_for_are_hit_later(tmp_path):
    events = [*MISS[1:], row(4, JOB, "access")]
    told = [row(0, OTHER, "sync_read_ahead", 50)]
    assert counts(tmp_path, told + events, "missed", "read_ahead", "unused") == (0, 1, 0)


def test_pages_evicted_before_their_call_reaches_them_are_missed(tmp_path):
    wanted = {"index": 0, "pages": 40}
    events = [
        row(1, JOB, "access", **wanted), row(2, OTHER, "access", **wanted),
        row(3, 50, "delete", 35), row(4, OTHER, "sync_read_ahead", 35, 5),
        row(5, OTHER, "add", 35), row(6, OTHER, "access", 35, 5, **CONTINUES),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed", "missed", "unused") == (80, 1, 0)


def test_a_batch_in_the_middle_that_is_not_logged_counts(tmp_path):
    events = [
        row(1, 50, "delete", 3), row(2, JOB, "access", 0, 20),
        row(3, JOB, "sync_read_ahead", 3, 17), row(4, JOB, "add", 3),
        row(5, JOB, "access", 10, 10, **CONTINUES),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed", "missed") == (20, 1)


def test_bytes_read_past_the_cache_belong_to_no_file(tmp_path):
    bio = {"tid": JOB, "pid": JOB, "event": "bio_queue", "rwbs": "R", "sector": 8}
    block = [{**bio, "ts": 3, "nr_sector": 8}, {**bio, "ts": 9, "nr_sector": 800}]
    events = [*MISS, row(5, JOB, "access")]
    assert counts(tmp_path, events, "disk_bytes", block=block) == (4096,)


def test_bytes_of_another_call_tell_of_no_pages(tmp_path):
    call = {"ts": 20, "pid": JOB, "tid": JOB, "name": "read", "dur_ns": 5, "ret": 3 * 4096}
    events = [row(5, JOB, "access", 10)]
    assert counts(tmp_path, events, "accessed", syscalls=[call]) == (1,)


def test_a_fault_repeated_after_its_read_ahead_counts_once(tmp_path):
    events = [
        *MISS, row(4, JOB, "access"), row(5, JOB, "fault"), row(6, JOB, "async_read_ahead"),
        row(7, JOB, "fault"),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed") == (2,)


def test_nobody_owns_evicted_pages_that_nobody_used(tmp_path):
    process = {"pid": JOB, "tid": JOB, "role": "target", "target": "job"}
    reclaim = [{"ts": 1, "tid": JOB, "event": "direct_begin"}]
    tables = {"processes": [process], "reclaim": reclaim}
    events = [row(2, JOB, "delete")]
    assert counts(tmp_path, events, "evicted", "count(target)", **tables) == (1, 0)


def test_events_that_are_not_known_do_nothing(tmp_path):
    events = [row(1, JOB, name) for name in ("unknown", "bio", "return")]
    assert counts(tmp_path, [*events, row(2, JOB, "access")], "accessed", "disk_bytes") == (1, 0)


def test_files_that_are_in_memory_only_are_never_read(tmp_path):
    tmpfs, unknown, btrfs, bdev = (
        [row(ts, JOB, "map", pages=2, dev=dev)]
        for ts, dev in ((1, "0:27"), (2, "0:1"), (3, "0:40"), (4, "0:3"))
    )
    brought = [row(5, JOB, "add", 7, dev="0:3")]
    mounts = [
        {"dev": "0:27", "path": "/dev/shm", "type": "tmpfs", "source": "tmpfs"},
        {"dev": "0:40", "path": "/data", "type": "btrfs", "source": "/dev/sdb"},
    ]
    events = [*tmpfs, *unknown, *btrfs, *bdev, *brought, row(6, JOB, "access")]
    tables = {"processes": [], "page_cache": events, "files": SIZE, "block": []}
    with make_trace(tmp_path / "t", tables, mounts=mounts) as trace:
        READS.make(trace)
        found = trace.rows("SELECT dev, accessed FROM reads WHERE accessed > 0 ORDER BY dev")
    assert found == [("0:3", 2), ("0:40", 2), ("254:0", 1)]


def test_pages_of_a_long_table_are_followed_in_the_order_of_its_rows(tmp_path):
    pages, kswapd = 20_000, {"pid": 50, "tid": 50, "comm": "kswapd0"}
    told = [(JOB, "add"), (JOB, "access"), (50, "delete"), (JOB, "add"), (JOB, "access")]
    events = [
        row(number * pages + page, tid, event, page)
        for number, (tid, event) in enumerate(told)
        for page in range(pages)
    ]
    names = ("read", "evicted", "removed", "refaulted", "unused")
    found = counts(tmp_path, events, *names, group=5000, processes=[kswapd])
    assert found == (2 * pages, pages, 0, pages, 0)


def test_returns_of_a_long_table_are_taken_in_the_order_of_its_rows(tmp_path):
    calls = 20_000
    common = {"pid": JOB, "tid": JOB, "name": "read", "dur_ns": 5, "ret": 20 * 4096}
    syscalls = [{**common, "ts": 10 * n} for n in range(calls)]
    events = [row(10 * n + 1, JOB, "access", 10 + 20 * n, 10) for n in range(calls)]
    assert counts(tmp_path, events, "accessed", syscalls=syscalls, group=1000) == (20 * calls,)
