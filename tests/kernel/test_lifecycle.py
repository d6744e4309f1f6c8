"""A recording starts, ends, is killed, and leaves nothing in the kernel."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import tracer_command
from tests.support.backends import every_backend
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.probes.kernel import CAPABILITIES, find_tracefs, process_start_time
from tracer.store.trace import Trace

CALLS = ("-e", "syscalls")
"""Options for tests that need no other table: making all tables takes a second."""
OURS = re.compile(r"^tracer-(\d+)-")


@pytest.fixture
def loop():
    """A process that makes calls until it is killed."""
    source = "import os, time\nwhile True:\n    os.getppid()\n    time.sleep(0.001)\n"
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        yield process
        process.kill()


@pytest.fixture
def recorder(tmp_path, instances):
    """Start `tracer record` in the background; returns it once it traces."""
    started = []

    def start(*arguments, output="x.trace"):
        process = Tracer("record", "-o", output, *arguments, cwd=tmp_path)
        started.append(process)
        raw = tmp_path / output / "raw"
        wait_for(
            lambda: process.poll() is not None or (raw / "threads.json").exists(), "the recording"
        )
        assert process.poll() is None, process.communicate()
        if not {"ebpf", "perf"} & {*arguments}:
            assert len(ours(instances, process)) == 2
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def guardian_of(folder):
    pid, _ = json.loads((folder / "manifest.json").read_bytes())["recorder"]["guardian"]
    return psutil.Process(pid)


def ours(instances, process):
    return {n for n in instances() if (m := OURS.match(n)) and int(m[1]) == process.pid}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_of_a_process(recorder, loop, instances, tmp_path, number):
    process = recorder("-p", loop.pid)
    wait_for_rounds(loop.pid, 200)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert out == ""
    assert ours(instances, process) == set()
    assert loop.poll() is None
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["complete"] is True
        assert trace.manifest["ended_by"] == "signal"
        calls = trace.connection.execute(
            "SELECT count(*), count(DISTINCT pid), min(pid) FROM syscalls WHERE name = 'getppid'"
        ).fetchone()
    assert calls[0] > 100
    assert calls[1:] == (1, loop.pid)


def test_a_recording_ends_with_its_target(recorder, tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as target:
        process = recorder("-p", target.pid)
        target.stdin.close()
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "target"


def test_a_duration_ends_the_recording_and_the_command(tracer, tmp_path, instances):
    tracer("record", *CALLS, "-o", "x.trace", "-d", "0.5", "--", "sleep", "61", status=0)
    with Trace(tmp_path / "x.trace") as trace:
        recorder = trace.manifest["recorder"]["pid"]
        assert not [name for name in instances() if name.startswith(f"tracer-{recorder}-")]
        target = trace.manifest["targets"][0]["pid"]
        assert process_start_time(target) is None
        assert trace.manifest["ended_by"] == "duration"
        assert trace.manifest["duration_s"] >= 0.5


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 7", 7), ("exit 0", 0), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_the_commands_status_is_passed_on(tracer, command, status):
    tracer("record", *CALLS, "-o", "x.trace", "--", "sh", "-c", command, status=status)


def test_the_commands_output_is_its_own(tracer):
    command = ("sh", "-c", "echo to out; echo to err >&2")
    ran = tracer("record", *CALLS, "-o", "x.trace", "--", *command)
    assert ran.out == "to out\n"
    assert "to err\n" in ran.err
    assert "See it: tracer report x.trace" in ran.err
    quiet = tracer("record", *CALLS, "-o", "y.trace", "--quiet", "--", *command)
    assert (quiet.out, quiet.err) == ("to out\n", "to err\n")


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


def target_bytes(folder):
    return sum(path.stat().st_size for path in folder.glob("raw/*-target*.raw"))


def kill(process):
    process.kill()
    process.communicate()


@every_backend
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


def test_sigkill_of_recorder_and_guardian_loses_no_page_that_was_written(
    recorder, loop, instances, tracer, tmp_path
):
    process = recorder("-p", loop.pid)
    foreign = find_tracefs() / "instances" / f"foreign-{os.getpid()}"
    foreign.mkdir()
    try:
        wait_for(lambda: target_bytes(tmp_path / "x.trace") > 40960, "raw pages of the target")
        guardian_of(tmp_path / "x.trace").kill()
        kill(process)
        left = ours(instances, process)
        assert len(left) == 2
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


def test_a_recording_ends_well_without_its_guardian(recorder, loop, instances, tmp_path):
    process = recorder("-p", loop.pid)
    guardian_of(tmp_path / "x.trace").kill()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert ours(instances, process) == set()


def test_clean_leaves_a_running_recording_alone(recorder, loop, instances, tracer):
    process = recorder("-p", loop.pid)
    mine = ours(instances, process)
    assert len(mine) == 2
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


def test_the_size_limit_ends_the_recording_and_lets_the_command_go_on(tracer, load, tmp_path):
    source = "import os\nfor _ in range(200003): os.getppid()\nprint('done')"
    ran = tracer("record", "-o", "x.trace", "--max-size", "256K", "--", *load(source))
    assert ran.out == "done\n"
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "size"
        raw = sum(p.stat().st_size for p in (tmp_path / "x.trace/raw").glob("*.raw"))
    assert raw < 4 << 20


def test_a_full_disk_is_said_and_what_was_captured_is_kept(tracer, load, file_system):
    mount, _ = file_system(8)
    source = "import os\nfor _ in range(400009): os.getppid()\nprint('done')"
    ran = tracer("record", "-o", mount / "x.trace", "--", *load(source), status=1)
    assert ran.out == "done\n"  # the job is not to blame
    assert "full" in ran.err
    assert "the captured data is kept" in ran.err
    (mount / "x.trace/raw/ftrace-target-cpu0.raw").stat()


def test_files_are_the_users_alone(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "--", "true")
    for path in (tmp_path / "x.trace").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_an_existing_trace_is_replaced_only_by_force(tracer, tmp_path):
    command = ("record", *CALLS, "-o", "x.trace", "--", "true")
    tracer(*command)
    before = (tmp_path / "x.trace/manifest.json").read_bytes()
    ran = tracer(*command, status=2)
    assert "x.trace exists" in ran.err
    assert "--force" in ran.err
    assert (tmp_path / "x.trace/manifest.json").read_bytes() == before
    tracer("record", "--force", *command[1:])
    assert (tmp_path / "x.trace/manifest.json").read_bytes() != before


def test_threads_that_come_and_go_while_it_attaches(tracer, tmp_path):
    source = (
        "import threading, time\n"
        "def work(): time.sleep(0.001)\n"
        "while True:\n"
        "    threads = [threading.Thread(target=work) for _ in range(5)]\n"
        "    for t in threads: t.start()\n"
        "    for t in threads: t.join()\n"
    )
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        try:
            tracer("record", "-o", "x.trace", "-d", "0.3", "-p", process.pid)
        finally:
            process.kill()
    with Trace(tmp_path / "x.trace") as trace:
        found = trace.connection.execute(
            "SELECT count(DISTINCT pid), any_value(pid), count(DISTINCT tid) FROM syscalls"
        ).fetchone()
    assert found[:2] == (1, process.pid)
    assert found[2] > 23


def test_a_signal_that_the_shell_ignores_stays_ignored(tracer, tmp_path):
    """nohup tracer record -- job: neither of them dies of the hangup."""
    status = tmp_path / "status"
    script = (
        f"trap '' HUP INT; exec {' '.join(map(shlex.quote, tracer_command()))} record "
        f"-e syscalls -o x.trace -- grep SigIgn /proc/self/status > {status}"
    )
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    ignored = int(status.read_text().split()[1], 16)
    for number in (signal.SIGHUP, signal.SIGINT):
        assert ignored & 1 << (number - 1)
    assert not ignored & 1 << (signal.SIGTERM - 1)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_a_signal_to_a_recorder_that_is_done_reaches_the_job_once(tmp_path):
    """After --max-size the job runs on; what the recorder is sent meanwhile is passed on."""
    job = (
        "import os, signal, time\n"
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: got.append(1))\n"
        "for _ in range(100003): os.getppid()\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print(len(got), flush=True)\n"
    )
    command = tracer_command(
        "record", *CALLS, "-o", "x.trace", "--max-size", "64K", "--", sys.executable, "-c", job
    )
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        wait_for(lambda: (tmp_path / "x.trace/events").exists(), "the tables")
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "1\n"
    assert process.returncode == 0


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


def test_closed_standard_streams(tmp_path):
    command = ("record", *CALLS, "-o", "x.trace", "--", "true")
    script = " ".join(map(shlex.quote, tracer_command(*command)))
    subprocess.run(["sh", "-c", f"exec {script} <&- >&- 2>&-"], cwd=tmp_path, check=True)
    assert Trace(tmp_path / "x.trace").manifest["complete"] is True


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
