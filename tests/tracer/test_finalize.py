"""Raw streams become tables: calls paired, threads resolved, what is damaged said."""

import json
import shutil
import struct
import subprocess

import pytest

from tests.support.pages import NEWTASK, Page, enter, execed, leave, newtask, raw_trace
from tests.support.waiting import wait_for
from tracer.probes.errors import UsageError
from tracer.probes.kernel import boot_id, process_start_time
from tracer.store.files import is_held
from tracer.store.manifest import end_said, why_early
from tracer.store.trace import Trace

GETPID, EXECVE, CLONE, EXIT_GROUP, SIGRETURN = 39, 59, 56, 231, 15


def calls(folder, columns="ts, tid, name, dur_ns"):
    with Trace(folder) as trace:
        query = f"SELECT {columns} FROM syscalls ORDER BY ts, tid"
        return trace.connection.execute(query).fetchall()


def test_entry_and_exit_of_a_thread_are_one_row(tmp_path):
    page = (
        Page(0)
        .event(100, enter(7, GETPID))
        .event(110, enter(8, GETPID))
        .event(130, leave(7, GETPID, 7))
        .event(150, leave(8, GETPID, -11))
    )
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t", "ts, tid, name, dur_ns, ret") == [
        (100, 7, "getpid", 30, 7),
        (110, 8, "getpid", 40, -11),
    ]


def test_the_argument_of_fcntl_is_kept_if_it_is_a_number_and_no_pointer(tmp_path):
    f_getlk, page = 5, Page(0)
    kept = ((0, 10), (2, 1), (4, 2048), (1030, 3))
    left_out = ((f_getlk, 0x7FFC0000F000), (1, 0x7FFC0000F000), (1024, 1))
    for number, (command, argument) in enumerate((*kept, *left_out)):
        page.event(100 * number, enter(7, 72, (3, command, argument, 0, 0, 0)))
        page.event(100 * number + 50, leave(7, 72))
    raw_trace(tmp_path / "t", {0: [page]}, syscall_names={"72": "fcntl"})
    assert calls(tmp_path / "t", "fd, flags, length") == [
        *((3, command, argument) for command, argument in kept),
        *((3, command, None) for command, _ in left_out),
    ]


def test_clone_flags_of_a_byte_say_nothing_of_threads(tmp_path):
    """The bytes behind the event are another event's."""
    narrow = NEWTASK.replace("clone_flags;\toffset:32;\tsize:8", "clone_flags;\toffset:39;\tsize:1")
    assert narrow != NEWTASK
    head = struct.pack("<HBBi", 205, 0, 0, 7) + struct.pack("<i16s4xQ", 9, b"x", 0)
    page = Page(0).event(10, head).event(18, enter(9, GETPID)).event(30, leave(9, GETPID))
    raw_trace(tmp_path / "t", {0: [page]}, formats={"task:task_newtask": narrow})
    assert calls(tmp_path / "t", "pid, tid") == [(9, 9)]


def test_a_call_that_changes_cpu_is_one_row_of_the_cpu_that_it_began_on(tmp_path):
    raw_trace(
        tmp_path / "t",
        {
            0: [Page(0).event(100, enter(7, GETPID))],
            1: [Page(0).event(5000, leave(7, GETPID))],
        },
    )
    assert calls(tmp_path / "t", "ts, cpu, tid, name, dur_ns") == [(100, 0, 7, "getpid", 4900)]


def test_a_call_that_never_returned_has_no_duration(tmp_path):
    page = (
        Page(0)
        .event(100, enter(7, EXIT_GROUP))
        .event(200, enter(9, GETPID))
        .event(300, enter(9, GETPID))  # the exit between them was lost
        .event(310, leave(9, GETPID))
    )
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t") == [
        (100, 7, "exit_group", None),
        (200, 9, "getpid", None),
        (300, 9, "getpid", 10),
    ]


def test_an_exit_without_its_entry_is_no_row(tmp_path):
    page = Page(0).event(100, leave(7, GETPID)).event(200, leave(8, CLONE, 0))
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t") == []


def test_the_exit_of_a_signal_return_has_no_number_but_pairs(tmp_path):
    page = Page(0).event(100, enter(7, SIGRETURN)).event(120, leave(7, -1))
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t") == [(100, 7, "syscall_15", 20)]


def test_an_exit_of_another_call_does_not_pair(tmp_path):
    page = Page(0).event(100, enter(7, GETPID)).event(120, leave(7, CLONE, 0))
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t") == [(100, 7, "getpid", None)]


def test_an_exec_of_another_thread_returns_as_the_first_one(tmp_path):
    page = (
        Page(0)
        .event(10, newtask(7, 71, b"worker", 0x10000))  # CLONE_THREAD
        .event(20, newtask(7, 72, b"worker", 0x10000))
        .event(90, enter(72, EXECVE))
        .event(95, leave(72, EXECVE, -2))  # no such file
        .event(100, enter(7, GETPID))  # which the exec ends
        .event(110, enter(71, EXECVE))
        .event(150, leave(7, EXECVE))
        .event(160, enter(7, GETPID))
        .event(170, leave(7, GETPID))
    )
    raw_trace(tmp_path / "t", {0: [page]})
    assert calls(tmp_path / "t") == [
        (90, 72, "execve", 5),
        (100, 7, "getpid", None),
        (110, 71, "execve", 40),
        (160, 7, "getpid", 10),
    ]


def test_threads_belong_to_their_process(tmp_path):
    page = (
        Page(0)
        .event(10, newtask(7, 71, b"worker", 0x10000))  # CLONE_THREAD
        .event(20, newtask(7, 8, b"child", 0))
        .event(30, newtask(8, 81, b"of child", 0x10000))
        .event(100, enter(71, GETPID))
        .event(101, leave(71, GETPID))
        .event(102, enter(81, GETPID))
        .event(103, leave(81, GETPID))
    )
    raw_trace(
        tmp_path / "t",
        {0: [page]},
        targets=[{"name": "job", "role": "target", "kind": "pid", "pid": 7}],
    )
    assert calls(tmp_path / "t", "tid, pid") == [(71, 7), (81, 8)]
    with Trace(tmp_path / "t") as trace:
        found = trace.sql("SELECT tid, pid, ppid, role, target FROM processes ORDER BY tid")
    assert found.astype(object).where(found.notna(), None).values.tolist() == [
        [7, 7, None, "target", "job"],
        [8, 8, 7, "child", "job"],
        [71, 7, None, "target", "job"],
        [81, 8, 7, "child", "job"],
    ]


def test_events_before_a_commands_exec_belong_to_the_recorder(tmp_path):
    page = (
        Page(0)
        .event(10, leave(7, 0))
        .event(20, enter(7, GETPID))
        .event(25, leave(7, GETPID))
        .event(30, enter(7, EXECVE))
        .event(35, leave(7, EXECVE, -2))
        .event(40, enter(7, EXECVE))
        .event(45, execed(7))
        .event(50, leave(7, EXECVE))
        .event(60, enter(7, GETPID))
        .event(61, leave(7, GETPID))
    )
    raw_trace(
        tmp_path / "t",
        {0: [page]},
        targets=[{"name": "job", "role": "target", "kind": "command", "pid": 7}],
    )
    assert calls(tmp_path / "t") == [(40, 7, "execve", 10), (60, 7, "getpid", 1)]


def test_the_trace_of_a_killed_recorder_is_readable_and_marked_as_cut(tmp_path):
    page = Page(0).event(100, enter(7, GETPID)).event(130, leave(7, GETPID))
    raw_trace(tmp_path / "t", {0: [page, page.bytes()[:999]]})
    with Trace(tmp_path / "t") as trace:
        assert trace.manifest["complete"] is False
        assert trace.manifest["ended_by"] == "killed"
        assert why_early(trace.manifest) == (
            "the recording ended early: the recorder was killed or the disk was full"
        )
        assert trace.manifest["clock"]["end_ns"] == 130
        assert trace.manifest["tables"]["syscalls"]["rows"] == 1
        loss = trace.sql("SELECT * FROM loss").to_dict("records")
    assert [(r["stream"], r["from"], r["cause"]) for r in loss] == [
        ("target-cpu0", 130, "torn end")
    ]


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({}, "recorder killed or disk full"),
        ({"ended_by": "killed"}, "recorder killed"),
        ({"ended_by": "disk", "state": "captured"}, "disk full"),
        ({"ended_by": "error", "state": "captured"}, "not moved after an error"),
    ],
)
def test_a_gap_at_the_end_has_the_cause_that_the_end_has(tmp_path, end, cause):
    page = Page(0).event(100, enter(7, GETPID)).event(130, leave(7, GETPID))
    raw_trace(tmp_path / "t", {0: [page]}, **end)
    for _ in range(2):  # the second time, the manifest has the end that the first one concluded
        with Trace(tmp_path / "t") as trace:
            assert trace.rows("SELECT cause FROM loss") == [(cause,)]
            assert ("was killed" in end_said(trace.manifest)) == ("killed" in cause)
            assert ("disk was full" in end_said(trace.manifest)) == ("disk full" in cause)
        shutil.rmtree(tmp_path / "t/events")


def test_the_kernels_own_count_of_losses_is_kept_where_pages_do_not_tell(tmp_path):
    page = Page(200).missed(17).event(210, enter(7, GETPID)).event(230, leave(7, GETPID))
    stats = {"target-cpu0": {"overrun": 20, "dropped events": 3, "entries": 0}}
    made = raw_trace(tmp_path / "t", {0: [page]}, state="captured")
    made["capture"]["stats"] = stats
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(made))
    with Trace(tmp_path / "t") as trace:
        loss = trace.connection.execute("SELECT cause, count FROM loss ORDER BY ALL").fetchall()
        assert trace.manifest["loss"]["events"] == 17 + 3 + 3
    assert loss == [("buffer full", 3), ("buffer overrun", 3), ("buffer overrun", 17)]


def test_opening_twice_decodes_once(tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    Trace(tmp_path / "t").close()
    before = (tmp_path / "t/events/syscalls.parquet").stat().st_mtime_ns
    Trace(tmp_path / "t").close()
    assert (tmp_path / "t/events/syscalls.parquet").stat().st_mtime_ns == before


def test_removed_tables_are_decoded_anew(tmp_path):
    import shutil

    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    Trace(tmp_path / "t").close()
    shutil.rmtree(tmp_path / "t/events")
    with Trace(tmp_path / "t") as trace:
        assert trace.manifest["tables"]["syscalls"]["rows"] == 1


def recorded_by(process):
    """Returns the recorder's entry of a manifest."""
    start = process_start_time(process.pid)
    return {"pid": process.pid, "start_time": start, "boot_id": boot_id()}


@pytest.mark.parametrize(
    ("state", "said", "mend"),
    [
        ("recording", "is still being recorded by process {}", "stop that first: kill {}"),
        ("captured", "gets its tables from its recorder, process {}", "wait until that has ended"),
    ],
)
def test_a_trace_that_a_recorder_works_on_is_left_alone(tmp_path, state, said, mend):
    (tmp_path / "t").mkdir()
    with subprocess.Popen(["flock", "--no-fork", tmp_path / "t", "sleep", "60"]) as other:
        wait_for(lambda: is_held(tmp_path / "t"), "the lock")
        raw_trace(tmp_path / "t", {0: [Page(0)]}, recorder=recorded_by(other), state=state)
        with pytest.raises(UsageError) as refused:
            Trace(tmp_path / "t")
        assert f"t {said}; {mend}".format(other.pid, other.pid) in str(refused.value)
        other.kill()
    Trace(tmp_path / "t").close()


def test_a_manifest_that_names_a_process_which_records_nothing_is_not_believed(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as other:
        raw_trace(tmp_path / "t", {0: [Page(0)]}, recorder=recorded_by(other))
        Trace(tmp_path / "t").close()
        other.kill()


def test_a_query_reads_nothing_but_the_trace(tmp_path):
    import duckdb

    (tmp_path / "secret.csv").write_text("a\n1\n")
    raw_trace(tmp_path / "it's", {0: [Page(0).event(1, enter(7, 1))]})
    with Trace(tmp_path / "it's") as trace:
        assert trace.sql("SELECT count(*) AS n FROM syscalls")["n"][0] == 1
        for query in (
            f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
            f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
            "SET enable_external_access=true",
            "INSTALL httpfs",
        ):
            with pytest.raises(duckdb.Error):
                trace.connection.execute(query)
    assert not (tmp_path / "out.csv").exists()


def test_decoding_a_killed_trace_again_keeps_its_loss(tmp_path):
    import shutil

    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    with Trace(tmp_path / "t") as trace:
        first = trace.manifest["loss"]
    shutil.rmtree(tmp_path / "t/events")
    with Trace(tmp_path / "t") as trace:
        assert (
            trace.manifest["loss"]
            == first
            == {"events": 0, "windows": 1, "unknown": 1, "others": 0}
        )


def test_losses_of_known_and_unknown_size_are_counted_once(tmp_path):
    pages = [
        Page(100).event(150, enter(7, GETPID)),
        Page(900).missed(100).event(950, leave(7, GETPID)),
        Page(2000).missed(None).event(2001, enter(7, GETPID)),
    ]
    made = raw_trace(tmp_path / "t", {0: pages}, state="captured", ended_by="signal")
    made["capture"]["stats"] = {"target-cpu0": {"overrun": 150}}
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(made))
    with Trace(tmp_path / "t") as trace:
        assert trace.manifest["loss"]["events"] == 150


def test_a_call_across_a_gap_has_no_end_that_could_be_anothers(tmp_path):
    pages = [
        Page(100)
        .event(100, enter(7, GETPID))
        .event(110, leave(7, GETPID))
        .event(200, enter(7, GETPID)),
        Page(5000).missed(1000).event(5100, leave(7, GETPID)).event(5200, enter(7, GETPID)),
        Page(6000).event(6000, leave(7, GETPID)),
    ]
    raw_trace(tmp_path / "t", {0: pages})
    # The gap lies between the start of the page before it and that of its own: the first call
    # lies there, too, so that its end is not known for certain either.
    assert calls(tmp_path / "t") == [
        (100, 7, "getpid", None),
        (200, 7, "getpid", None),
        (5200, 7, "getpid", 800),
    ]


def test_a_launch_whose_exec_was_lost_does_not_hide_the_command(tmp_path):
    pages = [
        Page(10).event(20, enter(7, EXECVE)),
        Page(100).missed(5).event(110, enter(7, GETPID)).event(120, leave(7, GETPID)),
    ]
    made = raw_trace(
        tmp_path / "t",
        {0: pages},
        targets=[{"name": "job", "role": "target", "kind": "command", "pid": 7}],
    )
    made["capture"]["streams"][0]["stream"] = "machine-cpu0"
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(made))
    assert (110, 7, "getpid", 10) in calls(tmp_path / "t")


def test_a_thread_that_is_in_the_list_and_in_the_events_is_one_row(tmp_path):
    page = Page(0).event(10, newtask(7, 71, b"worker", 0x10000)).event(20, enter(71, GETPID))
    raw_trace(tmp_path / "t", {0: [page]})
    listed = [[7, 7, 1, "job", None], [71, 7, 1, "worker", None]]
    (tmp_path / "t/raw/threads.json").write_text(json.dumps(listed))
    with Trace(tmp_path / "t") as trace:
        rows = trace.connection.execute(
            "SELECT tid, pid, start_ns FROM processes ORDER BY tid"
        ).fetchall()
    assert rows == [(7, 7, None), (71, 7, 10)]


def test_a_stream_of_holes_is_read_up_to_the_first(tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    with (tmp_path / "t/raw/ftrace-target-cpu0.raw").open("r+b") as file:
        file.truncate(1 << 40)
    with Trace(tmp_path / "t") as trace:
        assert trace.manifest["tables"]["syscalls"]["rows"] == 1
