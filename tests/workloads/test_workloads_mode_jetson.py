"""Power modes of NVIDIA's tools, and the modes that a machine has without them."""

import os
import stat
import sys
from types import ModuleType

import pytest

from tests.support.machines import JETSON, LAPTOP, UNIFIED, contents
from tracer.workloads.errors import JobError
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.nvml import GpuClock
from tracer.workloads.modes.setting import PowerModes


@pytest.fixture
def nvpmodel(machine, tmp_path, monkeypatch):
    """Makes a Jetson with a fake nvpmodel, whose mode 2 can be made to need a reboot."""
    root = machine(JETSON)
    program = tmp_path / "bin/nvpmodel"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'if [ -e {tmp_path}/reboot ]; then echo "NVPM WARN: Reboot required"; exit 255; fi\n'
        f"printf 'pmode:%04d\\n' $2 > {root}/var/lib/nvpmodel/status\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return root


def test_a_jetson_mode_is_set_by_name_and_the_previous_restored(nvpmodel, tmp_path):
    status = nvpmodel / "var/lib/nvpmodel/status"
    with PowerModes(True, tmp_path / "state", nvpmodel) as modes:
        mode = PowerMode(nvpmodel="MODE_15W", gpu_mhz=670, memory_mhz=1333)
        with modes.applied(mode, containers=True) as setting:
            found = contents(nvpmodel)
            assert found["var/lib/nvpmodel/status"] == "pmode:0002"
            assert found["sys/class/devfreq/17000000.gv11b/max_freq"] == "675750000"
            assert found["sys/kernel/debug/bpmp/debug/clk/emc/rate"] == "1333000000"
            assert found["sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked"] == "1"
            assert setting.settings["gpu_mhz"] == 675.75
            assert setting.settings["memory_mhz"] == 1333
            assert setting.settings["cpu_mhz"] == 2265.6
        assert status.read_text() == "pmode:0000\n"
        assert {k: v for k, v in contents(nvpmodel).items() if k.startswith("sys/")} == {
            k: v.strip() for k, v in JETSON.items() if k.startswith("sys/")
        }
        with (
            pytest.raises(JobError, match="no mode 'ECO'; it has MAXN, MODE_15W"),
            modes.applied(PowerMode(nvpmodel="ECO"), containers=True),
        ):
            pytest.fail("the run was made")
        (tmp_path / "reboot").touch()
        with (
            pytest.raises(JobError, match="did not set mode 2: NVPM WARN: Reboot required"),
            modes.applied(PowerMode(nvpmodel="2"), containers=True),
        ):
            pytest.fail("the run was made")


def test_the_modes_of_a_jetson_are_those_of_nvpmodel(nvpmodel, machine):
    assert Machine(nvpmodel).modes() == [
        None,
        PowerMode(nvpmodel="MAXN"),
        PowerMode(nvpmodel="MODE_15W"),
    ]


def test_modes_without_nvpmodel_are_cores_by_frequencies(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    found = Machine(machine(LAPTOP)).modes()
    assert found[0] is None
    assert set(found[1:]) == {
        PowerMode(cores=cores, cpu_mhz=mhz)
        for cores in (None, 2)
        for mhz in (800, 1600, 2400, None)
        if cores or mhz
    }


def test_modes_without_frequencies_are_cores_by_quotas(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found = Machine(machine(UNIFIED)).modes()
    assert len(found) == len(set(found)) == 8
    assert PowerMode(cores=1) in found and PowerMode(cpu_quota=0.4) in found


class FakeNvml(ModuleType):
    """The used calls of pynvml, for one GPU with three clocks."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    def __getattr__(self, name):
        answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda number: number,
            "nvmlDeviceGetMaxClockInfo": lambda gpu, kind: 1980,
            "nvmlDeviceGetSupportedMemoryClocks": lambda gpu: [2619],
            "nvmlDeviceGetSupportedGraphicsClocks": lambda gpu, memory: [1980, 1200, 345],
            "nvmlDeviceSetGpuLockedClocks": lambda gpu, low, high: self.calls.append((low, high)),
            "nvmlDeviceResetGpuLockedClocks": lambda gpu: self.calls.append("reset"),
        }
        return answers[name]


def test_a_gpu_s_clock_is_locked_and_unlocked(monkeypatch):
    nvml = FakeNvml("pynvml")
    nvml.calls = []
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    clock = GpuClock()
    assert (clock.now(), clock.choices()) == (1980, [345, 1200, 1980])
    clock.set(1200)
    assert clock.now() == 1200
    with pytest.raises(JobError, match="has no gpu_mhz of 1500; choose one of"):
        clock.set(1500)
    clock.restore(clock.remember())
    assert (clock.now(), nvml.calls) == (1980, [(1200, 1200), "reset"])
