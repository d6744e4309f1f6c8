"""The account of a tree of processes: those that end, those that are orphaned, pids used again."""

import os

import pytest

from tracer.probes.sampler.processes import Processes

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def proc(tmp_path):
    """A /proc of processes {pid: (start, own ticks, children's ticks, children)}."""

    def make(**found):
        folder = tmp_path / "proc"
        for old in folder.glob("[0-9]*/stat"):
            old.unlink()
        (folder / f"self/task/{os.getpid()}").mkdir(parents=True, exist_ok=True)
        (folder / f"self/task/{os.getpid()}/children").touch()
        for name, (start, own, waited, children) in found.items():
            pid = int(name[1:])
            task = folder / f"{pid}/task/{pid}"
            task.mkdir(parents=True, exist_ok=True)
            (task / "children").write_text(" ".join(map(str, children)))
            fields = [0] * 22
            fields[11], fields[13], fields[19], fields[21] = own, waited, start, 7
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
