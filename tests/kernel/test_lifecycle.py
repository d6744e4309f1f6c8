"""A recorder is killed, or makes all tables, and leaves nothing in the kernel."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.backends import every_backend_of_calls
from tests.support.recorder import CALLS, guardian_of, kill, ours, target_bytes
from tests.support.waiting import wait_for
from tracer.probes.kernel import CAPABILITIES, find_tracefs
from tracer.store.trace import Trace

COUNTER = """
import os
fd = os.open({path!r}, os.O_RDONLY | os.O_CREAT)
number = 0
while True:
    number += 1
    os.lseek(fd, number, 0)
"""


@pytest.fixture
def counter(tmp_path):
    """A process that makes calls with returns 1, 2, 3, ... until it is killed."""
    source = COUNTER.format(path=str(tmp_path / "empty"))
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        yield process
        process.kill()


@every_backend_of_calls
def test_sigkill_of_the_recorder_loses_nothing(
    recorder, counter, instances, tracer, tmp_path, backend
):
    """The guardian saves the events that the recorder had not written, and leaves nothing in the
    kernel."""
    process = recorder("--backend", backend, *CALLS, "-p", counter.pid)
    wait_for(lambda: target_bytes(tmp_path / "x.trace") > 400_000, "raw data of the target")
    kill(process)
    facts = tracer("info", "x.trace", "--json").json
    assert facts["complete"] is False
    assert facts["ended_by"] == "killed"
    assert ours(instances, process) == set()
    with Trace(tmp_path / "x.trace") as trace:
        calls = trace.connection.execute(
            "SELECT count(ret), max(ret) - min(ret) + 1 FROM syscalls WHERE name = 'lseek'"
        ).fetchone()
        lost = trace.connection.execute("SELECT coalesce(sum(count), 0) FROM loss").fetchone()[0]
    assert calls[0] > 1000
    # A page that had not filled may have been on its way to the file: then it is counted.
    assert 0 <= calls[1] - calls[0] <= lost < 500
    assert facts["loss"]["unknown"] == 0


@pytest.mark.parametrize(("backend", "scopes"), [("auto", 1), ("ftrace", 2)])
def test_sigkill_of_recorder_and_guardian_loses_no_page_that_was_written(
    recorder, loop, instances, tracer, tmp_path, backend, scopes
):
    process = recorder("--backend", backend, "-p", loop.pid)
    foreign = find_tracefs() / "instances" / f"foreign-{os.getpid()}"
    foreign.mkdir()
    try:
        wait_for(lambda: target_bytes(tmp_path / "x.trace") > 40960, "raw pages of the target")
        guardian_of(tmp_path / "x.trace").kill()
        kill(process)
        left = ours(instances, process)
        assert len(left) == scopes
        captured = target_bytes(tmp_path / "x.trace")

        facts = tracer("info", "x.trace", "--json").json
        assert facts["complete"] is False
        assert facts["ended_by"] == "killed"
        assert facts["loss"]["windows"] > 0
        # A call is an entry of 64 and an exit of 24 bytes, each with a header of 4.
        assert facts["tables"]["syscalls"]["rows"] > captured / 200

        cleaned = tracer("clean", "--json").json
        assert left <= set(cleaned["removed"])
        assert ours(instances, process) == set()
        assert foreign.exists()
    finally:
        foreign.rmdir()


def test_clean_leaves_a_running_recording_alone(recorder, loop, instances, tracer):
    process = recorder("-p", loop.pid)
    mine = ours(instances, process)
    assert len(mine) == 1
    cleaned = tracer("clean", "--json").json
    assert mine <= set(cleaned["kept"])
    assert not mine & set(cleaned["removed"])
    assert ours(instances, process) == mine
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_second_ctrl_c_aborts_and_what_was_captured_stays_readable(
    recorder, loop, instances, tracer, tmp_path
):
    process = recorder("-p", loop.pid)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    # The first ends the capture; while the tables are made the second one aborts.
    wait_for(lambda: not ours(instances, process), "the end of the capture")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (130, 0), err  # 0: the tables were quicker
    assert "Traceback" not in err
    facts = tracer("info", "x.trace", "--json").json
    assert facts["tables"]["syscalls"]["rows"] > 0


def test_files_are_the_users_alone(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "--", "true")
    for path in (tmp_path / "x.trace").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_name_that_is_no_utf8_can_be_recorded_and_read(tracer, tmp_path):
    import os

    program = os.fsencode(tmp_path) + b"/evil\n\x1b[31m[red]\xff"
    Path(os.fsdecode(program)).symlink_to("/bin/true")
    tracer("record", "--", program.decode("utf-8", "surrogateescape"), "\udcff")
    (trace,) = tmp_path.glob("*.trace")
    assert trace.name.isascii()
    for verb in ("info", "report"):
        assert "\x1b" not in tracer(verb, trace).out
        assert tracer(verb, trace, "--json").json["targets"][0]["pid"] > 0


def without_limit_of_arguments():
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_command_of_very_many_arguments_can_be_recorded_and_read(tracer):
    command = ["true", *["1"] * 260_000]
    tracer("record", "-o", "x.trace", "--", *command, before=without_limit_of_arguments)
    facts = tracer("info", "x.trace", "--json").json
    assert facts["command"][:3] == ["true", "1", "1"]
    assert facts["targets"][0]["name"] == "true"


def capabilities(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^CapEff:\s*(\w+)", status, re.MULTILINE)[1], 16)


def test_the_recorder_gives_up_what_it_does_not_need_and_its_command_keeps_all(recorder, tmp_path):
    process = recorder("--", "sleep", "60")
    from tracer.session.privileges import CAPTURE

    allowed = sum(1 << CAPABILITIES[name] for name in CAPTURE)
    assert capabilities(process.pid) == capabilities(os.getpid()) & allowed
    threads = [int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()]
    drains = [tid for tid in threads if os.getpriority(os.PRIO_PROCESS, tid) == -10]
    # Threads that libraries started as they were imported only wait.
    assert len(drains) == min(8, os.cpu_count())
    for tid in drains:
        assert capabilities(tid) & ~allowed == 0

    def commands() -> list[psutil.Process]:  # it is let go as the recorder says that it traces
        return [c for c in psutil.Process(process.pid).children() if c.name() == "sleep"]

    wait_for(commands, "the command", 10)
    (command,) = commands()
    assert capabilities(command.pid) == capabilities(os.getpid())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("backend", ["auto", "ftrace"])
def test_a_recorder_that_its_target_has_started_records_no_call_of_its_own(tmp_path, backend):
    record = f"{sys.executable} -m tracer record {' '.join(CALLS)} --backend {backend}"
    script = f"{record} -p $$ -d 1 -o x.trace & while kill -0 $!; do sleep 0.1; done; wait $!"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    with Trace(tmp_path / "x.trace") as trace:
        by_pid = dict(trace.rows("SELECT pid, count(*) FROM syscalls GROUP BY pid"))
        assert by_pid
        assert trace.manifest["recorder"]["pid"] not in by_pid
