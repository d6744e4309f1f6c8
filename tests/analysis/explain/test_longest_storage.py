"""The longest sleep for storage in a step: a sleep is told as a whole, whatever it waited for."""

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, PROCESSES, TARGETS
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.text import print_explanation

JOURNAL = 51
STACK = "do_fsync;ext4_sync_file;jbd2_log_wait_commit;schedule;__schedule"
BEGIN = 10 * MS


def tables():
    """A step that sleeps twice: for 9 ms in an fsync, for the journal's thread, and then 5 ms in a
    read. The commit waits for the journal for 2 ms, for data for 4 ms, and for a flush for 3 ms.
    """
    of = {"pid": JOB, "tid": JOB}
    by = {"pid": JOURNAL, "tid": JOURNAL, "dev": "254:0"}

    def at(ms):
        return BEGIN + ms * MS

    def sleep(begin, ms, **more):
        return {"ts": begin, "dur_ns": ms * MS, "state": "D", "wake_ns": begin + ms * MS,
                "run_delay_ns": 0, **of, **more}  # fmt: skip

    def commit(ms, event):
        return {"ts": at(ms), "event": event, **by}

    def write(ms, event, sector, rwbs, sectors=8):
        return {"ts": at(ms), "event": event, "sector": sector, "nr_sector": sectors,
                "rwbs": rwbs, **by}  # fmt: skip

    calls = [
        {"ts": at(0) - 1, "name": "fsync", "dur_ns": 9 * MS + 2, "ret": 0, **of},
        {"ts": at(11), "name": "read", "dur_ns": 8 * MS, "ret": 9, **of},
    ]
    block = [
        write(2, "bio_queue", 8, "W"), write(2, "issue", 8, "W"), write(6, "complete", 8, "W"),
        write(6, "bio_queue", 800, "FWFSM"), write(6, "issue", 800, "WFS"),
        write(9, "complete", 800, "WFS"),
    ]  # fmt: skip
    return {
        "processes": [
            *PROCESSES,
            {"pid": JOURNAL, "tid": JOURNAL, "comm": "jbd2/vda-8", "role": "journal", "ppid": 2},
        ],
        "syscalls": calls,
        "journal": [
            commit(0, "commit_start"), commit(1, "commit_flushing"),
            commit(5, "commit_logging"), commit(9, "commit_end"),
        ],
        "block": block,
        "off_cpu": [
            sleep(at(0), 9, waker_tid=JOURNAL, interrupt=False, kernel_stack=STACK),
            sleep(at(12), 5, waker_tid=0, interrupt=True, kernel_stack="read;folio_wait_bit"),
        ],
        "phases": [
            {"name": "train", "start": 1, "end": at(40), **of},
            {"name": "step", "start": 2, "end": at(30), "epoch": 0, "step": 0, **of},
        ],
    }  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    with make_trace(tmp_path / "t", tables(), targets=TARGETS) as made:
        yield made


def test_a_sleep_in_several_parts_is_told_as_a_whole(trace, capsys):
    found = explain(trace)
    (step,) = found.slowest
    parts = [one["detail"] for one in step.segments if one["kind"] == "sync"]
    assert parts == ["journal", "data", "flush"]
    print_explanation("t", found)
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "Its longest wait for storage took 9 ms, in the kernel's jbd2_log_wait_commit. Meanwhile "
        "disks served 8.0 KiB of writes of an unknown thread (2 requests)."
    ) in told
    assert (step.storage["ts"], step.storage["dur_ns"]) == (BEGIN, 9 * MS)
    assert step.storage["detail"] is None


def test_a_sleep_that_is_left_out_of_the_segments_is_the_longest_one_all_the_same(trace):
    (step,) = explain(trace, segments=1).slowest
    assert [one["kind"] for one in step.segments] == ["run"]
    assert step.storage["dur_ns"] == 9 * MS


def test_a_step_without_a_sleep_for_storage_has_none(tmp_path):
    made = tables() | {"off_cpu": []}
    with make_trace(tmp_path / "t", made, targets=TARGETS) as trace:
        (step,) = explain(trace).slowest
    assert step.storage is None
