"""Small cases of the view `reads`; a simulated page cache (tests/oracles) found them."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace, split_table
from tracer.analysis.views.reading.page_uses import PAGE_USES
from tracer.analysis.views.reading.reads import READS
from tracer.store.trace import Trace

FILE = {"dev": "254:0", "ino": 12}
SIZE = [{**FILE, "size": 100 * 4096, "path": "/data"}]
JOB, OTHER = 7, 8
THE_JOB = {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"}
ONE = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]
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


def test_written_pages_are_not_read_if_the_kernel_logs_read_ahead_and_nothing_was_read(tmp_path):
    rows = {"processes": [], "page_cache": [row(1, JOB, "add", 0, 4)], "files": SIZE, "block": []}
    capture = {"formats": {"readahead:page_cache_sync_ra": ""}}
    with make_trace(tmp_path / "t", rows, capture=capture) as trace:
        READS.make(trace)
        counts = trace.rows("SELECT written, read_ahead, unused FROM reads")
    assert counts == [(4, 0, 0)]


def test_pages_evicted_before_their_call_reaches_them_are_missed(tmp_path):
    wanted = {"index": 0, "pages": 40}
    events = [
        row(1, JOB, "access", **wanted), row(2, OTHER, "access", **wanted),
        row(3, 50, "delete", 35), row(4, OTHER, "sync_read_ahead", 35, 5),
        row(5, OTHER, "add", 35), row(6, OTHER, "access", 35, 5, **CONTINUES),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed", "missed", "unused") == (80, 1, 0)


@pytest.mark.parametrize(("page", "unused"), [(5, 1), (35, 0)])
def test_a_page_that_is_read_ahead_anew_amid_a_call_is_used_if_its_batch_comes(
    tmp_path, page, unused
):
    """The first batch has 31 pages."""
    events = [
        row(1, JOB, "access", 0, 40), row(2, 50, "delete", page),
        row(3, OTHER, "read_ahead", page), row(4, OTHER, "add", page),
        row(5, JOB, "access", 31, 9, **CONTINUES),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed", "read", "unused") == (40, 1, unused)


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


def bio(ts, dev, sectors, sector=8, tid=JOB, rwbs="R"):
    return {"ts": ts, "pid": tid, "tid": tid, "event": "bio_queue", "dev": dev, "sector": sector,
            "nr_sector": sectors, "rwbs": rwbs}  # fmt: skip


def call(ts, dur_ns, name="read"):
    return {"ts": ts, "pid": JOB, "tid": JOB, "name": name, "dur_ns": dur_ns, "ret": 4096}


def wait(ts, dur_ns):
    return {"ts": ts, "dur_ns": dur_ns, "pid": JOB, "tid": JOB, "state": "D", "waker_tid": 0,
            "wake_ns": ts + dur_ns, "interrupt": True, "run_delay_ns": 0}  # fmt: skip


def by_file(folder, tables, *names, keys="ino", **manifest):
    """Sums of `reads` by file."""
    rows = {"processes": [THE_JOB], "files": SIZE, "block": [], **tables}
    with make_trace(folder / "t", rows, targets=ONE, **manifest) as trace:
        READS.make(trace)
        sums = ", ".join(f"sum({name})::BIGINT" for name in names)
        of_files = "FROM reads WHERE ino IS NOT NULL"
        return trace.rows(f"SELECT {keys}, {sums} {of_files} GROUP BY {keys} ORDER BY {keys}")


def test_waits_for_reads_past_the_cache_and_for_names_are_of_no_file(tmp_path):
    second = {"ino": 13}
    read = [
        *(row(100, JOB, "sync_read_ahead"), row(101, JOB, "add"), row(120, JOB, "access")),
        row(11_020, JOB, "access", 1),
        *(row(13_000, JOB, "sync_read_ahead", **second), row(13_001, JOB, "add", **second)),
        row(13_030, JOB, "access", **second),
        *(row(14_000, JOB, "fault", 5), row(14_001, JOB, "read_ahead", 5)),
        row(14_002, JOB, "add", 5),
    ]
    called = [
        call(99, 30), call(5000, 4000, "pread64"), call(10_000, 100, "openat"),
        # Another thread reads the page that this call waits for.
        call(11_000, 50), call(12_000, 600), call(12_999, 50),
    ]  # fmt: skip
    block = [
        bio(102, "254:0", 8), bio(5001, "8:16", 800), bio(10_001, "254:0", 8, rwbs="RM"),
        bio(12_001, "254:0", 800), bio(13_002, "254:0", 8), bio(14_003, "254:0", 8),
    ]  # fmt: skip
    times = {105: 10, 5005: 3900, 10_005: 50, 11_005: 7, 12_005: 500, 13_005: 20, 14_004: 3}
    tables = {
        "page_cache": read, "syscalls": called, "block": block,
        "off_cpu": [wait(ts, length) for ts, length in times.items()],
    }  # fmt: skip
    found = by_file(tmp_path, tables, "wait_ns", "disk_bytes")
    assert found == [(12, 10 + 7 + 3, 8192), (13, 20, 4096)]


def test_reads_of_devices_below_a_stacked_one_do_not_count_again(tmp_path):
    """A file with a hole on a mapped device on another one on a partition; and one beside it."""
    beside, far = {"dev": "8:2", "ino": 13}, 1 << 20
    disks = [
        {"dev": "8:0", "bytes": 1 << 40},
        {"dev": "8:1", "bytes": 1 << 28, "partition_of": "8:0", "start": 2048},
        {"dev": "8:2", "bytes": 1 << 28, "partition_of": "8:0", "start": far},
        {"dev": "253:1", "bytes": 1 << 28, "on": ["8:1"]},
        {"dev": "254:0", "bytes": 1 << 28, "on": ["253:1"]},
    ]
    events = [
        row(10, JOB, "sync_read_ahead", 0, 16), *(row(11 + n, JOB, "add", n) for n in range(16)),
        row(60, JOB, "access", 0, 16), row(70, JOB, "sync_read_ahead", 0, 4, **beside),
        *(row(71 + n, JOB, "add", n, **beside) for n in range(4)),
        row(90, JOB, "access", 0, 4, **beside),
    ]  # fmt: skip
    uppermost = [bio(30, "254:0", 32), bio(40, None, 32, None)]
    below = [bio(31, "253:1", 32, 392), bio(32, "8:0", 32, 2840)]
    block = [uppermost[0], *below, uppermost[1], bio(80, "8:0", 32, far + 8)]
    tables = {
        "page_cache": events, "block": block, "off_cpu": [wait(45, 5)], "syscalls": [call(9, 90)],
    }  # fmt: skip
    found = by_file(tmp_path, tables, "read", "disk_bytes", "wait_ns", disks=disks)
    assert found == [(12, 16, 8 * 4096, 5), (13, 4, 4 * 4096, 0)]


def test_a_call_or_fault_belongs_to_the_epoch_in_which_it_began_to_read(tmp_path):
    """An epoch ends at 100, while four threads read files."""
    threads = [THE_JOB, *({**THE_JOB, "tid": tid} for tid in (8, 9, 10))]
    first, second, third, ahead = ({"pid": JOB, "ino": ino} for ino in (20, 21, 22, 23))
    events = [
        row(90, JOB, "fault", **first), row(91, 8, "sync_read_ahead", 0, 2, **second),
        row(92, 8, "add", **second), row(93, 9, "access", 0, 40, **third),
        row(94, 50, "delete", 35, ino=22), row(95, JOB, "sync_read_ahead", **first),
        row(96, 10, "read_ahead", 0, 2, **ahead), row(97, 10, "add", **ahead),
        row(101, JOB, "add", **first), row(102, 8, "add", 1, **second),
        row(103, 8, "access", 0, 2, **second), row(104, 9, "sync_read_ahead", 35, 5, **third),
        row(105, 9, "add", 35, **third), row(106, 9, "access", 35, 5, **CONTINUES, **third),
        row(107, 10, "add", 1, **ahead), row(110, 8, "access", **second),
        row(120, 10, "access", 0, 2, **ahead),
    ]  # fmt: skip
    phases = [
        {"name": "epoch", "pid": JOB, "tid": JOB, "epoch": n, "start": 100 * n, "end": end}
        for n, end in enumerate((100, 200))
    ]
    sizes = [{**SIZE[0], "ino": ino} for ino in (20, 21, 22, 23)]
    tables = {"processes": threads, "page_cache": events, "phases": phases, "files": sizes}
    names = ("accessed", "missed", "hit", "read", "read_ahead")
    found = by_file(tmp_path, tables, *names, keys="ino, epoch")
    assert found == [
        (20, 0, 1, 1, 0, 1, 0),
        (21, 0, 2, 2, 0, 2, 0), (21, 1, 1, 0, 1, 0, 0),
        (22, 0, 40, 1, 39, 1, 0),
        # Nobody had asked for these pages.
        (23, 0, 0, 0, 0, 1, 1), (23, 1, 2, 0, 2, 1, 1),
    ]  # fmt: skip


def by_epoch(folder, events, *names, **others):
    """Sums of `reads` by epoch. The job has three; they begin at 0, 100 and 200."""
    phases = [
        {"name": "epoch", "pid": JOB, "tid": JOB, "epoch": n, "start": 100 * n, "end": 100 * n + 99}
        for n in range(3)
    ]
    tables = {"page_cache": events, "phases": phases, **others}
    return by_file(folder, tables, *names, keys="epoch")


def test_pages_read_ahead_later_in_a_call_belong_to_its_epoch_after_a_read_of_no_file(tmp_path):
    """The first read of the thread goes past the cache; it tells that its calls are recorded."""
    events = [
        row(90, JOB, "access", 0, 40), row(101, JOB, "async_read_ahead", 31, 9),
        row(102, JOB, "read_ahead", 40, 4), row(103, JOB, "add", 40, 4),
        row(104, JOB, "access", 31, 9, **CONTINUES),
    ]  # fmt: skip
    calls = [call(10, 10, "pread64"), {**call(80, 30), "ret": 40 * 4096}]
    found = by_epoch(tmp_path, events, "accessed", "read", "unused", syscalls=calls)
    assert found == [(0, 40, 4, 0), (1, 0, 0, 4)]


PAGES_USED = ("accessed", "mapped", "missed", "hit", "read")
HALF_A_WINDOW = [row(10, JOB, "map", 0, 16), row(150, JOB, "map", 0, 16)]
"""Pages 0 to 7 of a window are mapped; in the next epoch, the job touches page 8."""


def test_pages_that_a_window_lacked_are_used_in_the_epoch_of_their_fault_only(tmp_path):
    events = [
        *HALF_A_WINDOW, row(151, JOB, "fault", 8), row(152, JOB, "read_ahead", 8, 8),
        *(row(153 + n, JOB, "add", 8 + n) for n in range(8)), row(170, JOB, "map", 0, 16),
    ]  # fmt: skip
    found = by_epoch(tmp_path, events, *PAGES_USED)
    assert found == [(0, 8, 8, 0, 8, 0), (1, 8, 7, 1, 7, 8)]


def test_a_page_with_a_mark_is_used_by_its_fault_not_by_its_window(tmp_path):
    """The kernel does not map the page at which it reads ahead."""
    events = [*HALF_A_WINDOW, row(151, JOB, "fault", 8), row(152, JOB, "async_read_ahead", 8)]
    found = by_epoch(tmp_path, events, *PAGES_USED)
    assert found == [(0, 15, 15, 0, 15, 0), (1, 1, 0, 0, 1, 0)]


def test_pages_of_a_window_that_no_event_names_stay_with_its_epoch(tmp_path):
    beyond = [row(152, JOB, "fault", 40), row(153, JOB, "add", 40)]
    found = by_epoch(tmp_path, HALF_A_WINDOW[:1] + beyond, *PAGES_USED)
    assert found == [(0, 16, 16, 0, 16, 0), (1, 1, 0, 1, 0, 1)]


def test_pages_of_two_windows_leave_the_epoch_of_each(tmp_path):
    """Half of the first window and all of the second come as one folio, read around a fault."""
    events = [
        row(10, JOB, "map", 0, 16), row(110, JOB, "map", 16, 16),
        row(240, JOB, "fault", 40), row(241, JOB, "read_ahead", 8, 40),
        row(242, JOB, "add", 8, 32), row(243, JOB, "add", 40),
    ]  # fmt: skip
    found = by_epoch(tmp_path, events, *PAGES_USED)
    assert found == [(0, 8, 8, 0, 8, 0), (1, 0, 0, 0, 0, 0), (2, 1, 0, 1, 0, 33)]


def test_pages_of_two_threads_windows_are_taken_back_from_the_thread_of_each(tmp_path):
    """The windows have the same time. A process that is no target touches such a page, too."""
    second = {"pid": JOB}
    events = [
        row(10, JOB, "map", 0, 16), row(10, 8, "map", 16, 16, **second),
        row(20, JOB, "fault", 60), row(21, 8, "fault", 61, **second),
        row(50, 9, "fault", 2), row(51, 9, "fault", 3),
        row(140, JOB, "fault", 40), row(141, JOB, "add", 8, 16), row(142, JOB, "add", 40),
    ]  # fmt: skip
    processes = [THE_JOB, THE_JOB | {"tid": 8}]
    tables = {"page_cache": events, "processes": processes, "files": SIZE}
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        PAGE_USES.make(trace)
        found = trace.rows(
            "SELECT tid, ts < 100, sum(accessed)::BIGINT, sum(mapped)::BIGINT FROM page_uses"
            " GROUP BY ALL ORDER BY ALL"
        )
    assert found == [(JOB, False, 1, 0), (JOB, True, 9, 8), (8, True, 9, 8), (9, True, 2, 0)]


def test_a_page_that_no_window_mapped_is_taken_back_from_none(tmp_path):
    """It was read by a call, so its fault waits for nothing. Every fault counts."""
    faults = [row(20 + n, JOB, "fault", page) for n, page in enumerate((3, 9, 3))]
    events = [row(10, JOB, "access", 0, 16), *faults]
    assert counts(tmp_path, events, "accessed", "mapped") == (16 + 3, 0)


def test_a_page_is_taken_back_once(tmp_path):
    """Two threads touch pages that their process seemed to map; one reads both, and two more."""
    second = {"pid": JOB}
    events = [
        row(10, JOB, "map", 0, 16), row(20, JOB, "fault", 20), row(30, JOB, "fault", 5),
        row(31, 8, "fault", 6, **second), row(32, 8, "read_ahead", 4, 4, **second),
        *(row(33 + n, 8, "add", 4 + n, **second) for n in range(4)),
    ]  # fmt: skip
    assert counts(tmp_path, events, "accessed", "mapped") == (16 - 4 + 3, 16 - 4)


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


WRITTEN = [
    row(10, JOB, "fault", 5), row(11, JOB, "read_ahead", 0, 16), row(12, JOB, "add", 0, 4),
    row(13, JOB, "add", 4, 8), row(14, JOB, "add", 12, 4), row(15, JOB, "fault", 5),
]  # fmt: skip


def dirtied(ts, index=4):
    return {"ts": ts, "pid": JOB, "tid": JOB, "event": "dirty_folio", "dev": "254:0", "ino": 12,
            "index": index}  # fmt: skip


def of_written(folder, events, dirty, syscalls=(), maps=True):
    folder.mkdir(exist_ok=True)
    tables = {"page_cache": events, "dirty": dirty, "syscalls": list(syscalls)}
    names = ("accessed", "mapped", "missed", "unused")
    ((_, *found),) = by_file(folder, tables, *names, kernel={"maps_written_folios": maps})
    return found


def test_a_write_through_a_shared_mapping_maps_the_folio_that_it_makes_dirty(tmp_path):
    assert of_written(tmp_path, WRITTEN, [dirtied(16)]) == [8, 7, 1, 8]


def test_a_write_through_a_mapping_uses_one_page_of_a_kernel_that_maps_no_folios(tmp_path):
    assert of_written(tmp_path, WRITTEN, [dirtied(16)], maps=False) == [1, 0, 1, 15]


def test_a_write_through_a_private_mapping_uses_one_page(tmp_path):
    """A call then writes the copy to the same page of the file."""
    call = {"ts": 16, "pid": JOB, "tid": JOB, "name": "pwrite64", "dur_ns": 5, "ret": 4096}
    found = of_written(tmp_path, WRITTEN, [dirtied(17)], [call])
    assert found == of_written(tmp_path / "none", WRITTEN, []) == [1, 0, 1, 15]


def test_a_call_during_which_a_page_is_written_maps_its_folio(tmp_path):
    """It reads from a pipe into the mapping."""
    call = {"ts": 9, "pid": JOB, "tid": JOB, "name": "read", "dur_ns": 50, "ret": 4096}
    assert of_written(tmp_path, WRITTEN, [dirtied(16)], [call]) == [8, 7, 1, 8]


def test_a_dirtied_folio_that_the_fault_did_not_touch_is_not_mapped(tmp_path):
    for number, index in enumerate((0, 3, 5, 12)):
        found = of_written(tmp_path / str(number), WRITTEN, [dirtied(16, index)])
        assert found == [1, 0, 1, 15]


def test_a_folio_written_through_a_new_mapping_counts_again(tmp_path):
    """The kernel wrote its pages back meanwhile."""
    events = [*WRITTEN, row(30, JOB, "fault", 5)]
    assert of_written(tmp_path, events, [dirtied(16), dirtied(31)]) == [16, 14, 1, 8]


def test_a_fault_maps_one_page_of_a_folio_of_which_another_one_is_mapped(tmp_path):
    """The mapping begins at the page of the first fault, so that this one maps no folio."""
    events = [*WRITTEN, row(30, JOB, "fault", 6)]
    assert of_written(tmp_path, events, [dirtied(31)]) == [2, 0, 1, 14]


def test_nobody_owns_evicted_pages_that_nobody_used(tmp_path):
    process = {"pid": JOB, "tid": JOB, "role": "target", "target": "job"}
    reclaim = [{"ts": 1, "tid": JOB, "event": "direct_begin"}]
    tables = {"processes": [process], "reclaim": reclaim}
    events = [row(2, JOB, "delete")]
    assert counts(tmp_path, events, "evicted", "count(target)", **tables) == (1, 0)
    with Trace(tmp_path / "t") as trace:
        PAGE_USES.make(trace)
        assert trace.rows("SELECT pid, tid, by_tid FROM page_uses") == [(None, None, JOB)]
    (tid,) = [column for column in PAGE_USES.columns if column.name == "tid"]
    assert tid.nullable and "null: none did" in tid.doc


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
