"""A recording of system calls begins and ends, and leaves nothing in the kernel."""

import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, tracer_command
from tests.support.recorder import CALLS, guardian_of, ours
from tests.support.waiting import wait_for, wait_for_rounds
from tracer.probes.kernel import process_start_time
from tracer.store.trace import Trace


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_of_a_process(recorder, loop, instances, tmp_path, number):
    process = recorder(*CALLS, "-p", loop.pid)
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
        process = recorder(*CALLS, "-p", target.pid)
        target.stdin.close()
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "target"


def test_options_of_targets_and_probes_are_repeated(tracer, tmp_path):
    sleeping = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    one, two, three = (process.pid for process in sleeping)
    try:
        given = ("-p", f"{one},{two}", "-p", three, "-e", "syscalls,dirty", "-e", "sched")
        tracer("record", "-o", tmp_path / "x.trace", *given, "-d", "0.2")
    finally:
        for process in sleeping:
            process.kill()
            process.wait()
    with Trace(tmp_path / "x.trace") as trace:
        assert [target["pid"] for target in trace.manifest["targets"]] == [one, two, three]
        assert {"syscalls", "dirty", "off_cpu"} <= set(trace.tables)
        assert "block" not in trace.tables


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


@pytest.mark.parametrize("options", [CALLS, ("--backend", "none")], ids=["events", "none"])
@pytest.mark.parametrize(
    ("script", "said"), [("echo", "Exec format error"), ("#!/gone\n", "No such file or directory")]
)
def test_a_command_that_cannot_be_run_leaves_no_trace(tracer, tmp_path, options, script, said):
    program = tmp_path / "job"
    program.write_text(script)
    program.chmod(0o755)
    ran = tracer("record", *options, "-o", "x.trace", "--", program, status=2)
    assert f"{program} could not be run: {said}" in ran.err
    assert list(tmp_path.iterdir()) == [program]


def test_the_commands_output_is_its_own(tracer):
    command = ("sh", "-c", "echo to out; echo to err >&2")
    ran = tracer("record", *CALLS, "-o", "x.trace", "--", *command)
    assert ran.out == "to out\n"
    assert "to err\n" in ran.err
    assert "See it: tracer report x.trace" in ran.err
    quiet = tracer("record", *CALLS, "-o", "y.trace", "--quiet", "--", *command)
    assert (quiet.out, quiet.err) == ("to out\n", "to err\n")


def test_a_recording_ends_well_without_its_guardian(recorder, loop, instances, tmp_path):
    process = recorder(*CALLS, "-p", loop.pid)
    guardian_of(tmp_path / "x.trace").kill()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert ours(instances, process) == set()


def test_the_size_limit_ends_the_recording_and_lets_the_command_go_on(tracer, load, tmp_path):
    source = "import os\nfor _ in range(200003): os.getppid()\nprint('done')"
    ran = tracer("record", *CALLS, "-o", "x.trace", "--max-size", "256K", "--", *load(source))
    assert ran.out == "done\n"
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "size"
        raw = sum(p.stat().st_size for p in (tmp_path / "x.trace/raw").glob("*.raw"))
    assert raw < 4 << 20


def test_a_full_disk_is_said_and_what_was_captured_is_kept(tracer, load, file_system):
    mount, _ = file_system(8)
    source = (
        "import os\n"
        f"with open('{mount}/fill', 'wb', buffering=0) as fill:\n"
        "    try:\n"
        "        while fill.write(bytes(4096)): pass\n"
        "    except OSError: pass\n"
        "for _ in range(400009): os.getppid()\n"
        "print('done')\n"
    )
    ran = tracer("record", *CALLS, "-o", mount / "x.trace", "--", *load(source), status=1)
    assert ran.out == "done\n"  # the job is not to blame
    assert "full" in ran.err
    assert "the captured data is kept" in ran.err
    (mount / "x.trace/raw/programs-target-cpu0.raw").stat()


def test_a_recording_ends_while_the_disk_has_some_space_for_others(tracer, load, file_system):
    mount, _ = file_system(64)
    manifest, left = mount / "x.trace/manifest.json", 1 << 20
    source = (
        "import json, os, time\n"
        "for _ in range(1000): os.getppid()\n"
        f"room = os.statvfs('{mount}')\n"
        f"with open('{mount}/fill', 'wb') as fill:\n"
        f"    size = room.f_bavail * room.f_frsize - {left}\n"
        "    os.posix_fallocate(fill.fileno(), 0, size)\n"
        "until = time.monotonic() + 60\n"
        f"while json.load(open('{manifest}'))['ended_by'] is None and time.monotonic() < until:\n"
        "    time.sleep(0.05)\n"
        "print('done')\n"
    )
    ran = tracer("record", *CALLS, "-q", "-o", mount / "x.trace", "--", *load(source))
    assert ran.out == "done\n"
    assert "its disk has little space left" in ran.err
    with Trace(mount / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "space"
        assert trace.manifest["complete"]
        assert trace.connection.execute("SELECT count(*) FROM loss").fetchone() == (0,)
        assert trace.connection.execute("SELECT count(*) FROM syscalls").fetchone()[0] > 1000


@pytest.mark.parametrize("verb", ["unpack", "import"])
def test_a_recording_is_not_replaced_while_it_runs(tracer, recorder, loop, tmp_path, verb):
    tracer("pack", ROOT / "fixtures/lenet.trace", "-o", "other.tar.zst")
    other = ROOT / "fixtures/exchange/load.blkparse.txt"
    process = recorder(*CALLS, "-p", loop.pid)
    wait_for_rounds(loop.pid, 200)
    source = "other.tar.zst" if verb == "unpack" else other
    ran = tracer(verb, source, "-o", "x.trace", "--force", status=2)
    assert f"is still being recorded by process {process.pid}" in ran.err
    assert f"kill {process.pid}" in ran.err
    process.terminate()  # as `kill` does
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "signal"


@pytest.mark.parametrize("backend", ["ftrace", "ebpf", "perf"])
def test_buffers_that_take_most_of_the_memory_are_refused(tracer, tmp_path, backend):
    command = ("record", *CALLS, "--backend", backend, "-o", "x.trace", "--", "touch", "ran")
    ran = tracer(*command[:1], "-b", "64G", *command[1:], status=2)
    assert "64.0 GiB takes" in ran.err
    assert "give " in ran.err
    assert not (tmp_path / "x.trace").exists()
    assert not (tmp_path / "ran").exists()


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


@pytest.mark.parametrize("backend", ["auto", "ftrace", "ebpf", "perf"])
def test_threads_that_come_and_go_as_it_attaches_and_ends_are_known(tracer, tmp_path, backend):
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
            options = (*CALLS, "--backend", backend, "-o", "x.trace", "-d", "0.3")
            tracer("record", *options, "-p", process.pid)
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


def test_closed_standard_streams(tmp_path):
    command = ("record", *CALLS, "-o", "x.trace", "--", "true")
    script = " ".join(map(shlex.quote, tracer_command(*command)))
    subprocess.run(["sh", "-c", f"exec {script} <&- >&- 2>&-"], cwd=tmp_path, check=True)
    assert Trace(tmp_path / "x.trace").manifest["complete"] is True
