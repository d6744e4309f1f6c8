"""Claims judged by frames of runs."""

import numpy as np
import pandas as pd
import pytest

from tests.support.run_frames import verdict
from tracer.analysis.studies import claims

pytestmark = pytest.mark.slow


def runs(host, one, four=(), measure="faults"):
    """A row a run, in three places; the number of a value is its repeat."""
    rows = [
        {"model": "lenet", "mode": "train", "where": where, "repeat": repeat, measure: value}
        for where, values in (("host", host), ("1", one), ("4", four))
        for repeat, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ([250.0, 251.0, 249.0], claims.AGREES),
        ([103.0, 102.0, 104.0], claims.DIFFERS),
        ([100.0, 300.0, 200.0], claims.UNDECIDED),
        ([250.0], claims.UNMEASURED),
        ([], claims.UNMEASURED),
    ],
)
def test_a_verdict_is_where_the_whole_interval_lies(container, expected):
    found = verdict("P2", runs([100.0] * 3, container))
    assert found.verdict == expected
    assert found.paper_value == "2.04x"
    if expected != claims.UNMEASURED:
        assert found.value == pytest.approx(np.mean(container) / 100)
        assert found.low < found.value < found.high
        assert found.values == 3


def test_pairs_are_of_the_same_model_and_repeat():
    frame = runs([100.0, 200.0, 400.0], [220.0, 440.0, 880.0])
    frame = frame.sample(frac=1, random_state=1)
    found = verdict("P2", frame)
    assert (found.value, found.low, found.high) == pytest.approx((2.2, 2.2, 2.2))


def test_an_unmeasured_claim_says_why():
    frame = runs([1.0, 2.0], [1.0, 2.0])
    found = {v.id: v for v in claims.judge(frame)}
    assert found.keys() == claims.claims().keys()
    assert "no run has 'cpu_s'" in found["P1"].why.replace('"', "'") or "cpu_s" in found["P1"].why
    assert claims.TESTS.keys() == found.keys()
    assert found["J8"].why == "this study has no runs for it"
    nothing = runs([1.0] * 2, [1.0] * 2).assign(writeback_interval_s=np.nan)
    assert verdict("P6", nothing).why == "this study has no runs for it"
    assert verdict("P5", nothing).why == "its runs recorded no such events, or too few"
    assert {v.seed for v in claims.claims().values()} == {"000", "001", "002"}
    assert all(v.id.startswith("P") for v in claims.judge(frame, "001"))


def test_missing_and_zero_values_are_no_values():
    frame = runs([100.0, 0.0, np.nan, 100.0], [250.0, 250.0, 250.0, 250.0])
    assert verdict("P2", frame).values == 2


def test_pairs_that_cannot_be_divided_are_counted_in_the_note():
    """One worker cuts a's stall to a tenth; b had no stall before, and has 5 ms with it."""
    rows = [
        {"model": model, "mode": "train", "where": "host", "repeat": repeat, "workers": workers,
         "train_fetch_stall_ms": ms}
        for model, workers, ms in (("a", 0, 10.0), ("a", 1, 1.0), ("b", 0, 0.0), ("b", 1, 5.0))
        for repeat in range(3)
    ]  # fmt: skip
    found = verdict("J2", pd.DataFrame(rows))
    assert (found.value, found.values) == (pytest.approx(0.1), 3)
    assert "models: a; repeats: 3; 3 more have a divisor of 0" in found.why
    whole = pd.DataFrame(rows)
    assert "divisor" not in verdict("J2", whole[whole["model"] == "a"]).why
    alone = verdict("J2", whole[whole["model"] == "b"])
    assert (alone.verdict, alone.why) == (claims.UNMEASURED, "every divisor is 0")


def test_the_share_of_four_is_less_that_of_one():
    frame = runs([], [0.2, 0.3, 0.25], [0.4, 0.5, 0.45], "writebacks_background")
    assert verdict("P10", frame).value == pytest.approx(0.2)
    assert verdict("P10", frame).verdict == claims.AGREES


def test_a_constant_measure_does_not_grow():
    assert verdict("P10", runs([], [0.2] * 3, [0.2] * 3, "writebacks_background")).verdict == (
        claims.DIFFERS
    )


def test_a_claim_of_two_parts_holds_where_both_do():
    """Containers write back more often, which is half of P5; the other is how evenly."""
    frame = runs([4.0] * 3, [2.0] * 3, measure="writeback_interval_s")
    frame["writeback_interval_std_s"] = [1.0] * 3 + [1.5] * 3
    assert verdict("P5", frame).verdict == claims.AGREES
    frame["writeback_interval_std_s"] = [1.0] * 3 + [0.5] * 3
    assert verdict("P5", frame).verdict == claims.DIFFERS
    assert "standard deviation" in verdict("P5", frame).why


def test_runs_with_limits_are_compared_with_nothing_else():
    frame = runs([100.0] * 3, [250.0] * 3)
    frame["cpus"], frame["seccomp"] = None, True
    limited = frame[frame["where"] == "1"].assign(cpus=0.5, faults=1.0)
    found = verdict("P2", pd.concat([frame, limited]))
    assert (found.value, found.values) == (2.5, 3)


def test_a_factors_effect_is_measured_between_runs_that_differ_only_in_it():
    rows = [
        {"model": "lenet", "mode": "train", "where": where, "repeat": repeat, "seccomp": seccomp,
         "workers": workers, "train_compute_ms": ms, "train_fetch_stall_ms": ms}
        for where, seccomp, workers, ms in (
            ("host", True, 1, 1.0), ("host", True, 0, 10.0),
            ("1", True, 1, 4.0), ("1", False, 1, 4.2), ("1", True, 0, 40.0),
        )
        for repeat in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    assert verdict("C6", frame).value == pytest.approx(1.05)
    assert verdict("C6", frame).verdict == claims.AGREES
    assert verdict("J2", frame).value == pytest.approx(0.1)
    # Without workers, a container's overhead is as large; C1 is about runs with workers.
    assert "with 0 workers / with more: 1 [1, 1]" in verdict("C6", frame).why
    assert (verdict("C1", frame).value, verdict("C1", frame).values) == (4, 3)


def test_runs_that_tell_no_factor_do_not_differ_in_it():
    """Each run would pair with itself, as if a factor changed nothing."""
    rows = [
        {"model": "lenet", "mode": "train", "where": where, "repeat": repeat,
         "train_compute_ms": 10.0 + repeat, "train_step_mean_ms": 10.0 + repeat,
         "train_fetch_stall_ms": 1.0, "train_stall_share": 0.1, "epoch_s": 1.0 + repeat}
        for where in ("host", "1") for repeat in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    for id, factor in (("J2", "workers"), ("J3", "workers"), ("J5", "batch_size")):
        found = verdict(id, frame)
        assert (found.verdict, found.why) == (claims.UNMEASURED, f"no run has {factor}")
    assert verdict("C6", frame).verdict == claims.UNMEASURED


def test_inference_s_overhead_is_held_against_training_s_of_the_same_model():
    rows = [
        {"model": model, "mode": mode, "where": where, "repeat": repeat,
         "train_compute_ms": ms, "inference_forward_ms": ms}
        for model, mode, host, one in (
            ("lenet", "train", 1.0, 1.5), ("lenet", "infer", 1.0, 1.3),
            ("mobilenet", "train", 1.0, 1.2), ("mobilenet", "infer", 1.0, 1.1),
            ("resnet50", "infer", 1.0, 9.0),  # which was not trained
        )
        for where, ms in (("host", host), ("1", one))
        for repeat in range(2)
    ]  # fmt: skip
    found = verdict("C9", pd.DataFrame(rows))
    assert (found.value, found.values) == (pytest.approx(-0.15), 4)
    assert "models and repeats" in found.why and "lenet -0.2, mobilenet -0.1" in found.why
    # Without workers, training's overhead is large; the paper has that as an experiment of its own.
    without = pd.DataFrame(rows)[lambda runs: runs["model"].eq("lenet") & runs["mode"].eq("train")]
    without = without.assign(workers=0)
    without.loc[without["where"] == "1", "train_compute_ms"] = 9.0
    both = pd.concat([pd.DataFrame(rows).assign(workers=4), without])
    assert verdict("C9", both) == found


def of_jobs(**measures):
    """Runs of LeNet on the host and in a container; a measure has its value in each."""
    rows = [
        {"model": "lenet", "mode": "train", "where": where, "repeat": repeat, "workers": 4,
         **{name: values[number] * (1 + repeat / 1000) for name, values in measures.items()}}
        for number, where in enumerate(("host", "1"))
        for repeat in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("id", "measure"), [("C4", "syscalls"), ("C7", "energy_j")])
def test_calls_and_energy_are_compared_for_the_same_work(id, measure):
    """The container does fewer steps in ten minutes, each with more calls and more energy."""
    frame = of_jobs(**{measure: (1000.0, 900.0)}).assign(at_least=600.0)
    found = verdict(id, frame.assign(work=[1000] * 3 + [600] * 3))
    assert (found.value, found.verdict) == (pytest.approx(1.5), claims.AGREES)
    assert "per step" in found.measured
    untold = frame.assign(work=None)
    assert verdict(id, untold).verdict == claims.UNMEASURED
    # The work of a given number of epochs is the same.
    assert verdict(id, untold.assign(at_least=None)).value == pytest.approx(0.9)
    assert verdict(id, untold.drop(columns=["at_least", "work"])).value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("id", "measure"),
    [("C2", "cpu_use_percent"), ("C4", "syscalls"), ("C7", "energy_j"),
     ("C8", "memory_median_bytes")],
)  # fmt: skip
def test_runs_without_workers_do_not_count_in_claims_about_the_paper_s_settings(id, measure):
    frame = of_jobs(**{measure: (4e9, 4.2e9)})
    without = of_jobs(**{measure: (6e9, 2e9)}).assign(workers=0)
    found = verdict(id, pd.concat([frame, without]))
    assert found == verdict(id, frame) and found.values == 3
    assert found.verdict == claims.AGREES


def test_the_gpu_s_use_is_that_of_runs_with_workers_too():
    frame = of_jobs(cpu_use_percent=(20.0, 23.0), gpu_use_percent=(90.0, 77.0))
    without = of_jobs(cpu_use_percent=(20.0, 23.0), gpu_use_percent=(50.0, 99.0))
    found = verdict("C2", pd.concat([frame, without.assign(workers=0)]))
    assert found == verdict("C2", frame) and found.verdict == claims.AGREES


@pytest.mark.parametrize(
    ("left_ms", "expected"), [(1.0, claims.AGREES), (30.0, claims.DIFFERS), (5.0, claims.UNDECIDED)]
)
def test_the_time_that_a_faster_disk_saves_is_summed_over_models(left_ms, expected):
    """Without cache and workers 100 ms of mobilenet's stall, and nothing of lenet's."""
    rows = [
        {"model": model, "mode": "train", "where": "host", "cache": "dropped", "workers": workers,
         "medium": medium, "repeat": repeat,
         "stall_first_epoch_ms": 10 + (slower if workers == 0 else 70) * (medium == "hdd"),
         "stall_later_epochs_ms": 10 + (kept * slower + repeat / 10 if workers == 4 else 60)
         * (medium == "hdd")}
        for model, slower in (("lenet", 0), ("mobilenet", 100))
        for kept in (left_ms / 100,)
        for workers in (0, 4)
        for medium in ("hdd", "disk", "ram")
        for repeat in range(3)
    ]  # fmt: skip
    found = verdict("J4", pd.DataFrame(rows))
    # Each repeat adds a tenth of its number to the stall of either model.
    assert (found.value, found.values) == (pytest.approx((left_ms + 0.2) / 100), 3)
    assert found.verdict == expected
    # A model without the second sum, since its runs failed, is in neither.
    failed = [
        {**row, "model": "alexnet", "stall_first_epoch_ms": row["stall_first_epoch_ms"] + 500}
        for row in rows
        if row["model"] == "mobilenet" and not (row["workers"] == 4 and row["medium"] == "hdd")
    ]
    found = verdict("J4", pd.DataFrame([*rows, *failed]))
    assert (found.value, found.values) == (pytest.approx((left_ms + 0.2) / 100), 3)
    alike = pd.DataFrame(rows).assign(stall_first_epoch_ms=10.0)
    assert (verdict("J4", alike).verdict, verdict("J4", alike).why) == (
        claims.UNMEASURED, "a faster disk saved no stall in 3 of 3 repeats, so none can be left",
    )  # fmt: skip
    # Noise chooses the repeats in which something was saved.
    some = pd.DataFrame(rows)
    some.loc[some["repeat"] == 1, "stall_first_epoch_ms"] = 10.0
    assert "in 1 of 3 repeats" in verdict("J4", some).why


def epochs_by_cache(dropped, kept, medium="disk"):
    """Three repeats of a training by state of the cache: the stall of first and later epochs."""
    return pd.DataFrame(
        [
            {"model": "lenet", "mode": "train", "where": "host", "repeat": repeat, "workers": 0,
             "medium": medium, "cache": cache, "stall_first_epoch_ms": first * (1 + repeat / 50),
             "stall_later_epochs_ms": later}
            for cache, (first, later) in {"dropped": dropped, "kept": kept}.items()
            for repeat in range(3)
        ]
    )  # fmt: skip


def test_a_stall_that_falls_without_reads_too_is_not_reduced_by_the_cache():
    """A first epoch is slower than later ones even if the data is in the cache from the start."""
    cached = verdict("J1", epochs_by_cache((20.0, 1.0), (2.0, 1.0)))
    assert (cached.value, cached.values) == (pytest.approx(0.1), 3)
    assert cached.verdict == claims.AGREES
    alike = epochs_by_cache((2.0, 1.0), (2.0, 1.0))
    assert verdict("J1", alike).value == pytest.approx(1)
    assert verdict("J1", alike).verdict == claims.DIFFERS
    in_memory = epochs_by_cache((20.0, 1.0), (2.0, 1.0), "ram")
    assert verdict("J1", pd.concat([alike, in_memory])) == verdict("J1", alike)
    dropped = alike[alike["cache"] == "dropped"]
    assert verdict("J1", dropped).why == "this study has no runs for it"


def test_more_workers_save_no_more_than_the_stall_that_was_left():
    def frame(of_four):
        return pd.DataFrame(
            [
                {"model": "lenet", "mode": "train", "where": "host", "repeat": repeat,
                 "workers": workers, "train_step_mean_ms": ms, "train_stall_share": stall}
                for repeat in range(3)
                for workers, ms, stall in ((1, 10.0, 0.3), (4, of_four, 0.0))
            ]
        )  # fmt: skip

    # 3 of 10 ms were stall: four workers save those, or more.
    assert verdict("J3", frame(7.0)).value == pytest.approx(0)
    assert verdict("J3", frame(7.0)).verdict == claims.AGREES
    assert verdict("J3", frame(5.0)).value == pytest.approx(0.2)
    assert verdict("J3", frame(5.0)).verdict == claims.DIFFERS


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [([80.0] * 3, claims.AGREES), ([99.0] * 3, claims.DIFFERS), ([None] * 3, claims.AGREES)],
)
def test_a_part_of_a_claim_counts_where_it_was_measured(gpu, expected):
    frame = runs([20.0] * 3, [24.0] * 3, measure="cpu_use_percent")
    frame["gpu_use_percent"] = [90.0] * 3 + gpu
    frame["gpu_use_percent_why"] = [None] * 3 + ["gpu: nvidia-ml-py is not installed"] * 3
    found = verdict("C2", frame)
    assert (found.value, found.verdict) == (pytest.approx(1.2), expected)
    said = "nvidia-ml-py is not installed" if gpu[0] is None else f"{gpu[0] / 90:.3g} ["
    assert "median GPU utilisation" in found.why and said in found.why
