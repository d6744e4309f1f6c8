"""Recorded trees of sysfs and procfs of machines."""

import sys

import pytest

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
