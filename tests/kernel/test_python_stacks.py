"""Lines of Python code that threads wait in, of programs whose waits are known by construction."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import loads
from tracer.analysis.views.waiting.waits import waits

pytestmark = pytest.mark.quiet

WAIT_S = 1.5
LOAD = f"""
import os, subprocess, sys, threading, time, types

def sleep():
    time.sleep({WAIT_S})

def wait_for_lock():
    lock.acquire()

def read_pipe():
    os.read(pipe[0], 1)

def wait_in_library():
    condition = threading.Event()
    condition.wait({WAIT_S})

def nap():
    for _ in range(300): time.sleep(0.001)

def odd():
    time.sleep({WAIT_S})

name = "a;b\\nc (x.py:1)"
odd = types.FunctionType(odd.__code__.replace(co_name=name, co_qualname=name), globals())
lock = threading.Lock()
lock.acquire()
pipe = os.pipe()
others = [threading.Thread(target=each) for each in
          (sleep, wait_for_lock, read_pipe, wait_in_library, nap, odd)]
for thread in others: thread.start()
for _ in range(10): subprocess.run([sys.executable, "-S", "-E", "-c", ""])
if (child := os.fork()) == 0:
    sleep()
    os._exit(0)
time.sleep({WAIT_S})
lock.release()
os.write(pipe[1], b"x")
for thread in others: thread.join()
os.waitpid(child, 0)
"""
NAMES = {
    "time.sleep(": "sleep",
    "lock.acquire()": "wait_for_lock",
    "os.read(": "read_pipe",
    "condition.wait(": "wait_in_library",
}


def lines_of(path: Path) -> dict[str, str]:
    """The lines in which functions of the load wait, as `waits.line` names them, by function."""
    found = {}
    for number, text in enumerate(path.read_text().splitlines(), 1):
        for start, function in NAMES.items():
            if text.startswith("    " + start) and function not in found:
                found[function] = f"{function} ({path}:{number})"
    return found


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory):
    """The load, beside another Python program that belongs to no target."""
    folder = tmp_path_factory.mktemp("programs")
    other = subprocess.Popen([*loads.PYTHON, "-c", "import time; time.sleep(60)"])
    try:
        commands = {"load": loads.program(folder, "load", LOAD)}
        found = record_loads(commands, "--stacks")
        waits(found.trace)
        yield found, folder / "load.py", other.pid
    finally:
        other.kill()
        other.wait()


def test_each_long_wait_has_its_line(recorded):
    found, path, _ = recorded
    pid = found.pid("load")
    rows = found.rows(
        "SELECT pid = ?, tid = pid, line, count(*) FROM waits WHERE pid IN (SELECT unnest(?)) "
        f"AND dur_ns > {(WAIT_S - 0.3) * 1e9} AND kind != 'child' GROUP BY ALL",
        pid,
        found.pids("load"),
    )
    lines = lines_of(path)
    named = sorted((line, own, main, count) for own, main, line, count in rows)
    module = path.read_text().splitlines().index(f"time.sleep({WAIT_S})") + 1
    odd_line = path.read_text().splitlines().index("def odd():") + 2
    assert named == sorted(
        [
            (f"<module> ({path}:{module})", True, True, 1),
            (f"a\\x3bb\\x0ac \\x28x.py:1) ({path}:{odd_line})", True, False, 1),
            (lines["sleep"], False, True, 1),  # the child
            (lines["sleep"], True, False, 1),
            (lines["wait_for_lock"], True, False, 1),
            (lines["read_pipe"], True, False, 1),
            (lines["wait_in_library"], True, False, 1),
        ]
    )


def test_the_stack_leads_from_the_root_to_the_wait(recorded):
    found, path, _ = recorded
    lines = lines_of(path)
    [(stack,)] = found.rows(
        "SELECT DISTINCT stack FROM waits WHERE line = ?", lines["wait_in_library"]
    )
    functions = [function.partition(" ")[0] for function in stack.split(";")]
    assert functions == [
        *("Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run"),
        *("wait_in_library", "Event.wait", "Condition.wait"),
    ]


def test_only_looks_within_a_wait_count(recorded):
    """The same answer by comparing each wait with each look."""
    found, _, _ = recorded
    truth = found.rows(
        "SELECT o.tid, o.ts, min_by(p.stack, p.ts) FROM off_cpu o JOIN python_stacks p "
        "ON p.tid = o.tid AND p.ts >= o.ts AND p.until_ns <= o.ts + o.dur_ns GROUP BY ALL"
    )
    told = found.rows(
        "SELECT w.tid, o.ts, any_value(w.stack) FROM waits w JOIN off_cpu o ON w.tid = o.tid "
        "AND w.ts BETWEEN o.ts AND o.ts + o.dur_ns AND w.ts + w.dur_ns <= o.ts + o.dur_ns "
        "WHERE w.stack IS NOT NULL GROUP BY ALL"
    )
    assert sorted(told) == sorted(truth)
    assert len(told) > 7


def test_only_processes_of_targets_are_looked_at(recorded):
    found, _, other = recorded
    assert found.rows("SELECT * FROM python_stacks WHERE pid = ?", other) == []
    strangers = (
        "SELECT DISTINCT pid FROM python_stacks WHERE pid NOT IN "
        "(SELECT pid FROM processes WHERE target IS NOT NULL)"
    )
    assert found.rows(strangers) == []
    assert found.rows("SELECT * FROM loss WHERE stream = 'python_stacks'") == []


def test_folded_stacks_add_up_to_the_waits(recorded, tracer, tmp_path):
    found, path, _ = recorded
    tracer("export", found.trace.folder, "--format", "folded", "-o", tmp_path / "w.folded")
    stacks = {}
    for line in (tmp_path / "w.folded").read_text().splitlines():
        frames, _, us = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] = int(us)
    waited = found.one("SELECT sum(dur_ns) FROM waits WHERE dur_ns > 0") / 1000
    assert abs(sum(stacks.values()) - waited) <= len(found.rows("SELECT 1 FROM waits")) / 2
    locked = [us for frames, us in stacks.items() if lines_of(path)["wait_for_lock"] in frames]
    assert sum(locked) >= (WAIT_S - 0.3) * 1e6
    assert all(frames[-1].startswith("[") for frames in stacks)


def test_explain_names_the_line(tracer, tmp_path):
    """A training waits for a data set that sleeps in one function."""
    job = tmp_path / "job.py"
    job.write_text(
        "import time, torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 5\n"
        "    def fetch_slowly(self):\n"
        "        time.sleep(1)\n"
        "    def __getitem__(self, n):\n"
        "        self.fetch_slowly()\n"
        "        return torch.ones(4)\n"
        "model = torch.nn.Linear(4, 1)\n"
        "steps = torch.optim.SGD(model.parameters())\n"
        "steps.zero_grad()\n"  # it imports what the first step would
        "for batch in torch.utils.data.DataLoader(Data(), num_workers=1):\n"
        "    model(batch).sum().backward()\n"
        "    steps.step()\n"
    )
    tracer("record", "--stacks", "-o", "x.trace", "--", sys.executable, job)
    told = json.loads(tracer("explain", "x.trace", "--by", "line", "--json").out)
    first = told["parts"][0]
    assert (first["kind"], first["line"]) == ("timer", f"Data.fetch_slowly ({job}:5)")
    assert first["share"] > 0.5
    tracer("explain", "x.trace", "--html", "x.html")
    assert "Where the steps waited" in (tmp_path / "x.html").read_text()


def test_a_recording_names_the_kinds_of_its_stacks(recorded):
    found, _, _ = recorded
    assert found.trace.manifest["stacks"] == {"kinds": ["kernel", "python"], "missing": {}}
