"""The timers of the flusher: scaled for a run, and restored."""

import os

import pytest

from tests.support.machines import LAPTOP, contents
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.modes.writeback_timers import WritebackTimers

TIMERS = {
    "proc/sys/vm/dirty_expire_centisecs": "3000",
    "proc/sys/vm/dirty_writeback_centisecs": "500",
}


def timers_of(root):
    return [int((root / name).read_text()) for name in TIMERS]


@pytest.mark.parametrize(
    ("scale", "timers"), [(0.1, [300, 50]), (2, [6000, 1000]), (0.00001, [1, 1])]
)
def test_the_timers_of_the_flusher_are_scaled_and_restored(machine, tmp_path, scale, timers):
    root = machine({**LAPTOP, **TIMERS})
    before = contents(root)
    with PowerModes(True, tmp_path / "state", root) as modes:
        with (
            modes.applied(PowerMode(cpu_mhz=800), containers=True),
            modes.also(WritebackTimers(root), scale),
        ):
            assert timers_of(root) == timers
        assert contents(root) == before
    assert not (tmp_path / "state" / "power_mode.json").exists()


def test_a_timer_that_is_off_stays_off(machine, tmp_path):
    root = machine({**TIMERS, "proc/sys/vm/dirty_writeback_centisecs": "0"})
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        modes.also(WritebackTimers(root), 0.1),
    ):
        assert timers_of(root) == [300, 0]
    assert timers_of(root) == [3000, 0]


def test_the_next_runner_restores_the_timers_of_a_killed_one(machine, tmp_path):
    root = machine(TIMERS)
    pid = os.fork()
    if pid == 0:
        with (
            PowerModes(True, tmp_path / "state", root) as modes,
            modes.also(WritebackTimers(root), 0.1),
        ):
            os._exit(0)
    os.waitpid(pid, 0)  # no other child's end
    assert timers_of(root) == [300, 50]
    with PowerModes(False, tmp_path / "state", root):
        assert timers_of(root) == [3000, 500]
