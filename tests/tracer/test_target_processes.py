"""Processes and all that descend from them, as the system has them now."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.budget import run_within
from tests.support.long_command import NAME, long_command  # noqa: F401 a fixture
from tests.support.traces import make_trace
from tracer.probes.errors import TargetGone, TracerError, UsageError
from tracer.session.marks import Marks
from tracer.session.python_stacks import PythonStacks
from tracer.store import manifest as manifests
from tracer.targets.containerd import shims_of
from tracer.targets.processes import (
    from_command,
    from_pids,
    members_of,
    processes_with_memory,
    threads_of,
)
from tracer.targets.tree import ProcessTree
from tracer.workloads.studies.others import others_cpu

BUDGET = 192 << 20
"""Bytes; half of the long command line."""

# Each process starts the next one of so many, says its number, and waits for its input's end.
FAMILY = """
import os, subprocess, sys
left = int(sys.argv[1])
print(os.getpid(), flush=True)
if left:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(left - 1), sys.argv[2]])
sys.stdin.read()
"""


@pytest.fixture
def family():
    """The numbers of a process, its child, and the child's child."""
    command = [sys.executable, "-c", FAMILY, "2", FAMILY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        yield [int(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()


def test_descendants_of_any_degree_are_found_and_no_ancestor(family):
    parent, child, grandchild = family
    assert ProcessTree().descendants([parent]) == {parent, child, grandchild}
    assert ProcessTree().descendants([child]) == {child, grandchild}


def test_descendants_of_a_left_out_process_are_left_out_unless_it_is_a_root(family):
    parent, child, grandchild = family
    assert ProcessTree().descendants([parent], but=lambda pid: pid == child) == {parent}
    assert ProcessTree().descendants([child], but=lambda pid: pid == child) == {child, grandchild}


def test_a_root_that_is_gone_is_nobody():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert ProcessTree().descendants([process.pid]) == set()


LOOKS = {
    "members": members_of,
    "processes": processes_with_memory,
    "threads": lambda targets: threads_of(targets, makers=True),
    "marks": lambda targets: Marks(Path("marks"), Path("live")).find(targets),
    "stacks": lambda targets: PythonStacks(False, targets)._processes(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_look_at_many_targets_reads_the_machines_processes_once(family, look, monkeypatch):
    targets = from_pids(",".join(map(str, family)))
    reads = []
    every = psutil.process_iter
    monkeypatch.setattr(psutil, "process_iter", lambda *a: reads.append(a) or every(*a))
    look(targets)
    assert len(reads) == 1


def test_a_tree_shows_one_moment_to_all_targets(family):
    parent, child, grandchild = from_pids(",".join(map(str, family)))
    tree = ProcessTree()
    assert set(grandchild.members(tree)) == {family[2]}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
        assert not ProcessTree().descendants([os.getpid()]) <= tree.descendants([os.getpid()])
        assert set(parent.members(tree)) == set(family)
        assert set(child.members(tree)) == set(family[1:])


def test_a_thread_is_no_target_and_its_process_is_named():
    with ThreadPoolExecutor(1) as pool:
        tid = pool.submit(threading.get_native_id).result()
        told = f"{tid} is a thread of process {os.getpid()}; give -p {os.getpid()}"
        with pytest.raises(UsageError, match=told):
            from_pids(str(tid))


def test_a_process_that_has_ended_is_no_target_though_its_parent_did_not_wait():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        told = f"process {process.pid} has ended, and its parent has not waited for it"
        with pytest.raises(TargetGone, match=told):
            from_pids(str(process.pid))
    with pytest.raises(TargetGone, match=f"there is no process {process.pid}"):
        from_pids(str(process.pid))


WAITS = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def started():
    """Starts a process that waits, with more arguments; returns its pid."""
    running = []

    def start(*more):
        command = [sys.executable, "-S", "-E", "-c", WAITS, *more]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        running.append(subprocess.Popen(command, **pipes))
        running[-1].stdout.readline()
        return running[-1].pid

    yield start
    for process in running:
        process.communicate()


def test_the_arguments_of_a_process_are_those_that_it_was_started_with(started):
    (target,) = from_pids(str(started("a b", "", "\udcff")))
    assert target.command == [sys.executable, "-S", "-E", "-c", WAITS, "a b", "", "\udcff"]


def test_processes_with_very_many_arguments_do_not_damage_a_manifest(started, tmp_path):
    pids = [started(*[""] * 150_000) for _ in range(4)]
    targets = from_pids(",".join(map(str, pids)))
    assert [target.pid for target in targets] == pids
    assert all(target.command[:2] == [sys.executable, "-S"] for target in targets)
    make_trace(tmp_path / "t", {}).close()
    manifest = manifests.read(tmp_path / "t")
    manifest["targets"] = [target.describe() for target in targets]
    manifests.write(tmp_path / "t", manifest)
    assert manifests.read(tmp_path / "t")["targets"] == manifest["targets"]


@pytest.mark.parametrize("longest", [["x" * 200_000], [""] * 200_000], ids=["bytes", "many"])
def test_a_command_of_very_many_arguments_is_cut_as_that_of_a_process_is(longest):
    command = ["sh", "-c", "exit", "\udcff", *longest]
    target = from_command(command, os.getpid())
    assert target.command[:4] == command[:4]
    assert sum(len(os.fsencode(word)) + 1 for word in target.command) in (1 << 16, (1 << 16) + 1)


def test_a_manifest_that_no_reader_accepts_is_not_written(tmp_path):
    make_trace(tmp_path / "t", {}).close()
    before = manifests.read(tmp_path / "t")
    with pytest.raises(TracerError, match=r"larger than any reader accepts .*; record fewer"):
        manifests.write(tmp_path / "t", {**before, "command": ["1"] * 500_000})
    assert manifests.read(tmp_path / "t") == before


def test_more_targets_than_a_trace_can_describe_are_refused():
    with pytest.raises(UsageError, match=r"4097 targets are too many; .* at most 4096"):
        from_pids(",".join(str(1 << 30 | n) for n in range(4097)))


def test_a_number_that_is_given_twice_is_one_target(started):
    pid = started()
    assert [target.pid for target in from_pids(f"{pid}, {pid}")] == [pid]


@pytest.mark.parametrize(("given", "name"), [("p" * 40, "p" * 40), ("p" * 100_000, "p" * 15)])
def test_a_process_cannot_give_itself_a_name_that_no_table_holds(tmp_path, given, name):
    program = tmp_path / ("p" * 40)
    program.symlink_to(shutil.which("cat"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen([given], executable=program, **pipes) as process:
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"  # it has its command line by now
        (target,) = from_pids(str(process.pid))
        process.stdin.close()
    assert target.name == name


def target_of(pid):
    (target,) = from_pids(str(pid))
    return target.name, sum(len(word) + 1 for word in target.command)


def shims():
    return shims_of(os.getpid())


def others():
    with others_cpu() as found:
        pass
    return found


def test_a_command_line_that_fills_memory_is_read_in_part(long_command):  # noqa: F811
    name, size = run_within(BUDGET, target_of, long_command)
    assert name == NAME
    assert size <= 64 << 10


@pytest.mark.parametrize("look", [shims, others], ids=["shims", "others"])
def test_a_look_at_all_processes_reads_no_command_line_that_fills_memory(long_command, look):  # noqa: F811
    run_within(BUDGET, look)
