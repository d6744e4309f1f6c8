"""The tables of serving runs, from results and small frames with known answers."""

import pandas as pd
import pytest

from tests.analysis.studies.test_paper_tables import row, run
from tests.support.studies import EVIL, make_study
from tracer.analysis.studies.measures import of_trace
from tracer.analysis.studies.papers import serving
from tracer.analysis.studies.report.contents import contents
from tracer.analysis.studies.report.markdown import markdown
from tracer.analysis.studies.runs import read_runs
from tracer.analysis.studies.served import served
from tracer.store.trace import Trace

CLIENT = {"latency_ms": {"p50": 2.0, "mean": 3.0, "p99": 9.0}, "achieved_per_s": 20.0}
OTHER = {"latency_ms": {"p50": 4.0, "mean": 5.0, "p99": 11.0}, "achieved_per_s": 10.0}
UNKNOWN = dict.fromkeys(("latency_p50_ms", "latency_mean_ms", "latency_p99_ms", "achieved_per_s",
                         "requests_due", "requests_unanswered", "weights"))  # fmt: skip


def of(*clients, **more):
    return served({"summaries": [{"server": {}, "client": one} for one in clients], **more})


def test_latency_is_the_mean_over_the_servers_and_requests_are_their_sum():
    counts = [{"requests": 20, "answered": 20}, {"requests": 30, "answered": 23}]
    found = of(CLIENT | counts[0], OTHER | counts[1], weights={"kind": "fresh", "why": "x"})
    assert found == {
        "latency_p50_ms": 3.0, "latency_mean_ms": 4.0, "latency_p99_ms": 10.0,
        "achieved_per_s": 15.0, "requests_due": 50.0, "requests_unanswered": 7.0,
        "weights": "fresh",
    }  # fmt: skip


def test_a_value_that_a_client_did_not_tell_is_not_known():
    whole = of(CLIENT | {"requests": 20, "answered": 20}, OTHER)
    assert (whole["latency_p50_ms"], whole["requests_due"]) == (3.0, None)
    assert of(CLIENT | {"requests": 20})["requests_unanswered"] is None
    for summaries in ([{"model": "lenet"}], [None], None, [{"client": {"latency_ms": None}}]):
        assert served({"summaries": summaries}) == UNKNOWN


def serve(where="1", repeat=0, model="alexnet", weights="trained", rate=1.0, **values):
    told = {
        "latency_p50_ms": 2.0, "latency_mean_ms": 3.0, "latency_p99_ms": 9.0,
        "achieved_per_s": 1.0, "requests_due": 20.0, "requests_unanswered": 0.0,
        "faults": 100.0, "major_faults": 0.0, "cpu_s": 4.0, "writebacks": 0.0, "written_mib": 0.0,
    }  # fmt: skip
    return run(where, repeat, model, "serve", weights=weights, rate=rate, **(told | values))


TRAINING = run("1", 0, mode="train", latency_p50_ms=900.0, weights=None, rate=None, faults=9e9)
LIMITED = serve(latency_p50_ms=900.0) | {"memory": "100m", "id": "limited"}


def frame(*rows):
    return pd.DataFrame([{"memory": None} | one for one in rows])


def test_only_servings_without_limits_count():
    found = serving.latencies(
        frame(serve(), serve(repeat=1, latency_p50_ms=4.0), TRAINING, LIMITED)
    )
    only = row(found, model="alexnet", where="one container")
    assert (only["latency_p50_ms"], only["runs"], only["requests_due"]) == (3.0, 2, 40.0)
    assert only["latency_p50_ms_low"] < 3.0 < only["latency_p50_ms_high"]
    assert serving.costs(frame(serve(), TRAINING, LIMITED))["faults"].tolist() == [100.0]


def test_requests_without_an_answer_and_other_rates_are_told_apart():
    rows = [serve(requests_unanswered=3.0), serve(repeat=1, requests_unanswered=4.0),
            serve(rate=50.0, requests_unanswered=None), serve(repeat=1, rate=50.0)]  # fmt: skip
    found = serving.latencies(frame(*rows))
    assert found["rate"].tolist() == [1.0, 50.0]
    assert found["requests_unanswered"].iloc[0] == 7.0
    assert pd.isna(found["requests_unanswered"].iloc[1])  # of one run it is not known


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["trained", "trained"], "trained"),
        (["fresh", "fresh"], "fresh"),
        (["trained", "fresh", "trained"], "trained 2, fresh 1"),
        ([None, None], None),
        (["trained", "trained", None], "trained 2, not recorded 1"),
    ],
)
def test_a_row_says_which_weights_its_runs_had(kinds, told):
    rows = [serve(repeat=n, weights=kind) for n, kind in enumerate(kinds)]
    (found,) = serving.latencies(frame(*rows))["weights"]
    assert found == told or (told is None and pd.isna(found))


def test_ratios_are_over_pairs_that_differ_only_in_their_place():
    rows = [
        serve("host", 0, faults=10.0), serve("host", 1, faults=20.0),
        serve("1", 0, faults=20.0), serve("1", 1, faults=80.0), serve("1", 2, faults=9e9),
        serve("4", 1, faults=10.0), serve("1", 0, rate=50.0, faults=9e9), TRAINING,
        serve("host", 0, "lstm", faults=0.0), serve("1", 0, "lstm", faults=9.0),
    ]  # fmt: skip
    found = serving.against_host(frame(*rows))
    faults = found[found["measure"] == "page faults"]
    assert faults[["model", "where", "to_host", "pairs"]].to_numpy().tolist() == [
        ["alexnet", "one container", 3.0, 2], ["alexnet", "4 containers", 0.5, 1],
    ]  # fmt: skip
    assert found["measure"].drop_duplicates().tolist() == [
        "median latency", "99th percentile of latency", "page faults", "CPU time",
    ]  # fmt: skip
    assert serving.against_host(frame(serve(), TRAINING)).empty


def test_the_writes_of_a_run_are_in_its_measures(tmp_path):
    folder = make_study(tmp_path / "s")
    with Trace(folder / "runs/host-0/run.trace") as trace:
        found = of_trace(trace, "7:0", ["writebacks", "written_mib"])
        assert found["writebacks"] == 5.0  # of each of the five times
        assert found["written_mib"] == 5 * 2 * 4096 / (1 << 20)
        other = of_trace(trace, "8:0", ["writebacks", "written_mib"])
        assert (other["writebacks"], other["written_mib"]) == (0.0, 0.0)


@pytest.mark.slow
def test_a_study_s_report_has_its_servings(tmp_path):
    folder = make_study(tmp_path / "s", model=EVIL, served=True, reported=True, paper="001")
    whole = contents(folder)
    found = {one.title: one for one in whole.sections}
    latency = found["Serving: latency"]
    assert [line[1] for line in latency.rows] == ["host", "one container", "4 containers"]
    shown = dict(zip(latency.columns, latency.rows[2], strict=True))
    assert shown["latency p50 ms"] == "8" and shown["weights"] == "trained"
    assert (shown["requests due"], shown["requests unanswered"]) == ("80", "4")
    assert latency.lost == ""  # the run that lost events is a training
    assert len(latency.figures) == len(found["Serving: containers against the host"].figures) == 1
    costs = found["Serving: page faults, CPU time and write-back"]
    assert dict(zip(costs.columns, costs.rows[0], strict=True))["faults"] == "3"
    _, runs, _ = read_runs(folder)
    assert runs.loc[runs["mode"] == "train", "weights"].isna().all()
    assert "<img" not in markdown(whole)
