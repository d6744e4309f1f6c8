"""perf beside a recording: ended, killed, refused, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import tracer_command
from tests.support.losses import losses
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.probes.backends.perf_tools import command
from tracer.store.trace import Trace

pytestmark = pytest.mark.usefixtures("perfs")

CALLS, FILES = 9973, 23
INSERT = "block:block_rq_insert"
RARE = "syscalls:sys_enter_sched_get_priority_max"
"""A call that nobody else makes."""


def one(trace, query, *parameters):
    return trace.connection.execute(query, parameters).fetchone()[0]


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


def test_a_tiny_buffer_loses_events_and_the_rest_adds_up(tmp_path, load, perfs):
    """perf is stopped while the load runs: what came through and what was lost is all there was."""
    source = f"""
        import os, sys
        sys.stdin.readline()
        for _ in range({CALLS}): os.sched_get_priority_max(0)
        print("done", flush=True)
        sys.stdin.readline()
        for _ in range({FILES}): os.sched_get_priority_max(0)
    """
    options = ("-e", "block", "-b", "64K", "--callgraph", RARE)
    with Tracer("record", "-o", "x.trace", *options, "--", *load(source), cwd=tmp_path) as recorder:
        wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
        (perf,) = perfs()
        os.kill(perf, signal.SIGSTOP)
        recorder.stdin.write("\n")
        recorder.stdin.flush()
        assert recorder.stdout.readline() == "done\n"
        os.kill(perf, signal.SIGCONT)
        time.sleep(0.5)
        _, err = recorder.communicate("\n", timeout=120)
    assert recorder.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        came = one(trace, "SELECT sum(count) FROM call_graphs")
        lost = rows(
            trace, 'SELECT "from", "to", count, cause FROM loss WHERE stream = \'callgraph\''
        )
        assert 0 < came < CALLS
        assert came + sum(count for _, _, count, _ in lost) == CALLS + FILES
        clock = trace.manifest["clock"]
        for start, end, _, cause in lost:
            assert cause == "buffer overrun"
            # A gap that nothing came after has no end.
            assert clock["start_ns"] < start < (end or clock["end_ns"]) <= clock["end_ns"]


def test_a_killed_recorder_leaves_no_perf_and_a_readable_trace(tmp_path, load, tracer, perfs):
    source = "import os, time\nwhile True:\n    os.sched_get_priority_max(0); time.sleep(0.001)"
    with subprocess.Popen(load(source)) as job:
        try:
            options = ("--perf-stat", "--callgraph", RARE, "-p", job.pid)
            recorder = Tracer("record", "-o", "x.trace", *options, cwd=tmp_path)
            raw = tmp_path / "x.trace/raw"
            wait_for((raw / "threads.json").exists, "the recording")
            mine = perfs()
            assert len(mine) >= 2
            wait_for_rounds(job.pid, 200)
            recorder.kill()
            recorder.close()
            wait_for(lambda: not perfs(), "the end of perf")
        finally:
            job.kill()
    facts = tracer("info", "x.trace", "--json").json
    assert facts["complete"] is False
    tracer("clean")
    with Trace(tmp_path / "x.trace") as trace:
        assert one(trace, "SELECT sum(count) FROM call_graphs WHERE pid = ?", job.pid) > 100
        clock = "SELECT value FROM counters WHERE event = 'task-clock'"
        assert one(trace, clock) > 0


def test_a_killed_perf_costs_its_last_samples_and_is_said(tmp_path, load, perfs):
    source = f"""
        import os, sys
        for _ in range({FILES}): os.sched_get_priority_max(0)
        print("done", flush=True)
        sys.stdin.readline()
    """
    command = ("--callgraph", RARE, "--", *load(source))
    with Tracer("record", "-o", "x.trace", *command, cwd=tmp_path) as recorder:
        wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
        (perf,) = perfs()
        assert recorder.stdout.readline() == "done\n"
        os.kill(perf, signal.SIGKILL)
        recorder.communicate("\n", timeout=120)
    assert recorder.returncode == 0
    with Trace(tmp_path / "x.trace") as trace:
        assert one(trace, "SELECT coalesce(sum(count), 0) FROM call_graphs") <= FILES
        assert rows(trace, "SELECT stream, count, cause FROM loss") == [
            ("callgraph", None, "perf failed: perf ended with status -9")
        ]


def test_the_end_of_a_killed_perf_is_noticed_and_no_answer_of_it_awaited(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_ACK_S", 600)
    with (tmp_path / "counters").open("wb") as output:
        perf = command.Running(
            command.find_perf(), ["stat", "-a", "-e", "task-clock"], output.fileno()
        )
    perf.wait_ready()
    perf.enable()
    os.kill(perf.pid, signal.SIGSTOP)  # it takes the next command into its pipe, not in hand
    asked = threading.Thread(target=perf.disable, daemon=True)
    asked.start()
    os.kill(perf.pid, signal.SIGKILL)
    wait_for(lambda: not asked.is_alive(), "the recorder to go on")
    assert perf.stop() == "perf ended with status -9"


def test_ctrl_c_ends_perf_and_keeps_what_it_counted(tmp_path, load):
    source = "import os, time\nwhile True:\n    os.sched_get_priority_max(0); time.sleep(0.001)"
    command = ("--perf-stat", "--callgraph", RARE, "--", *load(source))
    recorder = Tracer("record", "-o", "x.trace", *command, cwd=tmp_path, new_session=True)
    wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
    (job,) = json.loads((tmp_path / "x.trace/manifest.json").read_bytes())["targets"]
    wait_for_rounds(job["pid"], 200)
    os.killpg(recorder.pid, signal.SIGINT)  # as a terminal does: recorder and command
    _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["complete"] is True
        assert trace.manifest["ended_by"] == "signal"
        assert losses(trace) == []
        assert one(trace, "SELECT sum(count) FROM call_graphs") > 100
        assert one(trace, "SELECT value FROM counters WHERE event = 'task-clock'") > 0


def test_a_user_without_rights_counts_the_events_of_its_own_command(tmp_path):
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent.is_relative_to("/tmp/"):
            parent.chmod(0o755)
    python = sys._base_executable
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", "pass"],
        check=False,
    )
    interpreter = sys.executable if ran.returncode == 0 else None
    if interpreter is None or not os.access(interpreter, os.X_OK):
        pytest.skip("another user cannot run this interpreter")
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         *tracer_command("record", "-o", "x.trace", "--perf-stat", "--", "touch", "ran")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith("tracer: no kernel events are recorded, only marks and samples: ")
    assert (tmp_path / "ran").exists()
    with Trace(tmp_path / "x.trace") as trace:
        counted = dict(trace.rows("SELECT event, value FROM counters WHERE state = 'counted'"))
    assert counted["task-clock:u"] > 0  # in user mode alone


def test_several_perfs_of_one_recorder_end_with_it(tmp_path, perfs):
    """The last one that holds the pipe decides; none holds another's."""
    source = (
        "import os\n"
        "from tracer.probes.backends.perf_tools import command, record\n"
        "perf = command.find_perf()\n"
        "outs = [os.open(str(n), os.O_CREAT | os.O_WRONLY) for n in range(3)]\n"
        f"ran = [record.record(perf, [{INSERT!r}], [], 64, out) for out in outs]\n"
        "for one in ran: one.wait_ready()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ran = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, check=False)
    assert ran.returncode == -9
    wait_for(lambda: not perfs(), "the end of every perf")
