"""The papers' tables of epochs: by workers, medium, power mode and memory."""

import pandas as pd
import pytest

from tests.support.run_frames import row, run
from tracer.analysis.studies.papers import (
    prashanthi2022,
    prashanthi2022_modes,
)
from tracer.analysis.studies.papers.made import made
from tracer.analysis.studies.papers.parts import parts


def epoch(number, workers=4, repeat=0, batch_size=16, **more):
    times = {"stall_s": 1.0, "compute_s": 2.0, "overhead_s": 0.5, "epoch_s": 4.0, "steps": 10}
    unknown = {"read_bytes": None, "page_cache_bytes": None, "residency_percent": None}
    unknown |= {"hit_percent": None, "again_percent": None}
    factors = run("host", repeat, "lenet", workers=workers, batch_size=batch_size)
    factors["id"] += f"-{batch_size}"
    return {**factors, "epoch": number, **times, **unknown, **more}


def test_epochs_by_workers_leave_out_the_first_and_runs_that_differ_otherwise():
    rows = [
        epoch(number, workers, repeat, stall_s=9.0 if number == 0 else stall + number)
        for workers, stall in ((0, 3.0), (4, 1.0))
        for repeat in (0, 1)
        for number in (0, 1, 2)
    ]
    rows += [epoch(number, batch_size=64) for number in (0, 1)]
    found = prashanthi2022.stall_by_workers(pd.DataFrame(rows))
    assert found["workers"].tolist() == [0, 4]
    assert found["stall_s"].tolist() == [4.5, 2.5]
    assert found["runs"].tolist() == [2, 2]  # epochs of a run are no repeats
    found = prashanthi2022.stall_by_batch(pd.DataFrame(rows))
    assert found[["batch_size", "stall_ms", "compute_ms"]].to_numpy().tolist() == [
        [16, 250, 200], [64, 100, 200],
    ]  # fmt: skip


def test_epochs_by_medium_have_the_first_apart():
    rows = [
        epoch(number, repeat=repeat, epoch_s=s if number else 3 * s, medium=medium)
        for medium, s in (("disk", 2.0), ("hdd", 8.0))
        for repeat in (0, 1)
        for number in (0, 1, 2)
    ]
    for one in rows:
        one["id"] += one["medium"]
    found = prashanthi2022.stall_by_medium(pd.DataFrame(rows))
    assert found[["medium", "epoch", "epoch_s", "runs"]].to_numpy().tolist() == [
        ["disk", "first", 6, 2], ["disk", "later", 2, 2],
        ["hdd", "first", 24, 2], ["hdd", "later", 8, 2],
    ]  # fmt: skip
    assert prashanthi2022.stall_by_medium(pd.DataFrame(rows[:6])).empty


def test_the_first_epoch_of_a_resumed_training_is_apart_too():
    """It goes on with epoch 5; of another run, the recording has only a part of the first epoch."""
    rows = [
        epoch(number, repeat=repeat, stall_s=stall)
        for repeat, stalls in enumerate(((10.0, 1.0, 1.0), (11.0, 1.0, 1.0)))
        for number, stall in enumerate(stalls, 5)
    ]
    rows += [epoch(number, repeat=2, stall_s=stall) for number, stall in ((3, None), (4, 1.0))]
    found = prashanthi2022.stall_by_epoch(pd.DataFrame(rows)).set_index("epoch")
    assert found.loc["first", "stall_s"] == 10.5
    assert found.loc["later", "stall_s"] == 1
    spread = prashanthi2022.epoch_spread(pd.DataFrame(rows))
    assert spread["spread_percent"].tolist() == [0]


def test_the_first_epoch_s_stall_is_apart_and_what_is_not_known_is_null():
    rows = [
        epoch(number, stall_s=stall, read_bytes=read)
        for number, stall, read in ((0, 8.0, 3e6), (1, 1.0, 0.0), (2, 3.0, 1e6))
    ]
    found = prashanthi2022.stall_by_epoch(pd.DataFrame(rows))
    assert found["epoch"].tolist() == ["first", "later"]
    assert found["stall_s"].tolist() == [8, 2]
    assert found["read_mb"].tolist() == [3, 0.5]
    assert found["residency_percent"].isna().all()


def test_epochs_vary_within_a_run():
    rows = [
        epoch(n, repeat=r, epoch_s=s) for r in (0, 1) for n, s in ((0, 50.0), (1, 9.0), (2, 11.0))
    ]
    found = prashanthi2022.epoch_spread(pd.DataFrame(rows))
    assert found["epoch_s"].tolist() == [10]
    assert found["spread_percent"][0] == pytest.approx(100 * 2**0.5 / 10)
    found = prashanthi2022.epoch_times(pd.DataFrame(rows))
    assert found["of_mean_percent"].tolist() == [90, 110] * 2


def test_epochs_by_power_mode_leave_out_limits_and_jobs_of_one_mode():
    rows = [
        epoch(number, stall_s=9.0 if number == 0 else stall + number, power_mode=mode, cores=cores)
        for mode, cores, stall in (("default", 2, 1.0), ("cores 1", 1, 3.0))
        for number in (0, 1, 2)
    ]
    for one in rows:
        one["id"] += one["power_mode"]
    confounders = [epoch(1, memory="1g", power_mode="cores 1"), epoch(1, power_mode="default")]
    confounders[0]["id"] = "limited"
    confounders[1] |= {"id": "alone", "model": "vgg11"}
    found = prashanthi2022_modes.parts_by_mode(pd.DataFrame(rows + confounders))
    assert found[["power_mode", "stall_s", "settings", "runs"]].to_numpy().tolist() == [
        ["cores 1", 4.5, "", 1], ["default", 2.5, "", 1],
    ]  # fmt: skip


def test_limited_memory_stands_beside_the_runs_that_are_alike():
    rows = [
        epoch(number, read_bytes=read, memory=memory, power_mode="default")
        for memory, reads in (("700m", (3e6, 3e6, 2e6)), (None, (3e6, 0.0, 0.0)))
        for number, read in enumerate(reads)
    ]
    for one in rows:
        one["id"] += str(one["memory"])
    other = epoch(1, workers=0, read_bytes=9e6, memory=None, power_mode="default")
    other["id"] = "other"  # no run with its workers is limited
    found = prashanthi2022_modes.stall_by_memory(pd.DataFrame([*rows, other]))
    limited, free = found[found["memory"].notna()], found[found["memory"].isna()]
    assert limited["read_mb"].tolist() == [3, 2.5]
    assert free["read_mb"].tolist() == [3, 0]
    with pytest.raises(KeyError, match="memory"):
        prashanthi2022_modes.stall_by_memory(pd.DataFrame(rows).drop(columns="memory"))


def moded(mode, cores, quota, s, **more):
    factors = {**run("host", model="lenet"), "id": mode, "power_mode": mode}
    return {**factors, "cores": cores, "cpu_quota": quota, "later_epoch_s": s, **more}


def test_modes_that_differ_in_one_setting_are_pairs():
    rows = [
        moded("default", 2, 1.0, 4.0, epoch_energy_j=20.0),
        moded("cores 1", 1, 1.0, 6.0, epoch_energy_j=25.0),
        moded("half", 2, 0.5, 8.0, epoch_energy_j=None),
        moded("both", 1, 0.6, 12.0, epoch_energy_j=None),
    ]
    found = prashanthi2022_modes.by_one_setting(pd.DataFrame(rows))
    cores = row(found, setting="cores")
    assert cores[["low", "high", "others"]].tolist() == [1, 2, "cpu_quota 1"]
    assert cores["change_percent"] == pytest.approx(-100 / 3)
    assert cores["energy_change_percent"] == pytest.approx(-20)
    quota = found[found["setting"] == "cpu_quota"].set_index("others")
    assert quota["change_percent"].to_dict() == {"cores 2": -50, "cores 1": -50}
    assert quota["energy_change_percent"].isna().all()
    assert prashanthi2022_modes.by_one_setting(pd.DataFrame(rows[:1])).empty


def test_energy_is_of_an_epoch_and_its_absence_has_the_runs_reason():
    part = next(part for part in parts("002") if "2c" in part.title)
    rows = [
        moded("default", 2, 1.0, s, epoch_energy_j=j, baseload_share=0.25, repeat=n)
        for n, (s, j) in enumerate(((4.0, 20.0), (4.0, 28.0)))
    ]
    rows += [{**rows[0], "where": "1", "epoch_energy_j": 999.0}]
    (found,) = prashanthi2022_modes.epoch_energy(pd.DataFrame(rows)).to_dict("records")
    assert (found["energy_j"], found["mean_w"], found["baseload_percent"]) == (24, 6, 25)
    without = pd.DataFrame(rows).drop(columns=["epoch_energy_j", "baseload_share"])
    without["epoch_energy_j_why"] = "no reader of power"
    assert made(part, without).why == "not measured: no reader of power"


def test_energy_is_of_runs_without_limits_and_of_equal_settings():
    def runs(j, model="lenet", **more):
        usual = {
            "workers": 4, "medium": "disk", "batch_size": 16, "cache": "warm", "memory": None,
            "checkpoint_way": None,
        }  # fmt: skip
        factors = {**run("host", model=model), **usual, **more}
        return [
            {**factors, "id": f"{j} {n}", "repeat": n, "later_epoch_s": 2.0, "epoch_energy_j": j}
            for n in range(2)
        ]

    def found(*kinds):
        frame = pd.DataFrame([one for kind in kinds for one in kind])
        rows = prashanthi2022_modes.epoch_energy(frame).to_dict("records")
        return {
            (one["settings"], one["workers"], one["power_mode"]): (one["energy_j"], one["runs"])
            for one in rows
        }

    default = {"power_mode": "default"}
    assert found(
        runs(100.0, **default),
        runs(50.0, power_mode="cores 1"),
        runs(30.0, workers=0, **default),
        runs(70.0, batch_size=64, **default),
        runs(60.0, cache="drop", **default),
        runs(900.0, memory="700m", **default),
        runs(800.0, memory="700m", power_mode="cores 1"),
        runs(700.0, checkpoint_way="rename", **default),
    ) == {
        ("", 4, "default"): (100, 2),
        ("", 4, "cores 1"): (50, 2),
        ("", 0, "default"): (30, 2),
        ("batch_size 64", 4, "default"): (70, 2),
        ("cache drop", 4, "default"): (60, 2),
    }
    assert found(runs(100.0)) == {("", 4, "default"): (100, 2)}  # a study without power modes


@pytest.mark.parametrize("figure", ["Figure 6: freq", "Figure 7: power"])
def test_a_figure_that_cannot_be_measured_says_why(figure):
    part = next(part for part in parts("002") if part.title.startswith(figure))
    assert made(part, pd.DataFrame([moded("default", 2, 1.0, 4.0)])).why.startswith("not measured")
