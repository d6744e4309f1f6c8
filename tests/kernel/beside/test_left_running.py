"""A target that ends and leaves processes: nothing records them any longer, and that is said."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cgroups import mounted, own_cgroup
from tests.support.recorder import CALLS
from tests.support.waiting import wait_for
from tracer.cli import record
from tracer.cli.recorded import say_left_running
from tracer.probes.kernel import process_alive, process_start_time
from tracer.store import manifest as manifests

NAME = "evil\n\x1b[31m[red]"
EVERY_BACKEND = pytest.mark.parametrize("backend", ["auto", "ftrace", "ebpf"])
FORKS = """
import os, sys
sys.stdin.read()
if os.fork() == 0:
    os.setsid()
    os.execv(sys.argv[1], [sys.argv[1], "600"])
"""


@pytest.fixture
def daemon(tmp_path):
    """The program of a daemon with a hostile name; all that run it are killed at the end."""
    program = tmp_path / NAME
    program.symlink_to("/bin/sleep")
    yield program
    for pid in running(program):
        os.kill(pid, signal.SIGKILL)


def running(program):
    for folder in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[0] == os.fsencode(program):
                yield int(folder.name)


def left(folder):
    return manifests.read(folder).get("left_running")


@EVERY_BACKEND
def test_a_daemon_that_a_command_leaves_is_named_with_the_mend(tracer, daemon, tmp_path, backend):
    forks_twice = """sh -c '"$0" 600 >&- 2>&- & echo $! > pid' "$0"; true"""
    options = (*CALLS, "--backend", backend, "-o", "x.trace")
    ran = tracer("record", *options, "--", "sh", "-c", forks_twice, daemon)
    pid = int((tmp_path / "pid").read_text())
    one = {"pid": pid, "start_time": process_start_time(pid), "name": NAME}
    assert left(tmp_path / "x.trace") == {"count": 1, "processes": [one]}
    shown = f"evil\\x0a\\x1b[31m[red] ({pid})"
    said = f"1 process of the targets still ran when the recording ended: {shown}"
    (line,) = (line for line in ran.err.splitlines() if "still ran" in line)
    assert line.startswith(f"tracer: {said}; record them with -p {pid}, or ")
    assert "--linger" in line
    assert said in " ".join(tracer("info", "x.trace").out.split())
    assert tracer("info", "x.trace", "--json").json["left_running"]["count"] == 1


@EVERY_BACKEND
def test_a_target_that_becomes_a_daemon_is_named_even_if_quiet(
    tracer, recorder, daemon, tmp_path, backend
):
    command = [sys.executable, "-c", FORKS, daemon]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as target:
        process = recorder(*CALLS, "-q", "--backend", backend, "-p", target.pid)
        target.stdin.close()
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    (only,) = left(tmp_path / "x.trace")["processes"]
    assert process_alive(only["pid"], process_start_time(only["pid"]))
    assert f"({only['pid']})" in err


@EVERY_BACKEND
def test_a_command_that_leaves_nothing_is_told_apart_from_an_unknown_end(tracer, tmp_path, backend):
    options = (*CALLS, "--backend", backend, "-o", "x.trace")
    ran = tracer("record", *options, "--", "sh", "-c", "sleep 600 & kill $!; wait; true")
    assert left(tmp_path / "x.trace") == {"count": 0, "processes": []}
    assert "still ran" not in ran.err
    assert "still ran" not in tracer("info", "x.trace").out


@pytest.mark.parametrize("how", ["-d", "SIGTERM"])
def test_a_process_that_outlives_the_end_of_its_command_is_named(
    tracer, recorder, daemon, tmp_path, how
):
    command = ("--", "sh", "-c", '"$0" 600 >&- 2>&- & wait', daemon)
    if how == "-d":
        err = tracer("record", *CALLS, "-o", "x.trace", "-d", "0.5", *command).err
    else:
        process = recorder(*CALLS, *command)
        wait_for(lambda: list(running(daemon)), "the daemon")
        process.terminate()
        _out, err = process.communicate(timeout=120)
    (only,) = left(tmp_path / "x.trace")["processes"]
    assert f"the end of the command has not ended them: kill {only['pid']}" in err


def _ended_before_they_are_named():
    """Before a recorder begins: what its command leaves ends before the recorder names it."""

    def end_and_say(manifest):
        for process in manifest["left_running"]["processes"]:
            ended = os.pidfd_open(process["pid"])
            signal.pidfd_send_signal(ended, signal.SIGKILL)
            select.select([ended], [], [])
        say_left_running(manifest)

    record.say_left_running = end_and_say


def test_a_process_that_ends_meanwhile_is_not_named(tracer, daemon, tmp_path):
    options = (*CALLS, "-o", "x.trace")
    command = ("--", "sh", "-c", '"$0" 600 >&- 2>&- &', daemon)
    ran = tracer("record", *options, *command, before=_ended_before_they_are_named)
    assert left(tmp_path / "x.trace")["count"] == 1
    assert "still ran" not in ran.err


def test_many_processes_are_counted_and_the_first_are_named(tracer, daemon, tmp_path):
    script = 'n=0; while [ $((n += 1)) -le 23 ]; do "$0" 600 >&- 2>&- & done'
    ran = tracer("record", *CALLS, "-o", "x.trace", "--", "sh", "-c", script, daemon)
    found = left(tmp_path / "x.trace")
    assert found["count"] == 23
    pids = [process["pid"] for process in found["processes"]]
    assert len(pids) == 20 and pids == sorted(pids)
    assert f"({pids[4]}), and 18 more; record them with -p PID,.., or" in ran.err


@pytest.mark.parametrize("backend", ["perf", "none"])
class TestWithoutAListOfFollowedThreads:
    """The environment of a process tells that a recorded command has started it."""

    def record(self, tracer, backend, script, daemon, *options):
        options = (*options, *(() if backend == "none" else CALLS), "--backend", backend)
        return tracer("record", *options, "-o", "x.trace", "--", "sh", "-c", script, daemon)

    def test_a_daemon_is_named(self, tracer, daemon, tmp_path, backend):
        ran = self.record(tracer, backend, 'setsid "$0" 600 >&- 2>&- &', daemon)
        (pid,) = running(daemon)
        one = {"pid": pid, "start_time": process_start_time(pid), "name": NAME}
        assert left(tmp_path / "x.trace") == {"count": 1, "processes": [one]}
        assert f"({pid}); record them with -p {pid}, or " in ran.err

    def test_nothing_is_said_of_a_process_with_another_environment(
        self, tracer, daemon, tmp_path, backend
    ):
        """Nothing is known of it, nor that there is none."""
        ran = self.record(tracer, backend, 'env -i "$0" 600 >&- 2>&- &', daemon)
        assert list(running(daemon)) and left(tmp_path / "x.trace") is None
        assert "still ran" not in ran.err

    def test_one_that_an_earlier_recording_left_is_not_named_again(
        self, tracer, daemon, tmp_path, backend
    ):
        self.record(tracer, backend, '"$0" 600 >&- 2>&- &', daemon)
        assert left(tmp_path / "x.trace")["count"] == 1
        ran = self.record(tracer, backend, "true", daemon, "--force")
        assert left(tmp_path / "x.trace") is None
        assert "still ran" not in ran.err


@EVERY_BACKEND
def test_a_daemon_of_a_command_is_named_beside_a_target_that_is_a_cgroup(
    tracer, daemon, tmp_path, backend
):
    with own_cgroup(mounted()[0]) as group:
        options = (*CALLS, "--backend", backend, "--cgroup", group, "-d", "3", "-o", "x.trace")
        ran = tracer("record", *options, "--", "sh", "-c", '"$0" 600 >&- 2>&- &', daemon)
    (only,) = left(tmp_path / "x.trace")["processes"]
    assert [only["pid"]] == list(running(daemon))
    assert f"({only['pid']})" in ran.err


def test_a_recording_that_goes_on_with_a_living_target_says_nothing_of_its_children(
    tracer, daemon, tmp_path
):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        options = (*CALLS, "-p", other.pid, "-o", "x.trace")
        ran = tracer("record", *options, "--", "sh", "-c", '"$0" 600 >&- 2>&- &', daemon)
        other.stdin.close()
    assert left(tmp_path / "x.trace") is None
    assert "still ran" not in ran.err
