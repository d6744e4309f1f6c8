"""Readers of power, GPU and frequency against recorded trees, and what is not there."""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.conftest import ROOT
from tracer.probes.sampler.catalogue import MACHINE, READERS, find_readers
from tracer.probes.sampler.cgroup import CgroupReader
from tracer.probes.sampler.cpu import Cpu
from tracer.probes.sampler.disks import Disks
from tracer.probes.sampler.frequency import Frequency
from tracer.probes.sampler.gpu import Gpu
from tracer.probes.sampler.jetson import Jetson
from tracer.probes.sampler.pressure import Pressure
from tracer.probes.sampler.rapl import Rapl, suspended_ns
from tracer.probes.sampler.reading import NotAvailable

TREES = ROOT / "fixtures/sysfs"
POWERCAP = "sys/class/powercap"


@pytest.fixture
def tree(tmp_path):
    """A copy of a recorded tree, to change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(TREES / name, tmp_path / name))

    return copy


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_rapl_domains_are_told_apart_and_a_second_name_of_a_package_is_left_out():
    assert Rapl(TREES / "intel").read() == [
        ("rapl_energy", "package-0", pytest.approx(262_143.0)),
        ("rapl_energy", "package-0/core", pytest.approx(4.0)),
        ("rapl_energy", "package-0/dram", pytest.approx(2.5)),
        ("rapl_energy", "psys", pytest.approx(9.0)),
    ]


def test_a_rapl_counter_that_wraps_around_goes_on_growing(tree):
    root = tree("intel")
    rapl = Rapl(root)
    counter = root / POWERCAP / "intel-rapl:0/energy_uj"
    joules = []
    for microjoules in (262_143_000_000, 671_150, 262_143_000_000, 671_150):
        counter.write_text(f"{microjoules}\n")
        joules.append(rapl.read()[0][2])
    first, *rest = joules
    assert [round(value - first, 6) for value in rest] == [1.0, 262_143.328850, 262_144.328850]


def test_a_rapl_counter_that_begins_again_in_a_suspend_has_not_wrapped(tree):
    root = tree("intel")
    slept = [0]
    rapl = Rapl(root, lambda: slept[0])
    counter = root / POWERCAP / "intel-rapl:0/energy_uj"
    joules = []
    for microjoules, suspended in (
        (5_000_000, 0),
        (9_000_000, 0),
        (2_000_000, 60),
        (3_000_000, 60),
    ):
        counter.write_text(f"{microjoules}\n")
        slept[0] = suspended * 10**9
        joules.append(rapl.read()[0][2])
    first, *rest = joules
    assert [round(value - first, 6) for value in rest] == [4.0, 6.0, 7.0]
    assert abs(suspended_ns() - suspended_ns()) < 10**8


def test_the_cpu_time_of_a_cgroup_comes_from_one_hierarchy(tmp_path):
    """The process joined the hierarchy of version 2 after it had used 100 s of CPU time."""
    old, new = tmp_path / "cpuacct/job", tmp_path / "unified/job"
    write(new / "cpu.stat", "usage_usec 2500000\n")
    write(old / "cpuacct.usage", "102500000000\n")
    for folders in ([old, new], [new, old]):
        reader = CgroupReader(folders)
        assert reader.read() == [("cgroup_cpu_time", None, 102.5)]
        (old / "cpuacct.usage").rename(old / "gone")
        assert reader.read() == []
        (old / "gone").rename(old / "cpuacct.usage")
    assert CgroupReader([new]).read() == [("cgroup_cpu_time", None, 2.5)]


def test_a_counter_that_this_user_may_not_read_is_not_available_and_says_why(tree):
    root = tree("intel")
    counter = root / POWERCAP / "intel-rapl:0/energy_uj"
    counter.unlink()
    counter.symlink_to("energy_uj")  # what nobody can open, root or not
    with pytest.raises(NotAvailable, match="energy_uj: Too many levels"):
        Rapl(root)


def test_the_cpu_time_of_the_machine_is_all_but_idle_iowait_and_what_others_took(tmp_path):
    user, nice, system, idle, iowait, irq, softirq, steal, guest = 1, 2, 3, 50, 7, 4, 5, 90, 1
    seconds = (user, nice, system, idle, iowait, irq, softirq, steal, guest)
    ticks = " ".join(str(s * os.sysconf("SC_CLK_TCK")) for s in seconds)
    write(tmp_path / "proc/stat", f"cpu  {ticks} 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert Cpu(tmp_path).read() == [
        ("cpu_time", None, 15.0),
        ("iowait_time", None, 7.0),
        ("steal_time", None, 90.0),
    ]


def test_frequency_is_the_mean_of_the_policies_with_their_governor():
    frequency = Frequency(TREES / "intel")
    assert frequency.read() == [("cpu_frequency", None, pytest.approx(6.4e9 / 3))]
    assert frequency.facts == {"cpu_governor": "schedutil"}


def test_an_orin_gives_power_by_rail_gpu_load_and_power_mode():
    jetson = Jetson(TREES / "orin")
    assert jetson.read() == [
        ("rail_power", "VDD_GPU_SOC", pytest.approx(19.864 * 0.251)),
        ("rail_power", "VDD_CPU_CV", pytest.approx(19.864 * 0.113)),
        ("rail_power", "VIN_SYS_5V0", pytest.approx(4.976 * 0.820)),
        ("jetson_gpu_use", None, pytest.approx(73.4)),
        ("jetson_gpu_frequency", None, 918_000_000),
    ]
    assert jetson.facts == {"power_mode": "MODE_15W"}


def test_a_nano_of_jetpack_4_gives_milliwatts_and_an_idle_gpu_is_0():
    jetson = Jetson(TREES / "nano")
    assert jetson.read() == [
        ("rail_power", "POM_5V_IN", pytest.approx(3.217)),
        ("rail_power", "POM_5V_GPU", pytest.approx(0.412)),
        ("rail_power", "POM_5V_CPU", pytest.approx(0.905)),
        ("jetson_gpu_use", None, 0.0),
        ("jetson_gpu_frequency", None, 76_800_000),
    ]
    assert jetson.facts == {}


def test_a_jetson_without_its_gpu_says_so_and_gives_the_rails(tree):
    root = tree("nano")
    shutil.rmtree(root / "sys/class/devfreq")
    jetson = Jetson(root)
    assert {name for name, _, _ in jetson.read()} == {"rail_power"}
    assert jetson.missing == dict.fromkeys(
        ("jetson_gpu_use", "jetson_gpu_frequency"), "devfreq shows no Tegra GPU"
    )


def test_an_empty_machine_gives_nothing_and_says_why_of_each_reader(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    readers, missing = find_readers(tmp_path)
    assert {reader.name for reader in readers} == {"cpu"}  # that has nothing to find out
    assert missing.keys() == {kind.name for kind in MACHINE} - {"cpu"}
    assert all(missing.values())
    with pytest.raises(NotAvailable, match="proc/stat: No such file"):
        readers[0].read()


class FakeNvml(ModuleType):
    """The calls of pynvml that are made: two GPUs, of which the second tells no energy."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, number):  # noqa: N802
        return number

    def nvmlDeviceGetName(self, gpu):  # noqa: N802
        return b"Old" if gpu else "New"

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        return SimpleNamespace(gpu=37 + gpu, memory=11 + gpu)

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        return SimpleNamespace(used=(gpu + 1) << 30)

    def nvmlDeviceGetPowerUsage(self, gpu):  # noqa: N802
        return 71_500 + gpu

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):  # noqa: N802
        if gpu == 1:
            raise self.NVMLError("Not Supported")
        return 5_000_250

    def nvmlDeviceGetClockInfo(self, gpu, clock):  # noqa: N802
        return 1000 * clock + gpu


def test_gpus_are_read_in_base_units_and_what_one_lacks_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("pynvml"))
    gpu = Gpu()
    assert gpu.read() == [
        ("gpu_use", "0", 37),
        ("gpu_memory_use", "0", 11),
        ("gpu_memory", "0", 1 << 30),
        ("gpu_power", "0", pytest.approx(71.5)),
        ("gpu_energy", "0", pytest.approx(5000.25)),
        ("gpu_frequency", "0", 1e9),
        ("gpu_memory_frequency", "0", 2e9),
        ("gpu_use", "1", 38),
        ("gpu_memory_use", "1", 12),
        ("gpu_memory", "1", 2 << 30),
        ("gpu_power", "1", pytest.approx(71.501)),
        ("gpu_frequency", "1", 1.001e9),
        ("gpu_memory_frequency", "1", 2.001e9),
    ]
    assert gpu.facts == {"gpu_0": "New", "gpu_1": "Old"}
    assert gpu.missing == {"gpu_energy": "GPU 1: Not Supported"}


def test_no_driver_behind_the_library_is_not_available(monkeypatch):
    class WithoutDriver(FakeNvml):
        def nvmlInit(self):  # noqa: N802
            raise self.NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", WithoutDriver("pynvml"))
    with pytest.raises(NotAvailable, match="NVML: Driver Not Loaded"):
        Gpu()


def test_a_cgroup_of_version_2_gives_memory_cpu_and_pressure(tmp_path):
    write(tmp_path / "memory.current", "8192\n")
    write(tmp_path / "memory.stat", "anon 4096\nfile 2048\nfile_dirty 1024\npgfault 23\nslab 9\n")
    write(tmp_path / "cpu.stat", "usage_usec 1500000\nuser_usec 1000000\n")
    write(tmp_path / "io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n")
    assert {name: value for name, _, value in CgroupReader([tmp_path]).read()} == {
        "cgroup_memory": 8192,
        "cgroup_anon": 4096,
        "cgroup_page_cache": 2048,
        "cgroup_dirty": 1024,
        "cgroup_pgfault": 23,
        "cgroup_cpu_time": 1.5,
        "pressure_io_some_time": 0.25,
    }


CPU_PRESSURE = """\
some avg10=0.00 avg60=0.00 avg300=0.00 total=250000
full avg10=0.00 avg60=0.00 avg300=0.00 total=125000
"""


def test_all_tasks_waiting_for_a_cpu_are_told_of_a_cgroup_that_is_not_the_root(tmp_path):
    both = {"pressure_cpu_some_time": 0.25, "pressure_cpu_full_time": 0.125}
    some = {"pressure_cpu_some_time": 0.25}
    for name, beside, expected in (("job", "cgroup.events", both), ("root", "cgroup.stat", some)):
        write(tmp_path / name / "cpu.pressure", CPU_PRESSURE)
        write(tmp_path / name / "cgroup.controllers", "cpu")
        write(tmp_path / name / beside, "")
        found = {name: value for name, _, value in CgroupReader([tmp_path / name]).read()}
        assert found == expected
    # Kernels before 5.13 have no such line.
    write(tmp_path / "job/cpu.pressure", CPU_PRESSURE.splitlines()[0])
    assert CgroupReader([tmp_path / "job"]).read() == [("pressure_cpu_some_time", None, 0.25)]


def test_all_tasks_of_the_machine_have_no_common_wait_for_a_cpu(tmp_path):
    write(tmp_path / "proc/pressure/cpu", CPU_PRESSURE)
    for resource in ("memory", "io"):
        write(tmp_path / "proc/pressure" / resource, "some total=0\nfull total=0\n")
    found = {name for name, _, _ in Pressure(tmp_path).read()}
    assert {name for name in found if "cpu" in name} == {"pressure_cpu_some_time"}
    assert len(found) == 5


def test_shared_memory_of_a_cgroup_is_told_in_both_versions(tmp_path):
    write(tmp_path / "v2/memory.stat", "file 2048\nshmem 512\nshmem_thp 9\n")
    write(tmp_path / "v2/memory.current", "8192\n")
    write(tmp_path / "v1/memory.stat", "shmem 9\ntotal_cache 2048\ntotal_shmem 512\n")
    write(tmp_path / "v1/memory.usage_in_bytes", "8192\n")
    for version in ("v1", "v2"):
        assert sorted(CgroupReader([tmp_path / version]).read()) == [
            ("cgroup_memory", None, 8192),
            ("cgroup_page_cache", None, 2048),
            ("cgroup_shmem", None, 512),
        ]


def test_disks_are_whole_ones_that_were_used(tmp_path):
    for name in ("vda", "loop0"):
        (tmp_path / "sys/block" / name).mkdir(parents=True)
    write(
        tmp_path / "proc/diskstats",
        "254 0 vda 10 1 80 5 20 2 160 6 0 7 11 0 0 0 0 0 0\n"
        "254 1 vda1 10 1 80 5 20 2 160 6 0 7 11 0 0 0 0 0 0\n"
        "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    )
    assert Disks(tmp_path).read() == [
        ("disk_reads", "vda", 10),
        ("disk_read_bytes", "vda", 40_960),
        ("disk_writes", "vda", 20),
        ("disk_written_bytes", "vda", 81_920),
        ("disk_busy_time", "vda", pytest.approx(0.007)),
    ]


@pytest.mark.parametrize(
    "line", ["254 0 vda 1e9 1 80 5 20 2 160 6 0 7", "254 0 vda -1 1 80 5 20 2 160 6 0 7"]
)
def test_a_counter_that_is_no_number_is_refused(tmp_path, line):
    (tmp_path / "sys/block/vda").mkdir(parents=True)
    write(tmp_path / "proc/diskstats", line)
    with pytest.raises(NotAvailable, match="in place of a number"):
        Disks(tmp_path)


def test_a_file_without_an_end_is_refused(tmp_path):
    folder = tmp_path / "proc/pressure"
    write(folder / "cpu", "some total=1\n" * 100_000)
    with pytest.raises(NotAvailable, match="longer than 1048576 bytes"):
        Pressure(tmp_path)


def test_a_name_is_one_series_and_every_series_is_in_the_docs():
    page = (ROOT / "docs/samples.md").read_text()
    declared = {}
    for reader in READERS:
        for series in reader.series:
            assert declared.setdefault(series.name, series) is series
            assert f"| `{series.name}` | {series.unit} |" in page
            if series.rate is not None:
                assert declared.setdefault(series.rate.name, series) is series
                assert f"| `{series.rate.name}` | {series.rate.unit} |" in page
