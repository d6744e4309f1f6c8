"""Power modes on recorded trees of sysfs: values, their order, and their restoration."""

import json
import os

import pytest

from tests.support.machines import CPU, JETSON, LAPTOP, UNIFIED, contents
from tracer.workloads.errors import JobError
from tracer.workloads.modes import frequency
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mode import PowerMode, parse
from tracer.workloads.modes.setting import PowerModes


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


def test_more_cores_than_the_machine_has_are_refused(machine, tmp_path):
    with (
        PowerModes(True, tmp_path / "state", machine(UNIFIED)) as modes,
        pytest.raises(JobError, match="the power mode asks for 5000"),
        modes.applied(PowerMode(cores=5000), containers=False),
    ):
        pytest.fail("the run was made")
