"""Marks out of a container: the phases have this machine's pids, so that costs can be told."""

import shutil
import signal
from pathlib import Path

import tracer.phases
from tests.docker.conftest import init_of
from tracer.phases import MARKS_ENV

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


def container(start, shared, name):
    """A container that marks into /shared/marks, by a copy of nothing but tracer.phases."""
    if not (shared / "phases").exists():
        shutil.copytree(Path(tracer.phases.__file__).parent, shared / "phases")
        (shared / "marks").mkdir()
    return start(name, MARKING, environment={MARKS_ENV: "/shared/marks"})


def test_phases_of_a_container_are_of_its_processes_here(start, shared, tell, record):
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


def test_marks_of_a_killed_process_are_there_up_to_the_last(start, shared, tell, record):
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
