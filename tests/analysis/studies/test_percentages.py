"""Tables of shares: their intervals have no more than 100 %, and are those of the logit."""

import math

import pandas as pd
import pytest

from tests.support.run_frames import run
from tracer.analysis.studies.papers import prashanthi2022, prashanthi2022_modes, prashanthi2023

SHARES = [98.0, 99.0, 79.0]
MEAN = 92.0
# The standard deviation is sqrt(127) %; Student's t of two degrees of freedom is 4.3027.
STEP = 4.3027 * math.sqrt(127 / 3) / 100 / (0.92 * 0.08)
ENDS = [100 / (1 + math.exp(-(math.log(0.92 / 0.08) + step))) for step in (-STEP, STEP)]


def ends(row, name):
    return [row[f"{name}{end}"] for end in ("", "_low", "_high")]


def epochs(**factors):
    """A later epoch of three runs, whose shares of pages are `SHARES`."""
    rows = [
        {**run("host", repeat, "lenet", workers=4), **factors, "id": str(repeat), "epoch": 1,
         "stall_s": 1.0, "read_bytes": 0, "page_cache_bytes": 0, "residency_percent": share,
         "hit_percent": share, "again_percent": share}
        for repeat, share in enumerate(SHARES)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (lambda: prashanthi2022.stall_by_epoch(epochs()), ("residency_percent", "hit_percent")),
        (
            lambda: prashanthi2022_modes.stall_by_memory(epochs(memory="700m")),
            ("hit_percent", "again_percent"),
        ),
    ],
)
def test_shares_of_pages_have_intervals_below_100(table, names):
    (row,) = table().to_dict("records")
    for name in names:
        assert ends(row, name) == pytest.approx([MEAN, *ENDS], 1e-3)


def test_the_use_of_cpus_has_an_interval_below_100_and_power_has_none_such():
    rows = [
        {**run("host", repeat, "lenet"), "name": name, "instance": None, "unit": "",
         "share": 0.5, "value": value}
        for repeat, value in enumerate(SHARES)
        for name in ("cpu_use", "gpu_power")
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    medians = prashanthi2023.usage_medians(frame).set_index(["mode", "model", "series"])
    use = medians.loc[("train", "lenet", "CPU utilisation, %")]
    assert ends(use, "bare_metal_median") == pytest.approx([MEAN, *ENDS], 1e-3)
    spread = prashanthi2023.usage_spread(frame).set_index("series")
    assert ends(spread.loc["CPU utilisation"], "value") == pytest.approx([MEAN, *ENDS], 1e-3)
    assert medians.loc[("train", "lenet", "power, W"), "bare_metal_median_high"] > 100
