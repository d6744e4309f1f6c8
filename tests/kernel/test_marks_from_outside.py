"""A process that never heard of us: its backward by uprobes, exactly; the rest inferred."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.backends import every_backend
from tests.support.loads import finished
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.phases import MARKS_ENV
from tracer.probes.backends.uprobes import events
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.settings

JOB = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(56, 1, 28, 28), torch.randint(0, 10, (56,)))
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=.01)
with open(sys.argv[1], "w", buffering=1) as log:
    while True:
        for x, y in DataLoader(data, batch_size=8):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            began = time.monotonic_ns()
            loss.backward()
            ended = time.monotonic_ns()
            if os.path.exists(sys.argv[2]):
                try: loss.backward()
                except RuntimeError: pass
            optimizer.step()
            log.write(f"{began} {ended}\\n")
            time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start a training without end, which writes down when each backward began and ended.

    Where there is a file of the third name, each step also raises an exception out of the engine.
    """
    started = []

    def run(**environment):
        folder = tmp_path_factory.mktemp("job")
        program, log, fails = (folder / name for name in ("job.py", "log", "fails"))
        program.write_text(JOB)
        process = subprocess.Popen(
            [sys.executable, program, log, fails], env={**os.environ, **environment}
        )
        started.append(process)
        wait_for(lambda: log.exists() and log.read_text().count("\n") > 5, "the training", 60)
        return process, log, fails

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def job(start):
    """One training for all tests that only look at it."""
    return start()


@pytest.fixture(scope="module")
def recorded(job, tmp_path_factory, backend):
    """A second of it."""
    folder = tmp_path_factory.mktemp("recorded")
    options = ("--backend", backend, "-e", "torch_calls", "-d", "1.5", "-p", job[0].pid)
    ran = finished(("record", "-o", "x.trace", *options), folder)
    assert ran.status == 0, ran.err
    with Trace(folder / "x.trace") as trace:
        yield trace


def backwards(log):
    lines = [line.split() for line in log.read_text().splitlines()]
    return [tuple(map(int, line)) for line in lines if len(line) == 2]


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


@every_backend
def test_every_backward_of_the_attached_time_is_there(job, recorded):
    query = "SELECT start, \"end\" FROM phases WHERE name = 'backward' ORDER BY start"
    found = rows(recorded, query)
    if found[-1][1] is None:  # the recording ended in the midst of it
        found.pop()
    sources = dict(rows(recorded, "SELECT name, any_value(source) FROM phases GROUP BY name"))
    assert recorded.manifest["loss"]["events"] == 0
    begin, end = found[0][0] - 1e8, found[-1][0] + 1e8
    said = [b for b in backwards(job[1]) if begin < b[0] and b[1] < end]
    first = next(n for n, (began, ended) in enumerate(said) if began < found[0][0] < ended)
    assert len(found) > 100
    for (start, end), (began, ended) in zip(found, said[first:], strict=False):
        assert began < start < end < ended
    assert len(said[first:]) >= len(found)
    assert sources == {
        "train": "inferred", "step": "inferred", "forward": "inferred",
        "fetch": "uprobe", "backward": "uprobe", "optimizer": "uprobe",
    }  # fmt: skip


@every_backend
def test_each_step_has_one_of_each_part(recorded):
    query = (
        "SELECT step, list(name ORDER BY start) FROM phases WHERE step IS NOT NULL"
        " AND name != 'fetch' GROUP BY step ORDER BY step"
    )
    found = rows(recorded, query)
    whole = ["step", "forward", "backward", "optimizer"]
    # The first and the last may have begun or ended while nobody looked.
    assert [names for _, names in found[1:-1]] == [whole] * (len(found) - 2)
    assert [step for step, _ in found] == list(range(len(found)))


@every_backend
def test_nothing_is_left_of_the_uprobes(recorded):
    assert recorded.manifest["complete"]
    assert list(events.ours()) == []


@pytest.fixture
def failing(job):
    """The training while an exception leaves the engine in each step."""
    process, log, fails = job
    known = len(backwards(log))
    fails.touch()
    try:
        wait_for(lambda: len(backwards(log)) > known + 1, "the next step", 30)
        yield process, log
    finally:
        fails.unlink()


def test_an_exception_out_of_the_engine_does_not_end_the_job(failing, tracer, tmp_path):
    """A uretprobe would: nothing is unwound through the kernel's trampoline."""
    process, log = failing
    tracer("record", "-e", "torch_calls", "-d", "0.5", "-o", "x.trace", "-p", process.pid)
    before = len(backwards(log))
    wait_for(lambda: len(backwards(log)) > before + 5, "more steps", 30)
    assert process.poll() is None
    with Trace(tmp_path / "x.trace") as trace:
        found = rows(trace, "SELECT start FROM phases WHERE name = 'optimizer' ORDER BY start")
    (first,), (last,) = found[0], found[-1]
    # Every step but the first has its backward after the first optimizer.
    assert len([began for began, _ in backwards(log) if first < began < last]) == len(found) - 1 > 0


def test_without_uprobes_the_rest_is_recorded_and_that_is_said(job, hidden, tmp_path):
    process, *_ = job
    file = find_tracefs() / "uprobe_events"
    read_only = [f"mount --bind {file} {file}", f"mount -o remount,bind,ro {file}"]
    ran = hidden(read_only, "record", "-d", "0.5", "-o", "x.trace", "-p", process.pid)
    assert ran.status == 0, ran.err
    with Trace(tmp_path / "x.trace") as trace:
        (why,) = trace.manifest["capture"]["missing"]["torch_calls"]
        assert "uprobe" in why
        assert trace.manifest["tables"]["syscalls"]["rows"] > 0
        assert rows(trace, "SELECT count(*) FROM phases") == [(0,)]
    assert hidden(["true"], "info", "x.trace").out.count("torch_calls: an uprobe could not") == 1


def test_the_guardian_removes_the_probes_of_a_killed_recorder(job, tmp_path):
    process, log, _ = job
    options = ("-e", "torch_calls", "-o", tmp_path / "x.trace", "-p", process.pid)
    with Tracer("record", *options) as recorder:
        assert "Tracing" in recorder.stderr.readline()
        assert [group.owner for group in events.ours()] == [recorder.pid]
        enough = len(backwards(log)) + 13
        wait_for(lambda: len(backwards(log)) >= enough, "more steps")
        recorder.kill()
    wait_for(lambda: not list(events.ours()), "the guardian", 20)
    with Trace(tmp_path / "x.trace") as trace:
        assert rows(trace, "SELECT count(*) > 10 FROM phases WHERE name = 'backward'") == [(True,)]


def define(listed, line):
    fd = os.open(listed, os.O_WRONLY | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)


def test_clean_removes_those_of_the_dead_and_no_others(tracer):
    listed = find_tracefs() / "uprobe_events"
    places = {"tracer_4194304_1": True, "theirs": False}
    binary = os.path.realpath("/bin/true")
    for group in places:
        define(listed, f"p:{group}/here {binary}:0x1000")
    try:
        tracer("clean")
        left = listed.read_text()
        assert {group: group not in left for group in places} == places
    finally:
        define(listed, "-:theirs/here")


def test_a_process_that_does_not_run_pytorch_has_none(tracer, tmp_path):
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            tracer("record", "-d", "0.2", "-o", "x.trace", "-p", process.pid)
        finally:
            process.send_signal(signal.SIGKILL)
    with Trace(tmp_path / "x.trace") as trace:
        assert "torch_calls" not in trace.tables


def test_a_process_that_marks_for_itself_is_not_looked_into_unasked(start, tracer, tmp_path):
    (tmp_path / "marks").mkdir()
    process, *_ = start(**{MARKS_ENV: str(tmp_path / "marks")})
    for options, found in (((), False), (("-e", "torch_calls"), True)):
        folder = tmp_path / f"{found}.trace"
        tracer("record", *options, "-d", "0.3", "-o", folder, "-p", process.pid)
        with Trace(folder) as trace:
            assert ("torch_calls" in trace.tables) is found
