"""Delays that limits plant: a CPU quota, a memory limit, the kernel's limit of dirty pages."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.loads import Load, Recorded, finished
from tests.support.planted import CHARGED, MISTAKEN, MS, during, load, windows
from tests.support.slow_disk import slow_disk
from tests.support.sysctls import settings
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.store.trace import Trace
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share, entering

pytestmark = pytest.mark.quiet

MIB = 1 << 20
QUOTA = 0.1
"""A small one: it stops its processes for longer than the turns of many others on the CPU take, and
they use it up beside them, too."""
QUOTA_MS, CROWDED_MS = (25, 50, 200), (25, 50, 100)
"""CPU time that the steps take, alone and beside the helpers."""
STRETCH_NS = 90 * MS
"""Time for which the quota stops its processes in each period of 100 ms. The kernel counts it when
it ends, which may be after the step."""
HELPERS = 2
"""Processes that take CPU time of the same quota meanwhile."""
REQUEST_MS = 20
LIMIT = 64 * MIB
WRITES_MIB, DIRTY_MIB = (8, 12, 16), (3, 4, 5)
"""Sizes of the writes of the steps, at the limit of memory and at that of dirty pages (2 MiB)."""

THROTTLED_NS = """
def throttled_ns():
    with open(sys.argv[1] + "/cpu.stat") as file: stat = dict(line.split() for line in file)
    usec = stat.get("throttled_usec")
    return int(stat["throttled_time"]) if usec is None else int(usec) * 1000
"""
QUOTAS = load(f"""
{THROTTLED_NS}
def watched(ms):
    before = throttled_ns()
    spin(ms)
    stopped.append(throttled_ns() - before)

stopped = []
steps([*(lambda ms=ms: watched(ms) for ms in {QUOTA_MS})])
with open(os.path.dirname(sys.argv[1]) + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
with phases.phase("train"):
    step(3, nothing, lambda: None)
planted = {{"planted": planted, "stopped": stopped}}
""")

CROWDED = load(f"""
import signal
{THROTTLED_NS}

def forked():
    pid = os.fork()
    while pid == 0: pass
    return pid

def crowded(ms):
    stopped.append(-throttled_ns())
    helpers = [forked() for _ in range({HELPERS})]
    spin(ms)
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    stopped[-1] += throttled_ns()

stopped = []
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})  # so that one of them runs at a time
steps([*(lambda ms=ms: crowded(ms) for ms in {CROWDED_MS}), nothing])
planted = {{"planted": planted, "stopped": stopped}}
""")


def writes(sizes: tuple[int, ...], before: int = 0) -> str:
    return load(f"""
out, block = os.open(sys.argv[1], os.O_RDWR), bytes(65536)

def write(mib):
    for _ in range(mib * 16): os.write(out, block)

write({before})
steps([*(lambda mib=mib: write(mib) for mib in {sizes}), nothing])
""")


def record_in(folder: Path, name: str, source: str, argument: object, cgroup: Path | None):
    """Records one load, which is the target itself, in a cgroup."""
    (folder / f"{name}.py").write_text(source)
    command = ["/usr/bin/python3", "-S", "-E", str(folder / f"{name}.py"), str(argument)]
    command = command if cgroup is None else entering([cgroup], command)
    options = ("-e", "default,sched", "--sample-hz", "20")
    arguments = ("record", "-o", folder / f"{name}.trace", *options, "--", *command)
    ended = finished(arguments, folder)
    assert ended.status == 0, ended.err
    trace = Trace(folder / f"{name}.trace")
    assert trace.manifest["loss"]["events"] == 0
    critical_path(trace)
    ((pid,),) = trace.rows("SELECT pid FROM processes WHERE role = 'target' AND tid = pid")
    return Recorded(trace, {name: Load(pid, ended.out)})


@pytest.fixture(scope="module")
def cgroup_of():
    """Makes a cgroup with a quota or a memory limit; returns its folder."""
    made = []

    def make(share=Share(), memory=None):  # noqa: B008 a frozen value
        made.append(cgroups.plan(share, f"tracer-planted-{os.getpid()}-{len(made)}", memory=memory))
        (folder,) = cgroups.make(made[-1])
        return folder

    yield make
    for planned in reversed(made):
        cgroups.remove(planned)


def test_a_cpu_quota(cgroup_of, tmp_path):
    folder = cgroup_of(Share(quota=QUOTA))
    recorded = record_in(tmp_path, "quota", QUOTAS, folder, folder)
    *planted, control = windows(recorded, "quota")
    stopped = json.loads(recorded.loads["quota"].out)["stopped"]
    for window, time in zip(planted, stopped, strict=True):
        told = during(recorded, "quota", window, "kind = 'throttled'")
        others = during(recorded, "quota", window, "kind = 'cpu'")
        assert time > 50 * MS
        assert CHARGED * (time - others) <= told <= window[1] - window[0]
    length = control[1] - control[0]
    assert during(recorded, "quota", control, "kind = 'throttled'") <= MISTAKEN * length
    recorded.trace.close()


HOG = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


@pytest.mark.parametrize("hog", [False, True])
def test_a_cpu_quota_of_several_processes(cgroup_of, tmp_path, hog):
    """Also beside a process without a quota that takes the same CPU whenever it can."""
    folder = cgroup_of(Share(quota=QUOTA))
    with contextlib.ExitStack() as ends:
        if hog:
            beside = ends.enter_context(subprocess.Popen([sys.executable, "-c", HOG]))
            ends.callback(beside.kill)
        recorded = record_in(tmp_path, "crowded", CROWDED, folder, folder)
    *planted, _ = windows(recorded, "crowded")
    told = json.loads(recorded.loads["crowded"].out)["stopped"]
    for window, stopped in zip(planted, told, strict=True):
        throttled = during(recorded, "crowded", window, "kind = 'throttled'")
        assert abs(throttled - stopped) <= (1 - CHARGED) * stopped + STRETCH_NS
    assert stopped > 10 * STRETCH_NS
    recorded.trace.close()


def test_the_limit_of_dirty_pages(tmp_path):
    with (
        slow_disk(tmp_path, "d", REQUEST_MS) as disk,
        settings() as put,
    ):
        put(dirty_background_bytes=MIB, dirty_bytes=2 * MIB)
        recorded = record_in(tmp_path, "dirty", writes(DIRTY_MIB), disk.device, None)
    assert_waits_are(recorded, "dirty", "kind = 'dirty'")


def test_a_memory_limit(cgroup_of, tmp_path):
    folder = cgroup_of(memory=Memory(LIMIT))
    with (
        slow_disk(tmp_path, "d", REQUEST_MS, size=4 * LIMIT) as disk,
        settings() as put,
    ):
        put(dirty_background_bytes=256 * MIB, dirty_bytes=512 * MIB)
        recorded = record_in(
            tmp_path, "memory", writes(WRITES_MIB, LIMIT // MIB), disk.device, folder
        )
    assert_waits_are(recorded, "memory", "kind = 'reclaim'")


def assert_waits_are(recorded, name, which):
    """All that a step waits for is `which`, except a CPU; and the control does not."""
    *planted, control = windows(recorded, name)
    for window in planted:
        waited = during(recorded, name, window, "kind NOT IN ('run', 'cpu')")
        assert during(recorded, name, window, which) >= CHARGED * waited > 0
    length = control[1] - control[0]
    assert during(recorded, name, control, which) <= MISTAKEN * length
    recorded.trace.close()
