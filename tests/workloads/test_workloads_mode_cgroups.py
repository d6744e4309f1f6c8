"""Power modes and memory limits by cgroups: their files in both hierarchies."""

import subprocess

import pytest

from tests.support.machines import LAPTOP, UNIFIED, contents
from tracer.workloads.errors import JobError
from tracer.workloads.modes.cgroups import Memory, Share, entering, make, plan
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mechanism import Lacking
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.online import Online
from tracer.workloads.modes.setting import PowerModes


def test_a_machine_without_cgroups_cannot_set_a_quota(machine, tmp_path):
    root = machine({"proc/mounts": "proc /proc proc rw 0 0\n"})
    with (
        PowerModes(True, tmp_path / "state", root) as modes,
        pytest.raises(JobError, match="no cgroups with the controller 'cpu'"),
        modes.applied(PowerMode(cpu_quota=0.5), containers=False),
    ):
        pytest.fail("the run was made")
    assert "cpu_quota" not in Machine(root).settings()


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


LIMITED = "7:0 rbps=4000000 wbps=4000000 riops=max wiops=max\n7:1 rbps=max wbps=1 riops=1 wiops=1\n"


def test_a_job_takes_the_limits_on_devices_along_that_its_runner_has(machine):
    """Another cgroup of version 2 would end them: a medium would be as fast as its disk."""
    root = machine(
        {
            **UNIFIED,
            "proc/self/cgroup": "1:cpu:/elsewhere\n0::/studies/medium\n",
            "sys/fs/cgroup/studies/medium/io.max": LIMITED,
        }
    )
    group = root / "sys/fs/cgroup/x"
    planned = plan(Share(), "x", root, Memory(64 << 20))
    assert planned["made"][str(group)] == {
        "memory.max": str(64 << 20),
        "io.max": LIMITED.strip(),
    }
    make(planned)
    # The kernel takes a line at a time: what is left in this plain file is the last one.
    assert (group / "io.max").read_text() == LIMITED.splitlines()[-1]


@pytest.mark.parametrize("own", ["0::/\n", "0::/none\n", "1:blkio:/studies/medium\n", ""])
def test_a_runner_without_limits_on_devices_has_none_to_take_along(machine, own):
    files = {**UNIFIED, "proc/self/cgroup": own, "sys/fs/cgroup/io.max": ""}
    (made,) = plan(Share(), "x", machine(files), Memory(64 << 20))["made"].values()
    assert list(made) == ["memory.max"]
