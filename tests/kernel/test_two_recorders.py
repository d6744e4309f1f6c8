"""Two recorders at once, of one target or of two: each counts all, and removes only its own."""

import signal
import subprocess

import pytest

from tests.support.loads import program
from tests.support.losses import losses
from tests.support.recorder import ours
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.store.trace import Trace

FIRST, SECOND, FAULTS = 9973, 7919, 1009

LOAD = """
import mmap, os, resource, sys, time
def wait_for(word):
    while not os.path.exists(word): time.sleep(0.005)
def say(word): os.close(os.open(word, os.O_CREAT | os.O_WRONLY))
name, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wait_for("go")
for _ in range(first): os.times()
area = mmap.mmap(-1, 4096 * {faults}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.madvise(mmap.MADV_NOHUGEPAGE)
def now(): return time.monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
began = now()
began = now()
for page in range({faults}): area[page * 4096] = 1
ended = now()
with open(name + "-faults", "w") as file: print(began[0], ended[0], ended[1] - began[1], file=file)
say(name + "-half")
wait_for("on")
for _ in range(second): os.times()
"""

BACKENDS = [
    ("auto", "auto"), ("ftrace", "ftrace"), ("ebpf", "ebpf"), ("perf", "perf"), ("auto", "ebpf"),
    ("auto", "ftrace"), ("ftrace", "perf"),
]  # fmt: skip


@pytest.fixture
def target(tmp_path):
    """Starts a process that makes calls when it is told to: `target(NAME, FIRST, SECOND)`."""
    started = []

    def start(name, first, second):
        command = program(tmp_path, name, LOAD.format(faults=FAULTS))
        started.append(subprocess.Popen([*command, name, str(first), str(second)], cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def recorders(tmp_path):
    """Starts recorders that trace: `recorders(NAME, OPTIONS...)`."""
    started = []

    def start(name, *options):
        process = Tracer("record", "-o", f"{name}.trace", *options, cwd=tmp_path)
        started.append(process)
        first = process.stderr.readline()
        assert first.startswith("Tracing "), first + process.stderr.read()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process):
    """Ends a recorder by SIGTERM, if its target has not ended it."""
    process.send_signal(signal.SIGTERM)
    ended(process)


def ended(process):
    """Waits for the end of a recorder."""
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def counted(path, job):
    """Returns the calls of a trace by process. It has lost nothing, and has the job's faults."""
    begin, end, faults = map(int, path.with_name(f"{job}-faults").read_text().split())
    assert faults >= FAULTS
    with Trace(path) as trace:
        assert losses(trace) == []
        found = trace.rows(
            "SELECT count(*) FROM page_faults WHERE kind = 'minor'"
            f" AND ts BETWEEN {begin} AND {end}"
        )
        assert found == [(faults,)]
        return dict(
            trace.rows("SELECT pid, count(*) FROM syscalls WHERE name = 'times' GROUP BY pid")
        )


@pytest.mark.parametrize("backends", BACKENDS, ids=" and ".join)
def test_two_recorders_of_one_target_count_the_same(
    target, recorders, instances, tmp_path, backends
):
    """The first one ends while the second one goes on."""
    job = target("job", FIRST, SECOND)
    one, two = (
        recorders(name, "--backend", backend, "-p", job.pid)
        for name, backend in zip(("one", "two"), backends, strict=True)
    )
    theirs = ours(instances, two)
    (tmp_path / "go").touch()
    wait_for((tmp_path / "job-half").exists, "the first calls")
    end(one)
    assert ours(instances, one) == set()
    assert ours(instances, two) == theirs
    (tmp_path / "on").touch()
    assert job.wait() == 0
    ended(two)
    assert ours(instances, two) == set()
    assert counted(tmp_path / "one.trace", "job") == {job.pid: FIRST}
    assert counted(tmp_path / "two.trace", "job") == {job.pid: FIRST + SECOND}


@pytest.mark.parametrize("backends", BACKENDS, ids=" and ".join)
def test_recorders_of_two_targets_count_each_its_own(
    target, recorders, instances, tmp_path, backends
):
    jobs = {name: target(name, FIRST + n, SECOND + n) for n, name in enumerate(("one", "two"))}
    started = {
        name: recorders(name, "--backend", backend, "-p", jobs[name].pid)
        for name, backend in zip(jobs, backends, strict=True)
    }
    (tmp_path / "go").touch()
    for name in jobs:
        wait_for((tmp_path / f"{name}-half").exists, name)
    (tmp_path / "on").touch()
    for n, (name, job) in enumerate(jobs.items()):
        assert job.wait() == 0
        ended(started[name])
        assert ours(instances, started[name]) == set()
        calls = counted(tmp_path / f"{name}.trace", name)
        assert calls == {job.pid: FIRST + SECOND + 2 * n}


def test_a_killed_recorder_beside_another_one_is_cleaned_up_alone(
    target, recorders, instances, tracer, tmp_path
):
    """The second recorder starts, counts and ends, as if the first one had not been killed."""
    job = target("job", FIRST, SECOND)
    one = recorders("one", "--backend", "ftrace", "-e", "syscalls", "-p", job.pid)
    two = recorders("two", "--backend", "ftrace", "-e", "syscalls", "-p", job.pid)
    theirs = ours(instances, two)
    (tmp_path / "go").touch()
    wait_for((tmp_path / "job-half").exists, "the first calls")
    one.kill()
    one.communicate()
    cleaned = tracer("clean", "--json").json
    assert theirs <= set(cleaned["kept"])
    assert ours(instances, one) == set()
    assert ours(instances, two) == theirs
    (tmp_path / "on").touch()
    assert job.wait() == 0
    ended(two)
    assert ours(instances, two) == set()
    for name, calls in (("one", FIRST), ("two", FIRST + SECOND)):
        with Trace(tmp_path / f"{name}.trace") as trace:
            found = trace.rows("SELECT count(*) FROM syscalls WHERE name = 'times'")
        assert found == [(calls,)]
