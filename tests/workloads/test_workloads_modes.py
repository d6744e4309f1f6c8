"""Power modes on recorded trees of sysfs: values, their order, and their restoration."""

import json
import os
import stat
import subprocess
import sys
from types import ModuleType

import pytest

from tracer.workloads.errors import JobError
from tracer.workloads.modes import frequency
from tracer.workloads.modes.cgroups import Memory, Share, entering, plan
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mechanism import Lacking
from tracer.workloads.modes.mode import PowerMode, parse
from tracer.workloads.modes.nvml import GpuClock
from tracer.workloads.modes.online import Online
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.modes.writeback_timers import WritebackTimers

CPU = "sys/devices/system/cpu"
UNIFIED = {
    "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "sys/fs/cgroup/cgroup.subtree_control": "memory pids\n",
}
LAPTOP = {
    **UNIFIED,
    f"{CPU}/cpu0/topology/core_id": "0\n",
    **{f"{CPU}/cpu{n}/online": "1\n" for n in (1, 2, 3)},
    **{
        f"{CPU}/cpufreq/policy{n}/{name}": f"{value}\n"
        for n in range(4)
        for name, value in {
            "scaling_min_freq": 800000,
            "scaling_max_freq": 3200000,
            "cpuinfo_min_freq": 800000,
            "cpuinfo_max_freq": 3200000,
        }.items()
    },
}
# AGX Xavier, JetPack 4: its own names, and the numbers of Prashanthi et al. 2022, Table 4.
JETSON = {
    **UNIFIED,
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n"
    "< POWER_MODEL ID=2 NAME=MODE_15W >\nGPU MAX_FREQ 670000000\n",
    "var/lib/nvpmodel/status": "pmode:0000\n",
    f"{CPU}/cpufreq/policy0/scaling_min_freq": "1190400\n",
    f"{CPU}/cpufreq/policy0/scaling_max_freq": "2265600\n",
    f"{CPU}/cpufreq/policy0/scaling_available_frequencies": "1036800 1190400 2112000 2265600 \n",
    "sys/class/devfreq/17000000.gv11b/min_freq": "114750000\n",
    "sys/class/devfreq/17000000.gv11b/max_freq": "1377000000\n",
    "sys/class/devfreq/17000000.gv11b/available_frequencies": "420750000 675750000 1377000000\n",
    "sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked": "0\n",
    "sys/kernel/debug/bpmp/debug/clk/emc/rate": "2133000000\n",
    "sys/kernel/debug/bpmp/debug/clk/emc/min_rate": "204000000\n",
    "sys/kernel/debug/bpmp/debug/clk/emc/max_rate": "2133000000\n",
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes the files of a machine; returns their root."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    root = tmp_path / "root"

    def make(files):
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return make


def contents(root):
    """Returns the text of all files, without the final newline."""
    return {
        str(path.relative_to(root)): path.read_text().strip()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"colour": 3}, "has no 'colour'"),
        ({"cores": 0}, "`cores` is"),
        ({"cores": 1.5}, "`cores` is"),
        ({"cores": True}, "`cores` is"),
        ({"cpu_quota": 0}, "`cpu_quota` is"),
        ({"cpu_quota": 1.2}, "`cpu_quota` is"),
        ({"cpu_mhz": "fast"}, "`cpu_mhz` is"),
        ({"gpu_mhz": -1}, "`gpu_mhz` is"),
        ({"memory_mhz": float("nan")}, "`memory_mhz` is"),
        ({"nvpmodel": []}, "`nvpmodel` is"),
    ],
)
def test_an_impossible_mode_is_refused(told, complaint):
    with pytest.raises(JobError, match=complaint):
        parse(told)


def test_a_mode_is_named_after_its_settings_and_is_default_without():
    assert parse({}) is None
    assert str(parse({"cpu_quota": 0.5, "cores": 1})) == "cores 1, cpu_quota 0.5"
    assert parse({"nvpmodel": 2}) == PowerMode(nvpmodel="2")
    assert isinstance(parse({"cores": 1.0}).cores, int)


def test_cores_and_frequencies_are_set_and_restored(machine, tmp_path):
    root = machine(LAPTOP)
    before = contents(root)
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        modes.applied(PowerMode(cores=2, cpu_mhz=1200), containers=False) as setting,
    ):
        found = contents(root)
        assert [found[f"{CPU}/cpu{n}/online"] for n in (1, 2, 3)] == ["1", "0", "0"]
        assert {
            found[f"{CPU}/cpufreq/policy{n}/scaling_{end}_freq"]
            for n in range(4)
            for end in ("min", "max")
        } == {"1200000"}
        assert setting.by == {"cores": "CPU hotplug", "cpu_mhz": "cpufreq"}
        assert setting.settings["cpu_mhz"] == 1200
        assert setting.cgroups == []
    assert contents(root) == before
    assert not (tmp_path / "state/power_mode.json").exists()


def test_the_lowest_frequency_is_never_above_the_highest(machine, tmp_path, monkeypatch):
    root = machine(LAPTOP)
    limits = Machine(root).find("cpu_mhz")._policies()[0]
    seen = []

    def write(path, text):
        path.write_text(text)
        seen.append((int(limits.low.read_text()), int(limits.high.read_text())))

    monkeypatch.setattr(frequency, "write", write)
    before = limits.remember()
    for mhz in (2400, 900, 3000, 3200):
        limits.hold(mhz)
        assert seen[-1] == (mhz * 1000, mhz * 1000)
    frequency.put_back(before)
    assert seen[-1] == (800000, 3200000)
    assert all(low <= high for low, high in seen)


def test_a_missing_frequency_is_refused_and_a_rounded_one_accepted(machine):
    cpufreq = Machine(machine(JETSON)).find("cpu_mhz")
    cpufreq.set(1200)
    assert cpufreq.now() == 1190.4
    with pytest.raises(JobError, match=r"has no 1500 MHz; choose one of 1036\.8, 1190\.4"):
        cpufreq.set(1500)
    assert cpufreq.now() == 1190.4


def test_the_next_runner_restores_the_mode_of_a_killed_one(machine, tmp_path):
    root = machine(LAPTOP)
    before = contents(root)
    killed = os.fork()
    if not killed:
        with PowerModes(True, tmp_path / "state", root) as modes:
            modes._set(PowerMode(cores=1, cpu_mhz=800), Machine(root), containers=False)
            os._exit(9)
    os.waitpid(killed, 0)
    assert contents(root) != before
    told = json.loads((tmp_path / "state/power_mode.json").read_text())
    assert [one["by"] for one in told] == ["Online", "Cpufreq"]
    with PowerModes(False, tmp_path / "state", root):
        assert contents(root) == before
    assert not (tmp_path / "state/power_mode.json").exists()


def test_one_runner_at_a_time_sets_modes(machine, tmp_path):
    root = machine(LAPTOP)
    state = tmp_path / "state"
    with PowerModes(True, state, root):
        with pytest.raises(JobError, match="another study sets the power mode"):
            PowerModes(True, state, root).__enter__()
        with PowerModes(False, state, root):
            pass
    with PowerModes(True, state, root):
        pass


def test_a_failed_restore_is_reported_and_tried_again(machine, tmp_path):
    root = machine(LAPTOP)
    state = tmp_path / "state"
    low = root / CPU / "cpufreq/policy2/scaling_min_freq"
    with PowerModes(True, state, root) as modes:
        with (
            pytest.raises(JobError, match="could not be restored"),
            modes.applied(PowerMode(cpu_mhz=1600), containers=False),
        ):
            low.unlink()
            low.mkdir()
        with (
            pytest.raises(JobError, match="could not be restored"),
            modes.applied(None, containers=False),
        ):
            pytest.fail("a run was made in another's mode")
        low.rmdir()
        with modes.applied(PowerMode(cores=1), containers=False):
            assert low.read_text() == "800000"


def test_a_damaged_note_is_not_ignored(machine, tmp_path):
    (tmp_path / "power_mode.json").write_text("[{")
    with pytest.raises(JobError, match=r"cannot read .*power_mode\.json"):
        PowerModes(False, tmp_path, machine(LAPTOP)).__enter__()
    (tmp_path / "power_mode.json").write_text('[{"by": "Magic", "before": {}}]')
    with pytest.raises(JobError, match="could not be restored: 'Magic'"):
        PowerModes(False, tmp_path, machine(LAPTOP)).__enter__()


def test_the_error_without_cpufreq_names_the_quota(machine, tmp_path):
    root = machine(UNIFIED)
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        pytest.raises(JobError, match=r"`cpu_mhz`: there is no cpufreq.*`cpu_quota`"),
        modes.applied(PowerMode(cpu_mhz=1000), containers=False),
    ):
        pytest.fail("the run was made")


def test_a_machine_without_cgroups_cannot_set_a_quota(machine, tmp_path):
    root = machine({"proc/mounts": "proc /proc proc rw 0 0\n"})
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        pytest.raises(JobError, match="no cgroups with the controller 'cpu'"),
        modes.applied(PowerMode(cpu_quota=0.5), containers=False),
    ):
        pytest.fail("the run was made")
    assert "cpu_quota" not in Machine(root).settings()


def test_more_cores_than_the_machine_has_are_refused(machine, tmp_path):
    with (
        PowerModes(True, tmp_path / "state", machine(UNIFIED)) as modes,
        pytest.raises(JobError, match="the power mode asks for 5000"),
        modes.applied(PowerMode(cores=5000), containers=False),
    ):
        pytest.fail("the run was made")


def test_no_cpu_goes_offline_if_cpusets_would_lose_it(machine):
    old = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
    with pytest.raises(Lacking, match="does not return to the cpusets"):
        Online(machine({**LAPTOP, "proc/mounts": old}))


def test_a_quota_has_the_format_of_the_cgroup_hierarchy(machine):
    share = Share((0, 1), 0.5)
    root = machine(UNIFIED)
    assert plan(share, "job", root) == {
        "made": {
            str(root / "sys/fs/cgroup/job"): {"cpu.max": "50000 100000", "cpuset.cpus": "0,1"}
        },
        "enabled": [
            [str(root / "sys/fs/cgroup/cgroup.subtree_control"), "cpu"],
            [str(root / "sys/fs/cgroup/cgroup.subtree_control"), "cpuset"],
        ],
    }
    both = {
        "proc/mounts": "a /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        "b /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
        "c /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n",
        "sys/fs/cgroup/unified/cgroup.controllers": "\n",
        "sys/fs/cgroup/cpuset/cpuset.mems": "0-1\n",
    }
    root = machine(both)
    assert plan(share, "job", root) == {
        "made": {
            str(root / "sys/fs/cgroup/cpu,cpuacct/job"): {
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "50000",
            },
            str(root / "sys/fs/cgroup/cpuset/job"): {"cpuset.mems": "0-1", "cpuset.cpus": "0,1"},
        },
        "enabled": [],
    }


def test_a_container_gets_its_share_without_a_cgroup_of_ours(machine, tmp_path):
    root = machine(UNIFIED)
    before = contents(root)
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        modes.applied(PowerMode(cores=1, cpu_quota=0.25), containers=True) as setting,
    ):
        assert (len(setting.share.cpus), setting.share.quota) == (1, 0.25)
        assert setting.cgroups == []
        assert contents(root) == before
    assert setting.settings == {"cores": 1, "cpu_quota": 0.25}
    assert setting.by["cpu_quota"] == "quota of CPU time, not a frequency"


def test_a_command_does_not_run_if_it_cannot_join_its_cgroup(tmp_path):
    command = entering([tmp_path / "none"], ["touch", str(tmp_path / "ran")])
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 125
    assert not (tmp_path / "ran").exists()


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
    if os.fork() == 0:
        with (
            PowerModes(True, tmp_path / "state", root) as modes,
            modes.also(WritebackTimers(root), 0.1),
        ):
            os._exit(0)
    os.wait()
    assert timers_of(root) == [300, 50]
    with PowerModes(False, tmp_path / "state", root):
        assert timers_of(root) == [3000, 500]


def test_a_memory_limit_has_the_files_of_either_version(machine):
    whole, swapping = Memory(64 << 20), Memory(64 << 20, 16 << 20)
    unified = machine({**UNIFIED, "proc/swaps": "Filename\n"})
    group = str(unified / "sys/fs/cgroup/x")
    for memory, swap in ((whole, 0), (swapping, 16 << 20)):
        assert plan(Share(), "x", unified, memory) == {
            "made": {group: {"memory.max": str(64 << 20), "memory.swap.max": str(swap)}},
            "enabled": [],
        }
    # Both controllers are in the one group of v2.
    both = plan(Share(quota=0.5), "x", unified, whole)["made"]
    assert list(both[group]) == ["cpu.max", "memory.max", "memory.swap.max"]


def test_a_memory_limit_of_v1_sums_memory_and_swap(machine):
    v1 = machine(
        {
            "proc/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "0\n",
        }
    )
    (files,) = plan(Share(), "x", v1, Memory(64 << 20, 16 << 20))["made"].values()
    assert list(files.items()) == [
        ("memory.limit_in_bytes", str(64 << 20)), ("memory.memsw.limit_in_bytes", str(80 << 20)),
    ]  # fmt: skip


def test_swap_without_a_limit_of_it_is_refused(machine):
    lacking = machine(UNIFIED)
    (files,) = plan(Share(), "x", lacking, Memory(64 << 20))["made"].values()
    assert files == {"memory.max": str(64 << 20)}
    with pytest.raises(JobError, match="does not limit swap"):
        plan(Share(), "x", lacking, Memory(64 << 20, 16 << 20))
