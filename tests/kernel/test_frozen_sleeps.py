"""Sleeps of a thread whose cgroup is frozen until their time is over (`docker pause`).

The truth is the load's own clock. In version 1, the kernel does not run a sleeping thread to freeze
it: it stays off its CPU until the cgroup is thawed. In version 2, the kernel interrupts its call,
and the thread sleeps on outside of it.
"""

from __future__ import annotations

import pytest

from tests.conftest import do_without
from tests.support.cgroups import own_cgroup
from tests.support.planted import CHARGED, MS, during, load, windows
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.probes.cgroups import UNIFIED
from tracer.targets.cgroups import hierarchies

SLEEP_MS, FROZEN_MS = 200, (300, 450)
"""A sleep lasts until the freeze has begun, however busy the machine is."""


def freezers() -> list:
    """Returns the hierarchies of this machine that can freeze: Linux 5.2 has version 2's."""
    return [h for h in hierarchies() if h.number == UNIFIED or "freezer" in h.controllers]


FROZEN = """
folder, state, frozen, thawed = {names}

def write(name, what):
    with open(folder + "/" + name, "w") as file: file.write(what)

def state_of(pid):
    with open(f"/proc/{{pid}}/stat") as file: return file.read().rpartition(")")[2].split()[0]

def freeze(ms, wait):
    job = os.getpid()
    told = os.pipe()
    child = os.fork()
    if child == 0:
        write("../cgroup.procs", str(os.getpid()))
        write("cgroup.procs", str(job))
        os.write(told[1], b"x")
        while state_of(job) != "S": time.sleep(0.001)
        write(state, frozen)
        time.sleep(ms / 1000)
        write(state, thawed)
        if wait is read: os.write(data[1], b"x")
        os._exit(0)
    os.read(told[0], 1)
    begin = time.monotonic_ns()
    wait()
    slept.append((begin, time.monotonic_ns()))
    os.waitpid(child, 0)

def sleep(): time.sleep({sleep} / 1000)

def read(): os.read(data[0], 1)

data = os.pipe()
slept = []
sleeps = [lambda ms=ms: freeze(ms, sleep) for ms in {sizes}]
steps([*sleeps, lambda: freeze({sizes}[0], read), sleep])
planted = slept + planted[-1:]
"""


FREEZERS = freezers()
OF_VERSION_2 = pytest.mark.parametrize(
    "recorded",
    [h for h in FREEZERS if h.number == UNIFIED],
    ids=lambda h: h.mount.name,
    indirect=True,
)


@pytest.fixture(scope="module", params=FREEZERS, ids=lambda h: h.mount.name)
def recorded(request, record_loads):
    with own_cgroup(request.param) as folder:
        two = request.param.number == UNIFIED
        told = ("cgroup.freeze", "1", "0") if two else ("freezer.state", "FROZEN", "THAWED")
        why = None if (folder / told[0]).exists() else f"{folder} has no {told[0]}"
        do_without("a freezer", "TRACER_REQUIRE_KERNEL", why)
        source = FROZEN.format(names=(str(folder), *told), sleep=SLEEP_MS, sizes=FROZEN_MS)
        found = record_loads({"frozen": load(source)}, "-e", "default,sched")
        critical_path(found.trace)
        yield found


def test_a_sleep_that_a_freeze_made_longer_is_not_exact(recorded):
    *frozen, _, control = windows(recorded, "frozen")
    assert len(frozen) == len(FROZEN_MS)
    for window, ms in zip(frozen, FROZEN_MS, strict=True):
        assert window[1] - window[0] >= ms * MS
        exact = during(recorded, "frozen", window, "kind = 'timer' AND certainty = 'exact'")
        assert exact <= SLEEP_MS * MS
    sleep = during(recorded, "frozen", control, "kind = 'timer' AND certainty = 'exact'")
    assert sleep >= CHARGED * SLEEP_MS * MS


@OF_VERSION_2
def test_a_freeze_of_version_2_has_a_kind_of_its_own(recorded):
    *frozen, control = windows(recorded, "frozen")
    for window, ms in zip(frozen, (*FROZEN_MS, FROZEN_MS[0]), strict=True):
        which = "kind = 'frozen' AND certainty = 'inferred' OR kind = 'cpu'"
        assert during(recorded, "frozen", window, which) >= CHARGED * ms * MS
        assert during(recorded, "frozen", window, "kind = 'frozen'") > 0
    assert during(recorded, "frozen", control, "kind = 'frozen'") == 0


@OF_VERSION_2
def test_the_freezer_need_not_be_what_an_interrupted_read_waits_for(recorded):
    """The child that freezes the cgroup also writes, but only once it is thawed."""
    *_, (begin, end), _ = windows(recorded, "frozen")
    found = recorded.rows(
        "SELECT w.certainty FROM waits w JOIN syscalls s ON s.tid = w.tid AND w.ts >= s.ts"
        " AND w.ts < s.ts + s.dur_ns WHERE w.kind = 'ipc' AND s.name = 'read' AND s.ret < 0"
        " AND w.tid = ? AND w.ts BETWEEN ? AND ?",
        recorded.pid("frozen"), begin, end,
    )  # fmt: skip
    assert set(found) == {("inferred",)}
