"""Waits for a GPU: in a library in the place of CUDA's driver, and on a GPU, if there is one.

Loads plant waits of known lengths, in which a thread spins or sleeps.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import run_tracer
from tests.support.binaries import needs_binutils
from tests.support.gpu import make_driver
from tests.support.loads import PYTHON
from tests.support.planted import CHARGED, assert_charged, during, load, windows
from tests.support.recorder import record_until
from tests.support.waiting import wait_for
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.gpu_waits import gpu_waits
from tracer.analysis.views.waiting.steps import steps
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

pytestmark = [pytest.mark.quiet, needs_binutils]

SIZES = (100, 150, 200)

CALLS = """
driver = ctypes.CDLL("libcuda.so.1")

def call(name, ms):
    getattr(driver, name)(ctypes.c_int64(ms * 10**6))
"""


# The first use of a function takes time: it is found in the library, and its page is read.
FOUND = """
{CALLS}
ctypes.string_at(ctypes.cast(driver.{name}, ctypes.c_void_p), 1)
"""


def planted(name: str) -> str:
    waits = f'[*(lambda ms=ms: call("{name}", ms) for ms in {SIZES}), nothing]'
    return load(f"{FOUND.format(CALLS=CALLS, name=name)}\nsteps({waits})")


MOSTLY_SLEEPS = load(f"""
{CALLS}
steps([lambda: call("cuEventSynchronize", 700)] * 3)
""")
"""The waits are the longest part of a step, however slowly a busy machine computes the rest."""


BESIDE = load(f"""
{CALLS}
def beside():
    for ms in {SIZES}: call("cuStreamSynchronize", ms)

def busy():
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()

steps([busy, nothing])
""")
"""The step waits for a thread that waits for the GPU."""

ATTACHED = f"""
import ctypes, os
{CALLS}
while True:
    call("cuEventSynchronize", 10)
    os.write(1, b"x")
"""

UNENDED = load(f"""
{CALLS}
steps([nothing])
if os.fork() == 0:
    threading.Timer(0.2, lambda: os._exit(0)).start()
    driver.cuCtxSynchronize()
os.wait()
""")

LOADS = {
    "spins": planted("cuStreamSynchronize"),
    "sleeps": planted("cuEventSynchronize"),
    "both": planted("cuMemcpyDtoH_v2"),
    "launches": planted("cuLaunchKernel"),
    "beside": BESIDE,
    "unended": UNENDED,
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of the library, which loads find by LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("driver")
    make_driver(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        yield folder


@pytest.fixture(scope="module")
def recorded(driver, record_loads):
    found = record_loads(LOADS, "-e", "default,sched")
    for view in (critical_path, waits, gpu_waits, steps):
        view(found.trace)
    return found


@pytest.mark.parametrize("name", ["spins", "sleeps", "both"])
def test_each_wait_has_its_length(recorded, name):
    found = recorded.rows(
        "SELECT ts, ts + dur_ns, tid = pid, phase, step FROM gpu_waits WHERE pid = ? ORDER BY ts",
        recorded.pid(name),
    )
    *told, _ = windows(recorded, name)
    assert len(found) == len(told) == len(SIZES)
    for number, ((begin, end, own, phase, step), (before, after)) in enumerate(
        zip(found, told, strict=True)
    ):
        assert before <= begin <= end <= after
        assert end - begin >= SIZES[number] * 10**6
        assert (own, phase, step) == (True, "step", number)


@pytest.mark.parametrize("name", ["spins", "sleeps", "both"])
def test_the_path_has_the_waits_spinning_or_asleep(recorded, name):
    assert_charged(recorded, name, "kind = 'gpu' AND tid = step_tid AND certainty = 'exact'")


def test_the_path_leads_to_the_thread_that_waits(recorded):
    (waited, control) = windows(recorded, "beside")
    others = during(recorded, "beside", waited, "kind = 'gpu' AND tid != step_tid")
    late = during(recorded, "beside", waited, "kind = 'cpu'")
    assert others >= CHARGED * (waited[1] - waited[0] - late)
    assert during(recorded, "beside", control, "kind = 'gpu'") == 0


def test_a_sleeping_thread_waits_for_the_gpu_and_a_spinning_one_does_not_sleep(recorded):
    def waited(name):
        query = "SELECT coalesce(sum(dur_ns), 0), any_value(detail), count(by_tid) FROM waits"
        return recorded.rows(f"{query} WHERE kind = 'gpu' AND pid = ?", recorded.pid(name))[0]

    ns, function, blamed = waited("sleeps")
    assert ns >= CHARGED * sum(SIZES) * 10**6
    assert (function, blamed) == ("cuEventSynchronize", 0)
    assert waited("spins")[0] == waited("launches")[0] == 0


def test_starting_work_is_no_wait(recorded):
    pid = recorded.pid("launches")
    assert recorded.one("SELECT count(*) FROM gpu_waits WHERE pid = ?", pid) == 0
    for window in windows(recorded, "launches"):
        assert during(recorded, "launches", window, "kind = 'gpu'") == 0


def test_a_wait_without_an_end_has_no_length(recorded):
    pids = recorded.pids("unended")
    found = recorded.rows(f"SELECT call, dur_ns FROM gpu_waits WHERE pid IN {tuple(pids)}")
    assert found == [("cuCtxSynchronize", None)]


def test_steps_have_the_time_for_which_they_wait(recorded):
    query = "SELECT gpu_wait_ns, total_ns FROM steps WHERE pid = ? ORDER BY step"
    found = recorded.rows(query, recorded.pid("both"))
    for (waited, total), ms in zip(found, (*SIZES, 0), strict=True):
        assert ms * 10**6 <= waited <= total
    assert found[-1][0] == 0
    other = recorded.rows(query, recorded.pid("beside"))
    assert [waited for waited, _ in other] == [0, 0]  # another thread waits


def test_segments_add_up_to_each_step(recorded):
    found = recorded.rows(
        "SELECT s.total_ns = sum(p.dur_ns) FROM steps s JOIN critical_path p"
        " ON s.tid = p.step_tid AND s.start = p.step_start GROUP BY s.tid, s.start, s.total_ns"
    )
    assert len(found) == 19
    assert all(same for (same,) in found)


def job(folder: Path, source: str) -> list[str]:
    path = folder / "job.py"
    path.write_text(source)
    return [*PYTHON, str(path)]


def without() -> dict[str, str]:
    """The environment without the library."""
    return {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}


def answers(trace: Path, *arguments: object) -> dict:
    return json.loads(run_tracer(*arguments, trace, "--json").out)


def test_the_first_finding_names_the_gpu_with_and_without_the_scheduler(driver, tmp_path):
    for probes, words in (("default", "its thread waits for the GPU"),
                          ("default,sched", "waits for the GPU (")):  # fmt: skip
        trace = tmp_path / f"{len(probes)}.trace"
        run_tracer("record", "-o", trace, "-e", probes, "--", *job(tmp_path, MOSTLY_SLEEPS))
        first = answers(trace, "report")["findings"][0]
        assert words in first["sentence"], first
    assert answers(trace, "explain")["findings"][0]["sentence"] == first["sentence"]


def test_a_process_that_has_begun_already(driver, tmp_path):
    path, log = tmp_path / "job.py", tmp_path / "log"
    path.write_text(ATTACHED)
    with log.open("w") as out:
        job = subprocess.Popen([*PYTHON, path], stdout=out)
    try:
        wait_for(lambda: log.stat().st_size, "the job")
        options = ("-o", "x.trace", "-p", job.pid)
        record_until(log, 24, *options, cwd=tmp_path, env=without())
    finally:
        job.kill()
        job.wait()
    with Trace(tmp_path / "x.trace") as trace:
        gpu_waits(trace)
        ((count, shortest),) = trace.rows("SELECT count(*), min(dur_ns) FROM gpu_waits")
    assert count >= 23
    assert shortest >= 10 * 10**6


@pytest.mark.parametrize("content", [b"no library", b"\x7fELF" + bytes(60)])
def test_a_library_that_cannot_be_read_leaves_the_rest(tmp_path, content):
    (tmp_path / "libcuda.so.1").write_bytes(content)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    run_tracer("record", "-o", tmp_path / "x.trace", "--", "true", env=env)
    facts = answers(tmp_path / "x.trace", "info")
    assert "syscalls" in facts["tables"]
    ((why,),) = [facts["missing"]["gpu_calls"]]
    assert "library" in why


def test_a_fifo_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "libcuda.so.1")
    env = {**os.environ, "LD_LIBRARY_PATH": f"relative:{tmp_path}:{tmp_path}/none"}
    run_tracer("record", "-o", tmp_path / "x.trace", "--", "true", env=env)
    assert "gpu_calls" not in answers(tmp_path / "x.trace", "info").get("missing", {})


def test_a_machine_without_the_library_says_so(tmp_path):
    asked = ("record", "-e", "gpu_calls", "-o", tmp_path / "x.trace", "--", "true")
    run_tracer(*asked, env=without())
    why = "no target ran its library as the recording began"
    assert answers(tmp_path / "x.trace", "info")["missing"]["gpu_calls"] == [why]
    asked = run_tracer("query", tmp_path / "x.trace", "FROM gpu_waits", status=None)
    assert asked.status
    assert f"no table gpu_calls: {why}" in asked.err
