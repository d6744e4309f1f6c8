"""Use and power of machines with several GPUs, or with several supply rails."""

import pandas as pd
import pytest

from tests.support.run_frames import run
from tracer.analysis.studies.papers import prashanthi2023


def medians(of, repeats=2):
    """The table of medians, of runs with these values by place, series and instance."""
    rows = [
        {**run(where, repeat, "lenet"), "name": name, "instance": instance, "unit": "",
         "share": 0.5, "value": value}
        for repeat in range(repeats)
        for where, series in of.items()
        for name, values in series.items()
        for instance, value in values.items()
    ]  # fmt: skip
    found = prashanthi2023.usage_medians(pd.DataFrame(rows))
    own = found[(found["model"] == "lenet") & (found["mode"] == "train")]
    return own.set_index("series")


def test_runs_pair_once_however_many_gpus_they_have():
    gpus = {"gpu_use": {"0": 40.0, "1": 80.0}, "gpu_power": {"0": 100.0, "1": 150.0}}
    found = medians({"host": gpus, "1": gpus})
    use, power = found.loc["GPU utilisation, %"], found.loc["power, W"]
    assert (use["bare_metal_median"], use["container_median"], use["pairs"]) == (60, 60, 2)
    assert (power["bare_metal_median"], power["container_median"], power["pairs"]) == (250, 250, 2)
    for one in (use, power):
        assert [one[f"increase_percent{end}"] for end in ("", "_low", "_high")] == [0, 0, 0]


def test_the_power_of_a_module_includes_that_of_its_rails():
    rails = {"VDD_IN": 30.0, "VDD_CPU": 10.0, "VDD_GPU": 14.0}
    more = {**rails, "VDD_IN": 33.0, "VDD_GPU": 17.0}
    found = medians({"host": {"rail_power": rails}, "1": {"rail_power": more}})
    power = found.loc["power, W"]
    assert (power["bare_metal_median"], power["container_median"]) == (30, 33)
    assert (power["increase_percent"], power["pairs"]) == (pytest.approx(10), 2)
    del rails["VDD_IN"]
    assert medians({"host": {"rail_power": rails}}).loc["power, W", "bare_metal_median"] == 24


def test_one_gpu_whose_power_is_not_known_leaves_the_machine_s_unknown():
    some = {"gpu_power": {"0": 100.0, "1": None}}
    with_use = {**some, "gpu_use": {"0": 40.0, "1": 80.0}}
    found = medians({"host": with_use, "1": with_use})
    assert pd.isna(found.loc["power, W", "bare_metal_median"])
