"""Rows of processes whose first thread ends before others, which may go on by an exec."""

import struct

import pytest

from tests.support.pages import Page, attached, exited, format_text, newtask, payload, raw_trace
from tracer.analysis.views.threads import make_threads
from tracer.store.trace import Trace

RENAME = format_text(
    "task_rename",
    206,
    "pid_t pid 8 4 1\nchar oldcomm[16] 12 16 0\nchar newcomm[16] 28 16 0\n"
    "short oom_score_adj 44 2 1",
)
FORMATS = {"task:task_rename": RENAME}
THREAD = 0x10000
BIRTH, THREAD_BIRTH, FIRST_ENDS, RENAMED, EXECED, END = 10, 20, 30, 40, 41, 90


def renamed(by, tid, comm):
    return payload(206, by, struct.pack("<i16s16sh", tid, b"old", comm, 0))


def execed(tid, old):
    return payload(365, tid, struct.pack("<Iii", 20 | 7 << 16, tid, old) + b"/bin/x\0")


@pytest.fixture
def lives(tmp_path):
    """Rows of processes, and those of the view `threads`, of 100 and its threads."""

    def make(page):
        raw_trace(tmp_path / "t", {0: [page]}, formats=FORMATS)
        with Trace(tmp_path / "t") as trace:
            make_threads(trace)
            mine = "WHERE pid = 100 ORDER BY tid"
            return (
                trace.rows(f"SELECT tid, ppid, comm, start_ns, end_ns FROM processes {mine}"),
                trace.rows(f"SELECT tid, was_there, started, ended FROM threads {mine}"),
            )

    return make


def born():
    page = Page(0).event(BIRTH, newtask(7, 100, b"job", 0))
    return page.event(THREAD_BIRTH, newtask(100, 101, b"job", THREAD))


def test_a_process_goes_on_by_the_exec_of_another_thread(lives):
    page = born().event(FIRST_ENDS, exited(100))
    page.event(RENAMED, renamed(100, 100, b"next")).event(EXECED, execed(100, 101))
    rows, threads = lives(page.event(END, exited(100, b"next")))
    assert rows == [
        (100, 7, "next", BIRTH, END),
        (101, 7, "job", THREAD_BIRTH, EXECED),
    ]
    assert threads == [(100, False, BIRTH, END), (101, False, THREAD_BIRTH, EXECED)]


def test_it_does_without_a_rename(lives):
    page = born().event(FIRST_ENDS, exited(100)).event(EXECED, execed(100, 101))
    rows, _ = lives(page)
    assert rows == [(100, 7, "x", BIRTH, None), (101, 7, "job", THREAD_BIRTH, EXECED)]


@pytest.mark.parametrize("all_end", [True, False])
def test_a_first_thread_that_ends_alone_has_ended(lives, all_end):
    """Another thread may write its name meanwhile: it lives on as a zombie."""
    page = born().event(FIRST_ENDS, exited(100)).event(RENAMED, renamed(101, 100, b"late"))
    if all_end:
        page.event(END, exited(101))
    rows, threads = lives(page)
    end = END if all_end else None
    assert rows == [
        (100, 7, "late", BIRTH, FIRST_ENDS),
        (101, 7, "x" if all_end else "job", THREAD_BIRTH, end),
    ]
    assert threads == [(100, False, BIRTH, FIRST_ENDS), (101, False, THREAD_BIRTH, end)]


def test_a_new_process_of_the_number_is_another_one(lives):
    """The end of the other thread was lost."""
    page = born().event(FIRST_ENDS, exited(100)).event(END, newtask(8, 100, b"new", 0))
    rows, _ = lives(page)
    assert sorted(rows) == [
        (100, 7, "x", BIRTH, FIRST_ENDS),
        (100, 8, "new", END, None),
        (101, 7, "job", THREAD_BIRTH, None),
    ]


def test_a_process_of_a_target_whose_first_thread_has_ended_makes_children(tmp_path):
    page = born().event(25, attached(1, 100, 0, b"/job")).event(FIRST_ENDS, exited(100))
    page.event(EXECED, newtask(101, 102, b"child", 0))
    places = [{"hierarchy": 0, "path": "/job"}]
    target = {"name": "job", "role": "target", "kind": "cgroup", "pid": 0, "cgroups": places}
    raw_trace(tmp_path / "t", {0: [page]}, formats=FORMATS, targets=[target])
    with Trace(tmp_path / "t") as trace:
        found = trace.rows("SELECT tid, role FROM processes WHERE target = 'job' ORDER BY tid")
    assert found == [(100, "target"), (101, "target"), (102, "child")]
