"""The account of a tree of processes: those that end, those that are orphaned, pids used again."""

import os
import resource

import pytest

from tracer.probes.sampler.processes import Processes

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
EXITING = 0x4
"""PF_EXITING of a process's flags."""


@pytest.fixture
def proc(tmp_path):
    """A /proc of processes {pid: (start, own ticks, children's ticks, children)}."""

    def make(ended=(), **found):
        folder = tmp_path / "proc"
        for old in folder.glob("[0-9]*/stat"):
            old.unlink()
        (folder / f"self/task/{os.getpid()}").mkdir(parents=True, exist_ok=True)
        (folder / f"self/task/{os.getpid()}/children").touch()
        parents = {child: int(name[1:]) for name, (*_, mine) in found.items() for child in mine}
        for name, (start, own, waited, children) in found.items():
            pid = int(name[1:])
            task = folder / f"{pid}/task/{pid}"
            task.mkdir(parents=True, exist_ok=True)
            (task / "children").write_text(" ".join(map(str, children)))
            fields = [0] * 22
            fields[11], fields[13], fields[19], fields[21] = own, waited, start, 7
            fields[1], fields[6] = parents.get(pid, 0), EXITING * (pid in ended)
            line = f"{pid} (a) b) S {' '.join(map(str, fields[1:]))}\n"
            (folder / f"{pid}/stat").write_text(line)
        return tmp_path

    return make


def seen(readings):
    found = {name: value for name, _, value in readings}
    return round(found["cpu_time"] * TICKS), found["processes"], found["rss"] / PAGE


def test_a_reaped_childs_cpu_time_counts_for_its_parent(proc):
    tree = Processes(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    assert seen(tree.read_tree(1)) == (30, 2, 14)
    proc(p1=(5, 11, 24, []))
    assert seen(tree.read_tree(1)) == (35, 1, 7)


def test_a_child_that_nobody_waited_for_is_kept_as_it_was_last_seen(proc):
    tree = Processes(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    tree.read_tree(1)
    proc(p1=(5, 11, 0, []))
    assert seen(tree.read_tree(1)) == (31, 1, 7)
    assert seen(tree.read_tree(1)) == (31, 1, 7)


def test_children_waited_for_earlier_do_not_hide_one_that_nobody_waited_for(proc):
    tree = Processes(proc(p1=(5, 10, 100, [2]), p2=(6, 20, 0, [])))
    tree.read_tree(1)
    proc(p1=(5, 11, 100, []))
    assert seen(tree.read_tree(1)) == (131, 1, 7)


def test_an_orphan_and_what_it_makes_still_belong_to_the_tree(proc):
    tree = Processes(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    tree.read_tree(1)
    proc(p2=(6, 25, 0, [3]), p3=(9, 4, 0, []))
    assert seen(tree.read_tree(1)) == (39, 2, 14)


def test_a_pid_that_is_used_again_is_another_process(proc):
    tree = Processes(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    tree.read_tree(1)
    proc(p1=(5, 10, 20, []), p2=(99, 1000, 0, []))
    assert seen(tree.read_tree(1)) == (30, 1, 7)
    proc(p1=(100, 1000, 0, []))
    assert tree.read_tree(1) == []


def test_children_that_a_process_waited_for_do_not_hide_a_child_of_another_one(proc):
    """The main process waits for children that no sample saw; a process of `docker exec` ends."""
    both = Processes(proc(p1=(5, 10, 0, []), p2=(6, 20, 0, [])))
    both.read([1, 2])
    proc(p1=(5, 10, 15, []))
    assert seen(both.read([1])) == (10 + 15 + 20, 1, 7)


def test_children_of_a_child_that_ended_are_charged_above_it(proc):
    tree = Processes(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [3]), p3=(7, 30, 0, [])))
    assert seen(tree.read_tree(1)) == (60, 3, 21)
    proc(p1=(5, 10, 55, []))  # 2 waited for 3, and 1 waited for 2
    assert seen(tree.read_tree(1)) == (65, 1, 7)


def followed(*pids):
    """The knowledge that these are the target's, as a backend has it."""
    return set(pids).intersection


def test_an_orphan_that_no_look_saw_as_a_child_is_found_if_it_is_followed(proc):
    tree = Processes(proc(p8=(1, 0, 0, [9]), p9=(2, 0, 0, [1]), p1=(5, 10, 0, [])))
    assert seen(tree.read_tree(1, followed=followed(1))) == (10, 1, 7)
    proc(p8=(1, 0, 0, [9, 2, 4]), p9=(2, 0, 0, [1]), p1=(5, 10, 1, []),
         p2=(6, 20, 0, [3]), p3=(7, 30, 0, []), p4=(8, 500, 0, []))  # fmt: skip
    for _ in range(2):
        assert seen(tree.read_tree(1, followed=followed(1, 2, 3))) == (61, 3, 21)
    assert seen(tree.read_tree(1)) == (61, 3, 21)


def test_an_orphan_that_outlives_its_command_is_in_the_last_counters(proc):
    tree = Processes(proc(p9=(2, 0, 0, [1]), p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    tree.read_tree(1)
    proc(p9=(2, 0, 0, [2]), p2=(6, 26, 0, []))
    used = resource.struct_rusage((12 / TICKS, *[0] * 15))
    found = {name: value for name, _, value in tree.last(used)}
    assert round(found["cpu_time"] * TICKS) == 12 + 26


@pytest.mark.parametrize("left", ({}, {"p2": (6, 26, 0, [])}))
def test_a_look_after_a_command_was_waited_for_counts_none_of_it_twice(proc, left):
    """The recorder waits for the command, a sample is due, and then comes the last one."""
    orphans = [int(name[1:]) for name in left]
    tree = Processes(proc(p9=(2, 0, 0, [1]), p1=(5, 10, 0, [2, 3]), p2=(6, 20, 0, []),
                          p3=(7, 30, 0, [])), command=1)  # fmt: skip
    tree.read_tree(1)
    proc(p9=(2, 0, 0, orphans), **left)
    for _ in range(2):
        assert tree.read_tree(1) == []
    waited_for = 12 + 33 + (0 if left else 26)
    used = resource.struct_rusage((waited_for / TICKS, *[0] * 15))
    found = {name: value for name, _, value in tree.last(used)}
    assert round(found["cpu_time"] * TICKS) == 12 + 33 + 26


def test_a_left_out_process_and_what_it_made_are_not_in_the_tree(proc):
    found = {"p1": (5, 10, 0, [2, 4]), "p2": (6, 20, 0, [3]), "p3": (7, 30, 0, []),
             "p4": (8, 1, 0, [])}  # fmt: skip
    tree = Processes(proc(**found))
    for _ in range(2):
        assert seen(tree.read_tree(1, but=[2])) == (11, 2, 14)


class Clocked(Processes):
    """An account whose every look is at the ticks since boot that a test has set."""

    def __init__(self, root):
        super().__init__(root, lambda: self.ticks)
        self.ticks = 10


def test_a_process_that_enters_brings_none_of_its_past_use(proc):
    group = Clocked(proc(p1=(5, 10, 0, []), p2=(6, 300, 8, [])))
    assert seen(group.read([1])) == (10, 1, 7)
    assert seen(group.read([1, 2])) == (10, 2, 14)
    proc(p1=(5, 10, 0, []), p2=(6, 302, 9, []))
    assert seen(group.read([1, 2])) == (13, 2, 14)


def test_a_process_of_the_first_look_or_younger_than_the_last_counts_in_full(proc):
    group = Clocked(proc(p1=(5, 10, 0, [])))
    assert seen(group.read([1])) == (10, 1, 7)
    proc(p1=(5, 10, 0, []), p2=(10, 20, 0, []))
    assert seen(group.read([1, 2])) == (30, 2, 14)


def test_the_first_to_enter_an_empty_group_bring_none_of_their_past_use(proc):
    group = Clocked(proc(p2=(6, 300, 0, [])))
    assert group.read([]) == []
    group.read([2])
    proc(p2=(6, 304, 0, []))
    assert seen(group.read([2])) == (4, 1, 7)


@pytest.mark.parametrize("beside", [[1], []], ids=["beside another", "alone"])
def test_use_outside_of_a_group_counts_neither_meanwhile_nor_after_the_return(proc, beside):
    group = Clocked(proc(p1=(5, 10, 0, []), p2=(6, 20, 0, [])))
    past = seen(group.read([*beside, 2]))[0]
    for ticks in (100, 500):
        proc(p1=(5, 10, 0, []), p2=(6, ticks, 0, []))
        assert not beside or seen(group.read(beside)) == (past, 1, 7)
        assert beside or group.read(beside) == []
    assert seen(group.read([*beside, 2]))[0] == past
    proc(p1=(5, 10, 0, []), p2=(6, 503, 0, []))
    assert seen(group.read([*beside, 2]))[0] == past + 3


def test_a_parent_inside_is_not_charged_for_a_child_that_ended_outside(proc):
    group = Clocked(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    group.read([1, 2])
    proc(p1=(5, 10, 0, [2]), p2=(6, 100, 0, []))
    assert seen(group.read([1])) == (30, 1, 7)
    proc(p1=(5, 11, 100, []))
    assert seen(group.read([1])) == (31, 1, 7)
    proc(p1=(5, 11, 104, []))
    assert seen(group.read([1])) == (35, 1, 7)


def test_a_parent_inside_is_charged_for_a_child_that_entered_from_then_on(proc):
    group = Clocked(proc(p1=(5, 10, 0, [2]), p2=(6, 300, 0, [])))
    group.read([1])
    group.read([1, 2])
    proc(p1=(5, 10, 0, [2]), p2=(6, 302, 0, []))
    assert seen(group.read([1, 2])) == (12, 2, 14)
    proc(p1=(5, 10, 303, []))
    assert seen(group.read([1])) == (13, 1, 7)


def test_a_child_whose_parent_waits_late_counts_once(proc):
    """A cgroup does not list a process that has ended and that nobody has waited for."""
    group = Clocked(proc(p1=(5, 10, 0, [2]), p2=(6, 20, 0, [])))
    group.read([1, 2])
    proc(p1=(5, 10, 0, [2]), p2=(6, 25, 0, []), ended=[2])
    assert seen(group.read([1]))[0] == 35
    assert seen(group.read([1]))[0] == 35
    proc(p1=(5, 10, 25, []))
    assert seen(group.read([1])) == (35, 1, 7)


def test_a_pid_that_enters_again_is_another_process(proc):
    group = Clocked(proc(p1=(5, 10, 0, []), p2=(6, 20, 0, [])))
    group.read([1, 2])
    group.read([1])
    proc(p1=(5, 10, 0, []), p2=(11, 1000, 0, []))
    assert seen(group.read([1, 2])) == (1030, 2, 14)


class Late(Processes):
    """An account that reads its processes while a child ends: after its parent, before itself."""

    meanwhile = None

    def _of(self, pid):
        if pid == 2 and self.meanwhile is not None:
            self.meanwhile()
        return super()._of(pid)


def test_a_child_that_ends_between_its_parents_look_and_its_own_counts_once(proc):
    tree = Late(proc(p1=(5, 10, 0, [2]), p2=(6, 100, 0, [])))
    assert seen(tree.read_tree(1)) == (110, 2, 14)
    tree.meanwhile = lambda: proc(p1=(5, 10, 100, []))
    assert seen(tree.read_tree(1)) == (110, 1, 7)
    tree.meanwhile = None
    assert seen(tree.read_tree(1)) == (110, 1, 7)
    assert seen(tree.read_tree(1)) == (110, 1, 7)


def test_a_command_waited_for_in_the_midst_of_a_look_counts_once(proc):
    tree = Late(proc(p1=(5, 10, 0, [2]), p2=(6, 100, 0, [])), command=1)
    tree.read_tree(1)
    tree.meanwhile = proc  # both are gone
    tree.read_tree(1)
    tree.meanwhile = None
    used = resource.struct_rusage((110 / TICKS, *[0] * 15))
    found = {name: value for name, _, value in tree.last(used)}
    assert round(found["cpu_time"] * TICKS) == 110
