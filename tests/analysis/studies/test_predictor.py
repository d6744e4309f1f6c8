"""Epoch times and energy of power modes, predicted from some of them."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from tracer.analysis.cli.power_modes import as_json
from tracer.analysis.studies import claims
from tracer.analysis.studies.power_modes import power_modes
from tracer.analysis.studies.predictor import choose, mape, predict
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow

NO_ENERGY = "energy is not available: rapl: none"

REFERENCE = pd.DataFrame(
    [
        # AGX modes of Prashanthi et al. 2022, Table 4: cores, CPU, GPU and memory MHz.
        ("a", 4, 1200, 670, 1333), ("b", 8, 1200, 670, 1333), ("c", 8, 1200, 900, 1333),
        ("d", 8, 1200, 900, 1600), ("e", 8, 2100, 900, 1600), ("f", 2, 2100, 900, 1600),
        ("g", 8, 2265, 1377, 2133), ("h", 8, 2265, 1377, 1066), ("i", 8, 2265, 1377, 1333),
        ("j", 8, 2265, 1377, 1600), ("k", 4, 1036, 420, 2133), ("l", 8, 1036, 420, 2133),
        ("m", 8, 2265, 420, 2133), ("n", 8, 2265, 900, 2133),
    ],
    columns=["power_mode", "cores", "cpu_mhz", "gpu_mhz", "memory_mhz"],
).set_index("power_mode")  # fmt: skip


def linear(settings, weights, constant=300.0):
    return settings.mul(pd.Series(weights), axis=1).sum(axis=1) + constant


FAST = {"cores": -4.0, "cpu_mhz": -0.05, "gpu_mhz": -0.04, "memory_mhz": -0.01}
SLOW = {"cores": -8.0, "cpu_mhz": -0.02, "gpu_mhz": -0.09, "memory_mhz": -0.03}


def test_a_linear_machine_is_predicted_exactly_from_one_mode_more_than_settings():
    times = linear(REFERENCE, FAST)
    chosen = choose(times.to_frame("lenet"), REFERENCE, count=5)
    predicted = predict(times[chosen], REFERENCE)
    assert predicted.to_numpy() == pytest.approx(times.to_numpy())
    assert mape(times, predicted) == pytest.approx(0, abs=1e-9)


def test_the_modes_are_those_that_predict_the_others_best():
    """Held against scikit-learn's regression on every set of four."""
    times = pd.DataFrame({"lenet": linear(REFERENCE, FAST), "resnet18": linear(REFERENCE, SLOW)})
    times = times.iloc[:8]
    times.loc["h"] *= 1.5  # a mode that tells little of the others
    settings = REFERENCE.loc[times.index]
    scaled = (settings - settings.mean()) / settings.std(ddof=0)
    errors = {}
    for names in itertools.combinations(times.index, 4):
        model = LinearRegression().fit(scaled.loc[[*names]], times.loc[[*names]])
        rest = times.drop([*names])
        predicted = model.predict(scaled.loc[rest.index])
        errors[names] = np.sqrt(((predicted - rest) ** 2).mean()).sum()
    chosen = tuple(choose(times, settings))
    assert errors[chosen] == pytest.approx(min(errors.values()))
    assert errors[chosen] < max(errors.values())


def test_no_unit_weighs_more_than_another():
    times = linear(REFERENCE, FAST)
    in_ghz = REFERENCE.assign(cpu_mhz=REFERENCE["cpu_mhz"] / 1000)
    few = times[["b", "e", "g", "k"]]  # fewer than settings and a constant
    assert predict(few, in_ghz).to_numpy() == pytest.approx(predict(few, REFERENCE).to_numpy())


def test_a_setting_that_does_not_vary_plays_no_part():
    times = linear(REFERENCE, FAST)
    same = REFERENCE.assign(cpu_quota=1.0)
    few = times[["a", "e", "f", "g", "h"]]
    assert predict(few, same).to_numpy() == pytest.approx(predict(few, REFERENCE).to_numpy())


def test_too_few_modes_are_an_error_that_says_how_many_it_takes():
    times = linear(REFERENCE, FAST).to_frame("lenet")
    with pytest.raises(UsageError, match=r"4 power modes were measured for every job.*needs 5"):
        choose(times.iloc[:4], REFERENCE)
    with pytest.raises(UsageError, match="do not differ in any setting"):
        choose(times, REFERENCE[["cores"]].assign(cores=8))
    with pytest.raises(UsageError, match="1 power modes were measured"):
        predict(times["lenet"].iloc[:1], REFERENCE)


def study(energy=None, weights=FAST, noise=0.0, repeats=2, models=("lenet", "mobilenet")):
    """Runs of a study in the AGX's modes, g the default one."""
    draw = np.random.default_rng(1)
    rows = []
    for model, repeat in itertools.product(models, range(repeats)):
        for mode, settings in REFERENCE.iterrows():
            time = linear(settings.to_frame().T, weights).iloc[0] * (1 + noise * draw.normal())
            time *= 1 + models.index(model)
            rows.append(
                {
                    "id": f"{model}{mode}{repeat}", "model": model, "mode": "train",
                    "where": "host", "repeat": repeat, **settings,
                    "power_mode": "default" if mode == "g" else mode,
                    "power_mode_by": {"cpu_mhz": "cpufreq"},
                    "later_epoch_s": time,
                    "epoch_energy_j": None if energy is None else energy(settings, time),
                    "epoch_energy_j_why": NO_ENERGY if energy is None else None,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def power(settings, time):
    """A large baseload, and a part that grows with the settings."""
    return time * (10 + 0.004 * settings["cpu_mhz"] + 0.01 * settings["gpu_mhz"])


def test_a_study_s_power_modes_are_measured_and_predicted():
    found = power_modes(study(noise=0.01))
    assert len(found.modes) == 2 * len(REFERENCE)
    assert len(found.profiled) == 4
    assert found.modes.loc[found.modes["power_mode"].isin(found.profiled), "profiled"].all()
    held_out = found.modes[~found.modes["profiled"]]
    by_hand = (
        (100 * (held_out["predicted_s"] / held_out["epoch_s"] - 1).abs())
        .groupby(held_out["job"])
        .mean()
    )
    assert found.jobs.set_index("job")["mape"].to_dict() == pytest.approx(by_hand.to_dict())
    assert found.jobs["unseen_mape"].notna().all()
    assert found.set_by == {"cpu_mhz": "cpufreq"}
    assert found.missing == {"energy_j": NO_ENERGY}
    assert found.modes["energy_j"].isna().all() and "on_front" not in found.modes


def test_with_energy_there_is_a_front_and_a_prediction_of_energy():
    found = power_modes(study(power))
    assert found.missing == {}
    own = found.modes[found.modes["job"] == "lenet"]
    front = own[own["on_front"] == 1]
    assert own["epoch_s"].idxmin() in front.index and own["energy_j"].idxmin() in front.index
    assert front.sort_values("energy_j")["epoch_s"].is_monotonic_decreasing
    assert found.modes["predicted_energy_j"].notna().all()
    assert found.jobs["energy_mape"].notna().all()


def test_a_study_without_modes_has_nothing_to_tell_and_one_with_few_says_so():
    runs = study()
    assert power_modes(runs[runs["power_mode"] == "default"]) is None
    assert power_modes(pd.DataFrame({"id": [], "model": [], "mode": []})) is None
    few = power_modes(runs[runs["power_mode"].isin(["default", "a", "b"])])
    assert "the prediction needs 5" in few.missing["predicted_s"]
    assert few.modes["epoch_s"].notna().all()


def test_runs_that_differ_in_more_than_the_mode_are_jobs_of_their_own():
    runs = pd.concat([study(models=("lenet",)), study(models=("lenet",)).assign(where="1")])
    runs["cache"], runs["workers"] = "dropped", np.nan
    alone = study(models=("lenet",), repeats=1).query("power_mode == 'default'")
    found = power_modes(pd.concat([runs, alone.assign(where="host", cache="kept", workers=2)]))
    assert found.jobs["job"].tolist() == ["lenet where=1", "lenet where=host"]


def test_a_default_mode_on_another_medium_is_another_job_and_no_part_of_the_mean():
    runs = study(models=("lenet", "vgg11"))
    runs["medium"], runs["dataset"] = "disk", np.nan
    slow = runs.query("power_mode == 'default'").assign(medium="hdd")
    slow["later_epoch_s"] *= 100
    found = power_modes(pd.concat([runs, slow]))
    assert found.jobs["job"].tolist() == ["lenet", "vgg11"]
    pd.testing.assert_frame_equal(found.modes, power_modes(runs).modes)


def test_a_factor_that_one_job_leaves_to_its_model_is_not_named():
    runs = study(models=("lenet", "resnet18"))
    runs["dataset"] = runs["model"].map({"resnet18": "cifar10"})
    assert power_modes(runs).jobs["job"].tolist() == ["lenet", "resnet18 dataset=cifar10"]


def test_a_mode_that_failed_for_one_job_is_not_learned_from():
    runs = study(noise=0.01)
    runs = runs[~((runs["model"] == "lenet") & (runs["power_mode"].isin(["a", "e"])))]
    found = power_modes(runs)
    assert not {"a", "e"} & set(found.profiled)
    assert found.modes["predicted_s"].notna().all()


def test_modes_are_json_and_what_is_not_there_is_null():
    told = as_json(power_modes(study(power)))
    assert json.loads(json.dumps(told, allow_nan=False))["jobs"][0]["job"] == "lenet"
    assert as_json(None) is None
    rows = as_json(power_modes(study()))["modes"]
    assert {row["energy_j"] for row in rows} == {None}


def verdict(id, frame):
    return claims.judge_one(claims.claims()[id], frame)


def test_j8_is_the_share_of_modes_that_were_predicted_well():
    runs = study(noise=0.001)
    held_out = power_modes(runs).modes.query("~profiled")
    expected = (held_out["error_percent"].abs() <= 10).mean()
    found = verdict("J8", runs)
    assert found.value == pytest.approx(expected)
    assert found.values == len(held_out) == 20
    assert found.verdict == claims.AGREES
    wild = verdict("J8", study(noise=0.8))
    assert wild.verdict == claims.DIFFERS
    few = verdict("J8", runs[runs["power_mode"].isin(["default", "a", "b"])])
    assert (few.verdict, "needs 5" in few.why) == (claims.UNMEASURED, True)


def test_j7_asks_whether_the_default_mode_is_beaten_and_says_why_it_cannot():
    without = verdict("J7", study())
    assert without.verdict == claims.UNMEASURED
    assert without.why == NO_ENERGY
    # g, the default, is the fastest of all: nothing beats it.
    assert verdict("J7", study(power)).verdict == claims.DIFFERS

    runs = study(power)
    default = runs["power_mode"] == "default"
    runs.loc[default, ["later_epoch_s", "epoch_energy_j"]] *= 3
    assert verdict("J7", runs).verdict == claims.AGREES


def test_j7_counts_the_repeats_that_have_energy():
    runs = study(power, repeats=3)
    default = runs["power_mode"] == "default"
    runs.loc[default, ["later_epoch_s", "epoch_energy_j"]] *= 3
    runs.loc[runs["repeat"] == 1, "epoch_energy_j"] = np.nan
    found = verdict("J7", runs)
    assert (found.value, found.values, found.verdict) == (1, 2, claims.AGREES)


def slowdowns(host, container):
    """Compute times of a step: in the default mode, with less CPU, with fewer cores."""
    rows = [
        {"model": "mobilenet", "mode": "train", "where": where, "repeat": repeat, "id": "x",
         "power_mode": mode, "cores": cores, "cpu_quota": quota,
         "train_compute_mean_ms": 10.0 * slower * (1 + repeat / 100)}
        for where, times in (("host", host), ("1", container))
        for (mode, cores, quota), slower in zip(
            (("default", 2, 1.0), ("cpu_quota 0.68", 2, 0.68), ("cores 1", 1, 1.0)),
            times, strict=True,
        )
        for repeat in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("container", "value", "expected"),
    [(1.361, 0.254, claims.AGREES), (1.0, -0.107, claims.DIFFERS)],
)
def test_c3_holds_a_container_s_slowdown_against_the_host_s(container, value, expected):
    found = verdict("C3", slowdowns((1, 1.107, 9), (1, container, 1)))
    assert (found.value, found.values) == (pytest.approx(value), 3)
    assert found.verdict == expected


def test_c3_is_about_runs_with_workers():
    runs = slowdowns((1, 1.107, 9), (1, 1.361, 1)).assign(workers=4)
    without = slowdowns((1, 3, 9), (1, 1, 1)).assign(workers=0)
    assert verdict("C3", pd.concat([runs, without])) == verdict("C3", runs)


def test_c3_wants_host_and_container():
    runs = slowdowns((1, 1.1, 9), (1, 1.3, 1))
    assert verdict("C3", runs[runs["where"] == "host"]).verdict == claims.UNMEASURED


def test_runs_in_other_modes_are_compared_with_nothing_else():
    runs = slowdowns((1, 5, 5), (2, 90, 90)).assign(
        train_compute_ms=lambda r: r.train_compute_mean_ms
    )
    found = verdict("C1", runs)
    assert (found.value, found.values) == (pytest.approx(2), 3)
