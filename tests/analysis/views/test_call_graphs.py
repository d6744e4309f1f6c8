"""Ways that led to an event are told by kernel functions, and by nothing that a process chooses."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report import tables
from tracer.analysis.views.call_graphs import CHAINS, OTHER, call_graphs, path
from tracer.probes.errors import BadTrace

INSERT = "block:block_rq_insert"
FLUSH = (
    "ret_from_fork_asm kthread worker_thread process_one_work wb_workfn wb_writeback "
    "__writeback_single_inode do_writepages ext4_writepages submit_bio blk_mq_insert_request"
)


def stack(kernel, user=""):
    return ";".join([*user.split(), *(f"{name}_[k]" for name in kernel.split())])


def graph(kernel, count=1, *, event=INSERT, comm="python3", pid=7, user="main [libc.so.6]"):
    return {
        "event": event,
        "comm": comm,
        "pid": pid,
        "stack": stack(kernel, user),
        "count": count,
    }


def chains(tmp_path, *graphs):
    with make_trace(tmp_path / "t", {"call_graphs": list(graphs)}) as trace:
        found = call_graphs(trace)
        return dict(zip(found["stack"], found["chain"], strict=True))


@pytest.mark.parametrize(
    ("kernel", "chain"),
    [
        (FLUSH, "write-back by flusher"),
        (FLUSH.replace("submit_bio", "filemap_read submit_bio"), "write-back by flusher"),
        ("kthread kjournald2 jbd2_journal_commit_transaction submit_bh", "journal"),
        ("worker_thread process_one_work xlog_cil_push_work submit_bio", "journal"),
        ("do_syscall_64 __x64_sys_fsync do_fsync ext4_sync_file do_writepages", "fsync"),
        ("do_syscall_64 ksys_write vfs_write generic_write_sync vfs_fsync_range", "fsync"),
        ("do_syscall_64 ksys_sync iterate_supers sync_inodes_one_sb", "sync"),
        ("do_syscall_64 __x64_sys_close filemap_flush do_writepages", "write-back by caller"),
        ("ksys_write ext4_file_write_iter iomap_dio_rw __iomap_dio_rw submit_bio", "direct I/O"),
        (
            "asm_exc_page_fault exc_page_fault handle_mm_fault filemap_fault read_pages",
            "page fault",
        ),
        ("do_syscall_64 ksys_read vfs_read filemap_read page_cache_ra_order", "read"),
        (
            "worker_thread process_one_work blk_mq_run_work_fn blk_mq_run_hw_queue",
            "dispatched later",
        ),
        ("kthread worker_thread loop_process_work lo_rw_aio ext4_file_read_iter", "loop device"),
        ("kthread kswapd balance_pgdat shrink_folio_list pageout do_writepages", "reclaim"),
        ("do_fsync asm_common_interrupt common_interrupt handle_softirqs blk_done", "interrupt"),
        ("do_syscall_64 ksys_write vfs_write ext4_buffered_write_iter", OTHER),
        ("", OTHER),
    ],
)
def test_each_way_is_told(tmp_path, kernel, chain):
    assert set(chains(tmp_path, graph(kernel)).values()) == {chain}


def test_a_compilers_suffix_of_a_name_is_ignored(tmp_path):
    found = chains(
        tmp_path,
        graph("do_fsync.constprop.0 submit_bio"),
        graph("kthread wb_workfn.isra.0.cold submit_bio"),
        graph("my.do_fsync submit_bio"),
    )
    assert sorted(found.values()) == ["fsync", "other", "write-back by flusher"]


@pytest.mark.parametrize(
    "user", ["wb_workfn", "wb_workfn_[x]", "wb_workfn\\x5f[k]", "a.b wb_workfn.c"]
)
def test_functions_of_user_mode_tell_nothing(tmp_path, user):
    assert set(chains(tmp_path, graph("ksys_write", user=user)).values()) == {OTHER}


def test_every_chain_can_be_told_by_each_of_its_functions(tmp_path):
    graphs = [graph(function, pid=n) for n, f in enumerate(CHAINS.items()) for function in f[1]]
    found = chains(tmp_path, *graphs)
    for chain, functions in CHAINS.items():
        for function in functions:
            assert found[stack(function, "main [libc.so.6]")] == chain, function


def test_parts_of_a_count_are_added_and_shares_are_of_the_event(tmp_path):
    content = {
        "call_graphs": [
            graph(FLUSH, 17, comm="kworker/u8:1", pid=50, user=""),
            graph(FLUSH, 6, comm="kworker/u8:1", pid=50, user=""),
            graph("do_fsync submit_bio", 23),
            graph("do_fsync submit_bio", 101, event="block:block_bio_queue"),
        ],
        "processes": [
            {"pid": 50, "tid": 50, "role": "flusher"},
            {"pid": 7, "tid": 7, "role": "target", "target": "job"},
            {"pid": 7, "tid": 8, "role": "target", "target": "job"},
        ],
    }
    with make_trace(tmp_path / "t", content) as trace:
        found = call_graphs(trace)
    rows = found[["event", "chain", "pid", "role", "target", "count", "share"]]
    assert rows.astype(object).where(rows.notna(), None).values.tolist() == [
        ["block:block_bio_queue", "fsync", 7, "target", "job", 101, 1.0],
        [INSERT, "fsync", 7, "target", "job", 23, 0.5],
        [INSERT, "write-back by flusher", 50, "flusher", None, 23, 0.5],
    ]


def test_the_reports_ways_name_thread_and_path(tmp_path):
    content = {
        "call_graphs": [
            graph(FLUSH, 20, comm="kworker/u8:1", pid=50, user=""),
            graph(FLUSH, 20, comm="kworker/u8:2", pid=51, user=""),
            graph(FLUSH + " x.isra.0", 30, comm="kworker/u8:2", pid=51, user=""),
            graph("ksys_write", 5),
        ]
    }
    with make_trace(tmp_path / "t", content) as trace:
        ways = tables.records(tables.TABLES["call_chains"].of(trace))
        stacks = tables.records(tables.TABLES["call_graphs"].of(trace))
    assert ways == [
        {
            "event": INSERT,
            "dev": None,
            "chain": "write-back by flusher",
            "count": 70,
            "share": 70 / 75,
            "writes": None,
            "write_share": None,
            "comm": "kworker/u8:2",
            "stacks": 2,
            "path": "wb_workfn > wb_writeback > __writeback_single_inode > do_writepages > "
            "ext4_writepages > submit_bio > blk_mq_insert_request",
        },
        {
            "event": INSERT,
            "dev": None,
            "chain": "other",
            "count": 5,
            "share": 5 / 75,
            "writes": None,
            "write_share": None,
            "comm": "python3",
            "stacks": 1,
            "path": "ksys_write",
        },
    ]
    assert [(row["count"], row["stack"]) for row in stacks] == [
        (40, stack(FLUSH)),
        (30, stack(FLUSH + " x.isra.0")),
        (5, stack("ksys_write", "main [libc.so.6]")),
    ]


def test_a_path_of_user_mode_alone():
    assert path("main;[libc.so.6]", OTHER) == ""


def test_a_report_keeps_the_most_frequent_stacks_of_each_event(tmp_path):
    graphs = [graph(f"f{n}", n + 1, event=e) for n in range(61) for e in ("a:b", "c:d")]
    with make_trace(tmp_path / "t", {"call_graphs": graphs}) as trace:
        found = tables.TABLES["call_graphs"].of(trace)
    assert found.groupby("event")["count"].agg(["size", "min", "max"]).values.tolist() == [
        [50, 12, 61],
        [50, 12, 61],
    ]


def test_without_the_table_the_option_is_named(tmp_path):
    with make_trace(tmp_path / "t", {"block": []}) as trace:
        assert "call_graphs" not in tables.all_tables(trace)
        assert "counters" not in tables.all_tables(trace)
        with pytest.raises(BadTrace, match="tracer record --callgraph EVENT"):
            call_graphs(trace)


COUNTERS = [
    {"target": "job", "event": "cycles", "state": "not supported", "unit": "events"},
    {"target": "job", "event": "page-faults", "value": 0, "state": "counted", "unit": "events",
     "running_ns": 10, "enabled_ns": 40},
    {"target": "other", "event": "cycles", "value": 7, "state": "counted", "unit": "events",
     "running_ns": 10, "enabled_ns": 10},
]  # fmt: skip


def test_a_counter_that_did_not_count_is_not_0(tmp_path):
    with make_trace(tmp_path / "t", {"counters": COUNTERS}) as trace:
        rows = tables.records(tables.TABLES["counters"].of(trace))
    found = [(r["target"], r["event"], r["value"], r["running_share"]) for r in rows]
    assert found == [
        ("job", "cycles", None, None),
        ("job", "page-faults", 0, 0.25),
        ("other", "cycles", 7, 1.0),
    ]


def test_the_report_shows_counters_and_ways_whatever_the_names(tracer, tmp_path):
    evil = "\x1b[31m[red]"
    content = {
        "counters": [
            {**row, "target": evil if row["target"] == "job" else "b"} for row in COUNTERS
        ],
        "call_graphs": [graph(FLUSH, 23, comm=evil), graph("ksys_write", 2, event=evil)],
    }
    make_trace(tmp_path / "t", content).close()
    out = tracer("report", "t").out
    assert "\x1b" not in out
    assert "not supported" in out
    assert "wb_workfn > wb_writeback" in out
    assert max(map(len, out.splitlines())) <= 80
    shown = tracer("report", "t", "--json").json["tables"]
    assert shown["counters"][0]["value"] is None
    assert {row["comm"] for row in shown["call_chains"] if row["event"] == INSERT} == {evil}
