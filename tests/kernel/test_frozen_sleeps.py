"""Sleeps of a thread whose cgroup is frozen until their time is over (`docker pause`).

The truth is the load's own clock. The kernel does not run a sleeping thread to freeze it: it stays
off its CPU until the cgroup is thawed.
"""

from __future__ import annotations

import pytest

from tests.support.cgroups import own_cgroup
from tests.support.planted import CHARGED, MS, during, load, windows
from tracer.analysis.views.critical_path import critical_path
from tracer.probes.cgroups import UNIFIED
from tracer.targets.cgroups import hierarchies

SLEEP_MS, FROZEN_MS = 20, (60, 90)


def freezers() -> list:
    """Returns the hierarchies of version 1 on this machine that can freeze."""
    return [h for h in hierarchies() if h.number != UNIFIED and "freezer" in h.controllers]


FROZEN = """
folder, state, frozen, thawed = {names}

def write(name, what):
    with open(folder + "/" + name, "w") as file: file.write(what)

def freeze(ms):
    job = os.getpid()
    told = os.pipe()
    child = os.fork()
    if child == 0:
        write("../cgroup.procs", str(os.getpid()))
        write("cgroup.procs", str(job))
        os.write(told[1], b"x")
        time.sleep({sleep} / 2000)
        write(state, frozen)
        time.sleep(ms / 1000)
        write(state, thawed)
        os._exit(0)
    os.read(told[0], 1)
    begin = time.monotonic_ns()
    time.sleep({sleep} / 1000)
    slept.append((begin, time.monotonic_ns()))
    os.waitpid(child, 0)

slept = []
steps([*(lambda ms=ms: freeze(ms) for ms in {sizes}), lambda: time.sleep({sleep} / 1000)])
planted = slept + planted[-1:]
"""


@pytest.fixture(scope="module", params=freezers(), ids=lambda h: h.mount.name)
def recorded(request, record_loads):
    with own_cgroup(request.param) as folder:
        names = (str(folder), "freezer.state", "FROZEN", "THAWED")
        source = FROZEN.format(names=names, sleep=SLEEP_MS, sizes=FROZEN_MS)
        found = record_loads({"frozen": load(source)}, "-e", "default,sched")
        critical_path(found.trace)
        yield found


def test_a_sleep_that_a_freeze_made_longer_is_not_exact(recorded):
    *frozen, control = windows(recorded, "frozen")
    assert len(frozen) == len(FROZEN_MS)
    for window, ms in zip(frozen, FROZEN_MS, strict=True):
        assert window[1] - window[0] >= ms * MS
        exact = during(recorded, "frozen", window, "kind = 'timer' AND certainty = 'exact'")
        assert exact <= SLEEP_MS * MS
    sleep = during(recorded, "frozen", control, "kind = 'timer' AND certainty = 'exact'")
    assert sleep >= CHARGED * SLEEP_MS * MS
