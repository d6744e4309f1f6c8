"""Descriptors and positions, call by call: what dup, fork, exec, lseek and appends do to them."""

from __future__ import annotations

import pytest

from tracer.analysis.views.reading.open_files import NOT_KNOWN, OpenFiles, Transfer

JOB, CHILD = 7, 8
APPEND, DIRECT, CLOEXEC = 0o2000, 0o40000, 0o2000000
NONE = -1


class Calls:
    """Calls of a process; each returns the offset that it transferred at."""

    def __init__(self, machine="x86_64"):
        self.files = OpenFiles(machine)

    def call(self, name, fd=NONE, ret=0, offset=NONE, length=NONE, flags=NONE, pid=JOB, path=None):
        return self.files.call(pid, name, fd, offset, length, flags, ret, path)

    def open(self, fd, flags=0, pid=JOB):
        self.call("openat", -100, fd, flags=flags, pid=pid)

    def at(self, fd, ret=100, name="read", pid=JOB, **more):
        moved = self.call(name, fd, ret, pid=pid, **more)
        return None if moved is None else moved.offset

    def file(self, fd, pid=JOB):
        return self.call("read", fd, 1, pid=pid).opened


def test_reads_move_the_position_and_those_at_an_offset_do_not():
    made = Calls()
    made.open(3)
    assert [made.at(3), made.at(3, name="readv"), made.at(3, name="pread64", offset=7)] == [
        *(0, 100, 7),
    ]
    assert [made.at(3), made.at(3, name="preadv2", offset=-1), made.at(3)] == [200, 300, 400]
    assert made.at(3, name="sendfile", flags=0) == 500
    assert made.at(3, name="sendfile", flags=0x7FFF0000) == NOT_KNOWN
    assert made.at(3) == 600


def test_lseek_tells_the_position_of_a_file_that_was_open_before():
    made = Calls()
    assert made.at(5) == NOT_KNOWN
    made.call("lseek", 5, ret=4096)
    assert made.at(5) == 4096


def test_copies_of_a_descriptor_share_the_position_and_a_second_open_does_not():
    made = Calls()
    made.open(3)
    made.call("dup", 3, ret=4)
    made.call("dup2", 4, ret=9)
    made.call("fcntl", 9, ret=10, flags=1030)
    made.open(5)
    assert [made.at(fd) for fd in (3, 4, 9, 10, 5)] == [0, 100, 200, 300, 0]
    made.call("close", 3)
    assert made.at(4) == 400


def test_a_child_shares_positions_and_has_descriptors_of_its_own():
    made = Calls()
    made.open(3)
    made.files.fork(CHILD, JOB)
    assert [made.at(3), made.at(3, pid=CHILD), made.at(3)] == [0, 100, 200]
    made.call("close", 3, pid=CHILD)
    made.open(3, pid=CHILD)
    assert [made.at(3), made.at(3, pid=CHILD)] == [300, 0]


def test_exec_closes_the_descriptors_that_ask_for_it():
    made = Calls()
    made.open(3, CLOEXEC)
    made.open(4)
    made.call("dup3", 4, ret=5, flags=CLOEXEC)
    made.open(6)
    made.call("fcntl", 6, flags=2, length=1)
    made.call("close_range", 7, length=2**32 - 1, flags=4)
    files = {fd: made.file(fd) for fd in (3, 4, 5, 6)}
    made.call("execve")
    kept = [fd for fd, file in files.items() if made.file(fd) == file]
    assert kept == [4]


def test_close_range_closes_a_range():
    made = Calls()
    for fd in (3, 4, 5):
        made.open(fd)
    files = {fd: made.file(fd) for fd in (3, 4, 5)}
    made.call("close_range", 3, length=4, flags=0)
    assert [made.file(fd) == file for fd, file in files.items()] == [False, False, True]


def test_an_append_moves_the_position_to_an_end_that_is_not_known():
    made = Calls()
    made.open(3, APPEND)
    assert [made.at(3), made.at(3, name="write"), made.at(3)] == [0, NOT_KNOWN, NOT_KNOWN]
    made.call("lseek", 3, ret=0)
    assert made.at(3) == 0
    made.open(4)
    assert [made.at(4, name="write"), made.at(4)] == [0, 100]


@pytest.mark.parametrize(("machine", "flag"), [("x86_64", DIRECT), ("aarch64", 0o200000)])
def test_reads_past_the_cache_use_no_pages_but_move_the_position(machine, flag):
    made = Calls(machine)
    made.open(3, flag)
    assert made.at(3) is None
    made.call("fcntl", 3, flags=4, length=0)
    assert made.at(3) == 100


@pytest.mark.parametrize("ret", [0, -14, 1 << 31, (1 << 63) - 1])
def test_impossible_results_transfer_nothing(ret):
    made = Calls()
    made.open(3)
    assert made.at(3, ret) is None


def test_impossible_places_are_not_known():
    made = Calls()
    for offset in (-5, (1 << 63) - 1):
        assert made.at(3, name="pread64", offset=offset) == NOT_KNOWN
    made.call("lseek", 3, ret=(1 << 63) - 1)
    assert [made.at(3), made.at(3)] == [NOT_KNOWN, NOT_KNOWN]
    assert made.call("read", -9, 5) == Transfer(made.files.opened[-1].number, NOT_KNOWN, False)


def test_names_hold_for_a_process_and_its_children_until_it_moves():
    made = Calls()
    made.call("openat", -100, 3, path="data")
    made.files.fork(CHILD, JOB)
    made.call("openat", -100, 4, path="data", pid=CHILD)
    made.call("chdir", pid=CHILD)
    made.call("openat", -100, 5, path="data", pid=CHILD)
    made.call("openat", -100, 5, path="data", pid=99)
    first, second, *others = [one.name for one in made.files.opened]
    assert first == second
    assert len({first, *others}) == 3


def test_a_file_that_was_open_before_has_its_position_which_all_of_its_descriptors_share():
    made = Calls()
    for pid, fd in ((JOB, 3), (CHILD, 3), (CHILD, 4)):
        made.files.there(pid, fd, 500, 0, "/data/a", 1)
    made.files.there(JOB, 5, 500, 0, "/data/a", 2)
    assert [made.at(3), made.at(3, pid=CHILD), made.at(4, pid=CHILD), made.at(5)] == [
        *(500, 600, 700, 500),
    ]
    assert {(one.opened, one.name[1]) for one in made.files.opened} == {(True, "/data/a")}


def test_a_position_that_is_not_known_is_known_after_a_seek():
    made = Calls()
    made.files.there(JOB, 3, NOT_KNOWN, 0, "/data/a", NONE)
    assert made.at(3) == NOT_KNOWN
    made.call("lseek", 3, ret=4096)
    assert made.at(3) == 4096


def test_a_look_at_a_file_that_is_followed_changes_nothing():
    made = Calls()
    made.call("openat", -100, 3, path="../a")
    made.at(3, ret=10)
    made.files.there(JOB, 3, 10, 0, "/data/a (deleted)", 1)
    made.files.there(JOB, 3, NOT_KNOWN, 0, "/data/a", 2)
    assert made.at(3) == 10
    assert [one.name[1] for one in made.files.opened] == ["../a"]


@pytest.mark.parametrize(("position", "path"), [(500, "/data/a"), (10, "/data/b")])
def test_a_file_that_is_not_the_followed_one_was_opened_while_the_process_was_no_target(
    position, path
):
    made = Calls()
    made.call("openat", -100, 3, path="/data/a")
    made.call("dup", 3, ret=4)
    made.at(3, ret=10)
    made.files.there(JOB, 3, position, 0, path, 1)
    assert [made.at(3), made.at(4)] == [position, 10]
    assert [one.name[1] for one in made.files.opened] == ["/data/a", path]


def test_a_process_that_joins_shares_the_position_of_a_followed_one():
    made = Calls()
    made.files.there(JOB, 3, 500, 0, "/data/a", 1)
    made.at(3)
    made.files.there(JOB, 3, 600, 0, "/data/a", 2)
    made.files.there(CHILD, 4, 600, 0, "/data/a", 2)
    assert [made.at(3), made.at(4, pid=CHILD), made.at(3)] == [600, 700, 800]
    assert len(made.files.opened) == 1


def test_a_shared_position_is_that_of_the_last_look():
    """A process that is no target yet moves it."""
    made = Calls()
    made.files.there(JOB, 3, 500, 0, "/data/a", 1)
    made.files.there(JOB, 3, 900, 0, "/data/a", 2)
    made.files.there(CHILD, 4, 900, 0, "/data/a", 2)
    assert [made.at(3), made.at(4, pid=CHILD), made.at(3)] == [900, 1000, 1100]


def test_flags_of_files_that_were_open_before_count():
    made = Calls()
    made.files.there(JOB, 3, 0, APPEND | CLOEXEC, "/data/a", 1)
    made.files.there(JOB, 4, 0, DIRECT, "/data/b", 2)
    assert made.at(3, name="write") == NOT_KNOWN
    assert made.at(4) is None
    kept = made.file(3)
    made.call("execve")
    assert made.file(3) != kept
