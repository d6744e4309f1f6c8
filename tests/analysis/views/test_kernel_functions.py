"""Functions of the kernel that waits are in: in views, in drawings, and in words."""

import io

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, PROCESSES, TARGETS
from tracer.analysis.exchange.folded import NO_LOOK, write_folded
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.text import print_explanation
from tracer.analysis.explain.waiting import waiting_boxes
from tracer.analysis.explain.words import kernel_function, what
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.waits import waits

SYNC = "entry;do_syscall_64;ext4_sync_file;jbd2_log_wait_commit;schedule;__schedule"
LOOK = "<module> (job.py:9);save (job.py:3)"
BEGIN, SLEPT, LATE = 10 * MS, 90 * MS, 5 * MS


def tables():
    """A step in which the job's thread is in an fsync, and gets a CPU late."""
    of = {"pid": JOB, "tid": JOB}
    end = BEGIN + SLEPT + LATE
    return {
        "processes": PROCESSES,
        "syscalls": [{"ts": BEGIN - 1, "name": "fsync", "dur_ns": end - BEGIN + 2, "ret": 0, **of}],
        "off_cpu": [
            {"ts": BEGIN, "dur_ns": SLEPT + LATE, "state": "D", "wake_ns": BEGIN + SLEPT,
             "run_delay_ns": LATE, "interrupt": True, "waker_tid": 0, "kernel_stack": SYNC, **of},
            {"ts": end + 10 * MS, "dur_ns": MS, "state": "R", "run_delay_ns": MS, **of},
        ],
        "python_stacks": [
            {"ts": BEGIN + MS, "until_ns": BEGIN + 2 * MS, "stack": LOOK, **of},
        ],
        "phases": [
            {"name": "train", "start": 1, "end": end + 30 * MS, **of},
            {"name": "step", "start": 2, "end": end + 20 * MS, "epoch": 0, "step": 0, **of},
        ],
    }  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    with make_trace(tmp_path / "t", tables(), targets=TARGETS) as made:
        yield made


@pytest.mark.parametrize("view", [waits, critical_path])
def test_all_waits_of_a_sleep_have_its_functions(trace, view):
    rows = trace.rows(
        f"SELECT kind, dur_ns, line, kernel_stack FROM {view(trace)} WHERE kind != 'run' "
        "ORDER BY ts"
    )
    line = "save (job.py:3)"
    assert rows == [
        ("sync", SLEPT, line, SYNC),
        ("cpu", LATE, line, SYNC),
        ("cpu", MS, None, None),
    ]


def folded(trace):
    file = io.BytesIO()
    write_folded(trace, file, None)
    return file.getvalue().decode().splitlines()


def test_folded_stacks_have_the_kernels_functions_below_pythons(trace):
    kernel = ";".join(f"{name}_[k]" for name in SYNC.split(";"))
    assert sorted(folded(trace)) == sorted(
        [
            f"job;python;{LOOK};{kernel};[sync: fsync] {SLEPT // 1000}",
            f"job;python;{LOOK};{kernel};[cpu: fsync] {LATE // 1000}",
            f"job;python;{NO_LOOK};[cpu] {MS // 1000}",
        ]
    )


def test_the_flame_graph_has_the_kernels_functions_above_pythons(trace):
    boxes = waiting_boxes(trace).boxes.sort_values(["depth", "from_ms"])
    longest = boxes.loc[boxes.groupby("depth")["ms"].idxmax()]
    assert [*longest["said"]] == [
        "python", *LOOK.split(";"), *(f"{name}_[k]" for name in SYNC.split(";")), "[sync: fsync]",
    ]  # fmt: skip


def test_the_flame_graph_has_the_kernels_functions_without_any_of_python(tmp_path):
    made = tables()
    del made["python_stacks"]
    with make_trace(tmp_path / "t", made, targets=TARGETS) as trace:
        said = [*waiting_boxes(trace).boxes["said"]]
    assert all(said.count(f"{name}_[k]") == 1 for name in SYNC.split(";"))


def test_a_steps_longest_wait_for_storage_names_its_function(trace, capsys):
    print_explanation("t", explain(trace))
    told = " ".join(capsys.readouterr().out.split())
    assert "Its longest wait for storage took 90 ms, in the kernel's jbd2_log_wait_commit." in told
    [segment] = [one for one in explain(trace).slowest[0].segments if one["kind"] == "sync"]
    assert "(fsync, in the kernel's jbd2_log_wait_commit)" in what(segment)


@pytest.mark.parametrize(
    ("innermost", "told"),
    [
        ("filemap_get_pages;folio_wait_bit_common;io_schedule;schedule;__schedule",
         "filemap_get_pages"),
        ("ext4_file_write_iter;rwsem_down_write_slowpath;schedule;__schedule",
         "ext4_file_write_iter"),
        ("blkdev_issue_flush;submit_bio_wait;wait_for_completion_io;schedule_timeout;schedule",
         "blkdev_issue_flush"),
        ("__filemap_fdatawait_range;folio_wait_writeback;folio_wait_bit", "folio_wait_writeback"),
        ("jbd2_journal_lock_updates.isra.0;__mutex_lock.constprop.0;schedule",
         "jbd2_journal_lock_updates.isra.0"),
        ("[truncated];[unknown];schedule", None),
    ],
)  # fmt: skip
def test_the_telling_function_is_not_one_that_waits_for_anything(innermost, told):
    assert kernel_function(innermost) == told


def test_no_stack_tells_no_function():
    assert kernel_function(None) is None
