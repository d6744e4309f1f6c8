"""Marks from a container: the phases have the host's pids, so that events can be joined to them."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

import tracer.phases
from tests.docker.conftest import init_of
from tracer.phases import MARKS_ENV

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


def container(start, shared, name):
    """Starts a container that marks into /shared/marks, with a copy of tracer.phases alone."""
    if not (shared / "phases").exists():
        shutil.copytree(Path(tracer.phases.__file__).parent, shared / "phases")
        (shared / "marks").mkdir()
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
