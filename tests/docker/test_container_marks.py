"""Marks from a container: the phases have the host's pids, so that events can be joined to them."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

import tracer.phases
from tests.docker.conftest import WORDS, init_of
from tests.support.dockerd import python
from tests.support.recorder import guardian_of
from tests.support.waiting import wait_for
from tracer.phases import MARKS_ENV
from tracer.store.marks import NAMES
from tracer.store.trace import Trace

pytestmark = pytest.mark.settings

STEPS, CALLS = 23, 7

MARKING = f"""
sys.path.insert(0, "/shared")
import signal, threading
import phases
def work(name):
    for step in range({STEPS}):
        with phases.phase(name, step=step):
            for _ in range({CALLS}): os.getppid()
work("step")
thread = threading.Thread(target=work, args=("threaded",))
thread.start(); thread.join()
child = os.fork()
if child == 0:
    work("fetch")
    say(name + "-child-is-marked")
    time.sleep(1000)
phases.begin("train")
say(name + "-is-marked")
time.sleep(1000)
"""


BATCHES = 5

TRAIN = f"""
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn({BATCHES * 4}, 8), torch.randint(0, 2, ({BATCHES * 4},)))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=.01)
for x, y in DataLoader(data, batch_size=4, num_workers=2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""

TRAIN_ON = """
import time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=.01)
x, y = torch.randn(4, 8), torch.randint(0, 2, (4,))
with open("/shared/backwards", "w", buffering=1) as log:
    while True:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        began = time.monotonic_ns()
        loss.backward()
        log.write(f"{began} {time.monotonic_ns()}\\n")
        optimizer.step()
        time.sleep(0.002)
"""
"""Trains without end, and writes down when each backward began and ended."""


def make_phases(shared):
    """Makes a folder for marks, and a copy of tracer.phases alone."""
    if not (shared / "phases").exists():
        shutil.copytree(Path(tracer.phases.__file__).parent, shared / "phases")
        (shared / "marks").mkdir()


def container(start, shared, name):
    """Starts a container that marks into /shared/marks."""
    make_phases(shared)
    return start(name, MARKING, environment={MARKS_ENV: "/shared/marks"})


def test_phases_of_a_container_have_the_pids_of_the_host(start, shared, tell, record):
    box = container(start, shared, "a1")
    tell(None, "a1-is-up")
    init = init_of(box)
    recording = record("--container", "a1", "-e", "syscalls")
    tell("go", "a1-is-marked", "a1-child-is-marked")
    with recording.stop() as trace:
        query = 'SELECT name, pid, count(*), count("end") FROM phases GROUP BY ALL ORDER BY name'
        found = {row[0]: row[1:] for row in trace.connection.execute(query).fetchall()}
        calls = trace.connection.execute(
            "SELECT p.name, count(*) FROM phases p JOIN syscalls s ON s.pid = p.pid AND"
            " s.tid = p.tid AND s.ts BETWEEN p.start AND p.\"end\" WHERE s.name = 'getppid'"
            " GROUP BY ALL"
        ).fetchall()
    assert found["step"] == (init, STEPS, STEPS)
    assert found["threaded"] == (init, STEPS, STEPS)
    assert found["train"] == (init, 1, 0)
    assert found["fetch"][1:] == (STEPS, STEPS)
    assert found["fetch"][0] not in (init, None)
    assert dict(calls)["step"] == dict(calls)["fetch"] == STEPS * CALLS


def test_all_marks_of_a_killed_process_are_kept(start, shared, tell, record):
    box = container(start, shared, "a1")
    tell(None, "a1-is-up")
    init = init_of(box)
    recording = record("--container", "a1", "-e", "syscalls")
    tell("go", "a1-is-marked")
    box.kill(signal.SIGKILL)
    with recording.stop() as trace:
        query = "SELECT count(*) FROM phases WHERE name = 'step' AND pid = ?"
        assert trace.connection.execute(query, [init]).fetchone() == (STEPS,)
        query = "SELECT count(*), count(\"end\") FROM phases WHERE name = 'train'"
        assert trace.connection.execute(query).fetchone() == (1, 0)


def test_a_job_that_docker_exec_starts_has_its_marks(start, dockerd, shared, tell, record):
    make_phases(shared)
    box = start("a1", "time.sleep(1000)")
    tell("go", "a1-is-up")
    recording = record("--container", "a1", "-e", "syscalls")
    environment = f"{MARKS_ENV}=/shared/marks"
    job = ["env", environment, *python(WORDS + "name = 'exec'" + MARKING)]
    identity = dockerd.client.api.exec_create(box.id, job)["Id"]
    dockerd.client.api.exec_start(identity, detach=True)
    tell(None, "exec-is-marked", "exec-child-is-marked")
    pid = dockerd.client.api.exec_inspect(identity)["Pid"]
    with recording.stop() as trace:
        query = "SELECT name, pid, count(*) FROM phases GROUP BY ALL ORDER BY name"
        found = {row[0]: row[1:] for row in trace.rows(query)}
        assert not trace.rows("SELECT * FROM loss WHERE stream = 'marks'")
    assert found["step"] == found["threaded"] == (pid, STEPS)
    assert found["fetch"][1] == STEPS


def test_marks_of_an_awaited_container_stay_if_the_recorder_is_killed(start, shared, tell, record):
    recording = record("--container", "a1", "--wait", "--backend", "none")
    box = container(start, shared, "a1")
    tell("go", "a1-is-marked", "a1-child-is-marked")
    names = recording.folder / "raw/marks" / NAMES
    wait_for(lambda: names.exists() and names.read_bytes().count(b"\n") > 1, "their numbers")
    guardian = guardian_of(recording.folder)
    recording.process.kill()
    guardian.wait(30)
    with Trace(recording.folder) as trace:
        query = "SELECT name, pid, count(*) FROM phases GROUP BY ALL ORDER BY name"
        found = {row[0]: row[1:] for row in trace.rows(query)}
        assert not trace.rows("SELECT * FROM loss WHERE stream = 'marks'")
    init = init_of(box)
    assert found["step"] == found["threaded"] == (init, STEPS)
    assert found["fetch"][0] not in (init, None)
    assert found["fetch"][1] == STEPS


def test_two_containers_with_the_same_pids_are_told_apart(start, shared, tell, record):
    boxes = [container(start, shared, name) for name in ("a1", "b1")]
    tell(None, "a1-is-up", "b1-is-up")
    inits = sorted(map(init_of, boxes))
    recording = record("--container", "a1,b1", "-e", "syscalls")
    tell("go", "a1-is-marked", "b1-is-marked")
    with recording.stop() as trace:
        query = "SELECT pid, count(*) FROM phases WHERE name = 'step' GROUP BY pid ORDER BY pid"
        found = trace.connection.execute(query).fetchall()
    assert found == [(pid, STEPS) for pid in inits]


def test_an_untouched_script_in_a_container_marks_itself(start, shared, tell, record):
    """The container needs a copy of tracer/phases and two variables, as in the README."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    shutil.copytree(Path(tracer.phases.__file__).parent, shared / "phases")
    (shared / "marks").mkdir()
    (shared / "train.py").write_text(TRAIN)
    environment = {
        "PYTHONPATH": "/shared/phases/automatic/startup",
        MARKS_ENV: "/shared/marks",
    }
    run = [sys.executable, "/shared/train.py"]
    source = f"""
import subprocess
ended = subprocess.run({run})
say(name + "-" + str(ended.returncode))
time.sleep(1000)
"""
    start("a1", source, environment=environment, folders=[sys.prefix])
    tell(None, "a1-is-up")
    recording = record("--container", "a1", "-e", "syscalls")
    tell("go", "a1-0")
    with recording.stop() as trace:
        query = "SELECT name, source, count(*), count(DISTINCT pid) FROM phases GROUP BY ALL"
        found = {row[0]: row[1:] for row in trace.connection.execute(query).fetchall()}
        targets = trace.connection.execute(
            "SELECT count(*) FROM phases SEMI JOIN (FROM processes WHERE target = 'a1') USING (pid)"
        ).fetchone()
        whole = trace.connection.execute("SELECT count(*) FROM phases").fetchone()
        assert trace.manifest["unmarked"] == []
    assert found["step"] == ("inferred", BATCHES, 1)
    for name in ("forward", "backward", "optimizer"):
        assert found[name] == ("automatic", BATCHES, 1)
    assert found["fetch"] == ("automatic", 2 * BATCHES, 3)
    assert targets == whole


def test_each_backward_of_a_running_container_is_found_from_outside(start, shared, tell, record):
    """Nothing of ours is in the container: uprobes go into the PyTorch that it has mapped."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (shared / "train.py").write_text(TRAIN_ON)
    run = [sys.executable, "/shared/train.py"]
    start("a1", f"import subprocess; subprocess.run({run})", folders=[sys.prefix])
    tell("go", "a1-is-up")
    log = shared / "backwards"
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 5, "the training", 60)
    recording = record("--container", "a1", "-e", "torch_calls")
    known = log.read_text().count("\n")
    wait_for(lambda: log.read_text().count("\n") > known + 50, "more steps", 60)
    with recording.stop() as trace:
        assert trace.manifest["loss"]["events"] == 0
        query = (
            "SELECT start, \"end\" FROM phases SEMI JOIN (FROM processes WHERE target = 'a1')"
            " USING (pid) WHERE name = 'backward' AND source = 'uprobe' ORDER BY start"
        )
        found = trace.connection.execute(query).fetchall()
        (sources,) = trace.connection.execute(
            "SELECT list(DISTINCT source) FROM phases WHERE name IN ('backward', 'optimizer')"
        ).fetchone()
    assert sources == ["uprobe"]
    lines = [line.split() for line in log.read_text().splitlines()]
    said = [tuple(map(int, line)) for line in lines if len(line) == 2]
    first = next(n for n, (began, ended) in enumerate(said) if began < found[0][0] < ended)
    whole = [phase for phase in found if phase[1] is not None]
    assert len(whole) >= 50 and len(found) - len(whole) <= 1
    for (start_ns, end_ns), (began, ended) in zip(whole, said[first:], strict=False):
        assert began < start_ns < end_ns < ended
