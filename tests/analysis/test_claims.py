"""Claims judged by frames of runs, and measures of a small trace."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.support.traces import make_trace
from tracer.analysis.studies import claims
from tracer.analysis.studies.measures import FILE, VERSION, measure, of_trace
from tracer.analysis.studies.runs import read_runs
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow


def runs(host, one, four=(), measure="faults"):
    """A row a run, in three places; the number of a value is its repeat."""
    rows = [
        {"model": "lenet", "mode": "train", "where": where, "repeat": repeat, measure: value}
        for where, values in (("host", host), ("1", one), ("4", four))
        for repeat, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def verdict(id, frame):
    return next(v for v in claims.judge(frame) if v.id == id)


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
    assert (found.value, found.values) == (pytest.approx(-0.15), 2)


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
    alike = pd.DataFrame(rows).assign(stall_first_epoch_ms=10.0)
    assert verdict("J4", alike).verdict == claims.UNMEASURED


DEV = "7:0"


def trace_of(folder, samples=None, why=None):
    """Two faults of the job and one of the daemon; write-backs on two devices; maybe samples."""
    sampled = {} if samples is None else {"samples": samples}
    start = {"tid": 50, "event": "start", "dev": "0:0"}
    with make_trace(
        folder,
        {
            "processes": [
                {"pid": 7, "tid": 7, "role": "target", "target": "job"},
                {"pid": 9, "tid": 9, "role": "daemon", "target": "dockerd"},
            ],
            "page_faults": [
                {"ts": n, "pid": pid, "tid": pid, "kind": kind, "user": True, "ip_file": str(pid)}
                for n, (pid, kind) in enumerate(((7, "minor"), (7, "major"), (9, "minor")))
            ],
            "writeback": [
                {**start, "ts": second * 10**9, "bdi": dev, "reason": reason}
                for second, dev, reason in (
                    (1, DEV, "periodic"), (3, DEV, "background"), (8, DEV, "periodic"),
                    (4, "254:0", "sync"), (9, "254:0", "sync"),
                )
            ]
            + [
                {"tid": 50, "event": "pages_written", "ts": second * 10**9}
                for second in (2, 3, 4, 8, 9)
            ],
            **sampled,
        },
        samples={"hz": 1.0, "not_available": why or {}},
    ):  # fmt: skip
        pass
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["targets"] = [
        {"name": "job", "role": "target", "kind": "pid", "pid": 7},
        {"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": 9},
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_run_is_measured_once_and_on_its_own_device(tmp_path):
    trace_of(tmp_path / "run.trace")
    found = measure(tmp_path, DEV)
    assert (found["faults"], found["major_faults"], found["daemon_fault_share"]) == (2, 1, 0.5)
    assert found["writeback_interval_s"] == pytest.approx(3.5)
    assert found["writebacks_periodic"] == pytest.approx(2 / 3)
    assert found["writebacks_sync"] == 0
    assert found["top_cause_percent"] == pytest.approx(200 / 3)
    assert found["cpu_s"] is None and found["train_compute_ms"] is None
    assert found["hot_share_growth"] is None
    shutil.rmtree(tmp_path / "run.trace")
    assert measure(tmp_path, DEV) == found


def test_the_runs_of_a_folder_are_a_frame_and_the_failed_ones_apart(tmp_path):
    (tmp_path / "study.json").write_text('{"name": "mine", "paper": "001"}')
    for name, facts in {
        "a": {"state": "done", "factors": {"model": "lenet", "where": "1", "mode": "train"},
              "repeat": 0},
        "b": {"state": "failed", "factors": {"model": "lenet"}, "reason": "no memory"},
        "c": {"state": "done", "factors": {"model": "lenet"}, "repeat": 1},
        "d": [],
    }.items():  # fmt: skip
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps(facts))
    trace_of(tmp_path / "runs/a/run.trace")
    (tmp_path / "runs/e").mkdir()
    study, frame, left_out = read_runs(tmp_path)
    assert study["paper"] == "001"
    assert frame[["id", "where", "faults"]].to_numpy().tolist() == [["a", "1", 2.0]]
    assert [(one["id"], one["state"]) for one in left_out] == [
        ("b", "failed"), ("c", "damaged"), ("d", "damaged"), ("e", "not ended"),
    ]  # fmt: skip
    reasons = [one["reason"] for one in left_out]
    assert reasons[0] == "no memory" and "where, mode" in reasons[1] and "run.json" in reasons[2]
    with pytest.raises(UsageError, match="is not the folder of a study"):
        read_runs(tmp_path / "runs")


def test_a_runs_facts_name_no_other_run(tmp_path):
    study(tmp_path)
    trace_of(tmp_path / "runs/a/run.trace")
    told = json.loads((tmp_path / "runs/a/run.json").read_text())
    told["factors"] |= {"id": "../../elsewhere", "faults": 99}
    (tmp_path / "runs/a/run.json").write_text(json.dumps(told))
    (row,) = read_runs(tmp_path)[1].to_dict("records")
    assert (row["id"], row["faults"]) == ("a", 2)


def test_pages_that_become_hot_and_epochs_that_take_their_time(tmp_path):
    """Eight pages written once, then one of them eight times; epochs of 5, 2 and 3 s."""
    pages = [*range(8), *[3] * 8]
    second = 10**9
    epochs = [(0, 0, 5), (1, 5, 7), (2, 7, 10)]
    at = {"pid": 7, "tid": 7}
    content = {
        "block": [
            {"ts": n, "tid": 50, "event": "bio_queue", "dev": DEV, "sector": page * 8,
             "nr_sector": 8, "rwbs": "W"}
            for n, page in enumerate(pages)
        ],
        "phases": [
            {**at, "name": "train", "start": 0, "end": 10 * second},
            *({**at, "name": "epoch", "epoch": e, "start": a * second, "end": b * second}
              for e, a, b in epochs),
            *({**at, "name": "step", "epoch": e, "step": e, "start": a * second, "end": b * second}
              for e, a, b in epochs),
            *({**at, "name": "fetch", "epoch": e, "step": e, "start": a * second,
               "end": a * second + stall * 10**6}
              for (e, a, _), stall in zip(epochs, (8, 3, 5), strict=True)),
        ],
    }  # fmt: skip
    with make_trace(tmp_path / "t", content) as trace:
        found = of_trace(trace, DEV)
    assert found["hot_share_growth"] == pytest.approx(1 - 0.25)
    assert (found["stall_first_epoch_ms"], found["stall_later_epochs_ms"]) == (8, 4)
    assert found["epoch_s"] == pytest.approx(10 / 3)
    assert found["epoch_spread"] == pytest.approx((0.5**0.5) / 2.5)
    assert found["train_fetch_stall_ms"] == 5
    assert found["later_epoch_s"] == pytest.approx(2.5)
    assert found["epoch_energy_j"] is None
    assert "samples" in found["epoch_energy_j_why"]


def test_an_epoch_s_energy_is_the_mean_power_of_the_later_ones_times_their_time(tmp_path):
    """Epochs of 5, 2 and 4 s; 10 W before the second begins, then 20 W, then 40 W."""
    second = 10**9
    epochs = [
        {"pid": 7, "tid": 7, "name": "epoch", "epoch": e, "start": a * second, "end": b * second}
        for e, a, b in ((0, 0, 5), (1, 5, 7), (2, 7, 11))
    ]
    power = [
        {"ts": at * second, "name": "gpu_power", "instance": "0", "value": watts, "unit": "W"}
        for at, watts in ((1, 10.0), (4, 10.0), (5, 10.0), (7, 20.0), (11, 40.0), (20, 99.0))
    ]
    with make_trace(tmp_path / "a", {"phases": epochs, "samples": power}) as trace:
        found = of_trace(trace)
    assert found["epoch_energy_j"] == pytest.approx((20 * 2 + 40 * 4) / 6 * 3)
    assert found["epoch_energy_j_why"] is None
    why = {"not_available": {"rapl": "no domain", "gpu": "no driver", "jetson": "no rail"}}
    memory = [{"ts": 6 * second, "name": "memory_used", "value": 1.0, "unit": "bytes"}]
    with make_trace(tmp_path / "b", {"phases": epochs, "samples": memory}, samples=why) as trace:
        found = of_trace(trace)
    assert found["epoch_energy_j"] is None
    assert found["epoch_energy_j_why"] == (
        "energy is not available: gpu: no driver; jetson: no rail; rapl: no domain"
    )


def test_a_report_has_the_power_modes_of_the_runs(tmp_path, tracer):
    (tmp_path / "study.json").write_text('{"name": "mine", "paper": "002"}')
    quotas = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
    for number, quota in enumerate(quotas):
        place = tmp_path / f"runs/{number}"
        place.mkdir(parents=True)
        name = "default" if quota == 1 else f"cpu_quota {quota}"
        mode = {
            "name": name,
            "settings": {"cores": 2, "cpu_quota": quota},
            "by": {} if quota == 1 else {"cpu_quota": "quota of CPU time, not a frequency"},
        }
        facts = {"state": "done", "factors": {"model": "lenet", "mode": "train", "where": "host"},
                 "repeat": 0, "power_mode": mode}  # fmt: skip
        (place / "run.json").write_text(json.dumps(facts))
        measures = {
            "later_epoch_s": 20 - 10 * quota,
            "epoch_energy_j": None,
            "epoch_energy_j_why": "none",
        }
        (place / FILE).write_text(json.dumps({"version": VERSION, "measures": measures}))
    told = tracer("study", "report", tmp_path, "--json").json["power_modes"]
    assert len(told["modes"]) == len(quotas) and len(told["profiled"]) == 4
    assert [row["predicted_s"] for row in told["modes"]] == pytest.approx(
        [row["epoch_s"] for row in told["modes"]]
    )
    assert told["jobs"][0]["mape"] == pytest.approx(0, abs=1e-6)
    text = tracer("study", "report", tmp_path).out
    assert "Power modes of lenet" in text and "not a frequency" in " ".join(text.split())
    assert "no energy and no Pareto front: none" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


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


def test_energy_that_no_reader_told_is_not_measured_for_the_trace_s_own_reason(tmp_path):
    study(tmp_path)
    trace_of(tmp_path / "runs/a/run.trace", samples=[], why={"rapl": "there is no RAPL"})
    frame = read_runs(tmp_path)[1]
    assert frame["energy_j"].isna().all()
    for id in ("C7", "J9"):
        found = verdict(id, frame)
        assert found.verdict == claims.UNMEASURED
        assert "there is no RAPL" in found.why


def study(folder, runs=("a",)):
    (folder / "study.json").write_text('{"name": "mine"}')
    for repeat, name in enumerate(runs):
        facts = {
            "state": "done", "dev": DEV, "repeat": repeat,
            "factors": {"model": "lenet", "where": "1", "mode": "train"},
        }  # fmt: skip
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "run.json").write_text(json.dumps(facts))


def watts(mean, seconds):
    """Samples of a GPU that draws so much."""
    return [
        {"ts": s * 10**9, "name": "gpu_power", "instance": "0", "value": mean, "unit": "W"}
        for s in range(seconds + 1)
    ]


def test_the_idle_machine_s_share_of_the_energy_is_its_power_over_the_run_s_time(tmp_path):
    study(tmp_path, ("a", "b"))
    for name in ("a", "b"):
        trace_of(tmp_path / "runs" / name / "run.trace", samples=watts(40.0, 10))
    without = read_runs(tmp_path)[1]
    assert without["energy_j"].tolist() == [400, 400]
    assert "no baseload was recorded" in verdict("J9", without).why
    with make_trace(tmp_path / "baseload.trace", {"samples": watts(25.0, 4)}):
        pass
    found = read_runs(tmp_path)[1]
    assert found["baseload_share"].tolist() == [0.625, 0.625]
    assert verdict("J9", found).verdict == claims.AGREES
    shutil.rmtree(tmp_path / "baseload.trace")
    shutil.copytree(tmp_path / "runs/a/run.trace", tmp_path / "baseload.trace")
    with pytest.raises(UsageError, match="has a target"):
        read_runs(tmp_path)
