"""Measures of the runs of a study: of small traces, and as a frame."""

import json
import shutil

import pytest

from tests.support.run_frames import verdict
from tests.support.traces import make_trace
from tracer.analysis.studies import claims
from tracer.analysis.studies.measures import FILE, VERSION, measure, of_trace
from tracer.analysis.studies.runs import read_runs
from tracer.probes.errors import BadTrace, UsageError

pytestmark = pytest.mark.slow

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


def test_faults_of_which_no_file_or_function_is_known_have_no_cause(tmp_path):
    rows = [{"ts": n, "pid": 7, "tid": 7, "kind": "minor", "user": True} for n in range(3)]
    processes = [{"pid": 7, "tid": 7, "role": "target", "target": "job"}]
    causes = {"top_cause_percent": None, "top_causes_percent": None}
    for name, told in {"none": [], "unknown": rows}.items():
        tables = {"processes": processes, "page_faults": told}
        with make_trace(tmp_path / name, tables) as trace:
            assert of_trace(trace, only=causes) == causes
    tables["page_faults"] = [{**rows[0], "ip_file": "/lib/libc.so"}]
    with make_trace(tmp_path / "known", tables) as trace:
        assert of_trace(trace, only=causes) == dict.fromkeys(causes, 100)


def test_faults_without_a_name_are_no_cause_beside_named_ones(tmp_path):
    """Three of 20 faults are in a function, one in a function of memory, and two in a file."""
    known = {
        (None, None): 8, ("[anon]", None): 5, ("[kernel]", None): 1, ("[anon]", "jitted"): 1,
        ("/lib/libc.so", "malloc"): 3, ("/lib/libm.so", None): 2,
    }  # fmt: skip
    rows = [
        {"ts": n, "pid": 7, "tid": 7, "user": True, "ip_file": file, "symbol": name}
        for (file, name), count in known.items()
        for n in range(count)
    ]
    tables = {"processes": [{"pid": 7, "tid": 7, "role": "target"}], "page_faults": rows}
    causes = {"top_cause_percent": 15, "top_causes_percent": 30}
    with make_trace(tmp_path / "t", tables) as trace:
        assert of_trace(trace, only=causes) == pytest.approx(causes)


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
    clock = {"name": "mono", "start_ns": 0, "end_ns": 10 * second}
    with make_trace(tmp_path / "t", content, clock=clock) as trace:
        found = of_trace(trace, DEV)
    assert found["hot_share_growth"] == pytest.approx(1 - 0.25)
    assert (found["stall_first_epoch_ms"], found["stall_later_epochs_ms"]) == (8, 4)
    assert found["epoch_s"] == pytest.approx(10 / 3)
    assert found["epoch_spread"] == pytest.approx((0.5**0.5) / 2.5)
    assert found["train_fetch_stall_ms"] == 5
    assert found["later_epoch_s"] == pytest.approx(2.5)
    assert found["epoch_energy_j"] is None
    assert "samples" in found["epoch_energy_j_why"]


def test_a_first_epoch_that_begins_before_the_events_of_targets_has_no_stall(tmp_path):
    """It has another step, with all its events, which waits for less data than its first one."""
    second = 10**9
    at = {"pid": 7, "tid": 7}
    phases = [{**at, "name": "train", "start": 0, "end": 10 * second}]
    for epoch, step, begin, end, stall in ((0, 0, 0, 3, 9), (0, 1, 3, 5, 1), (1, 2, 5, 7, 3)):
        number = {**at, "epoch": epoch, "step": step, "start": begin * second}
        phases += [
            {**number, "name": "step", "end": end * second},
            {**number, "name": "fetch", "end": begin * second + stall * 10**6},
        ]
    for epoch, begin, end in ((0, 0, 5), (1, 5, 7)):
        phases.append(
            {**at, "name": "epoch", "epoch": epoch, "start": begin * second, "end": end * second}
        )
    clock = {"name": "mono", "start_ns": 0, "targets_from_ns": 2 * second, "end_ns": 10 * second}
    with make_trace(tmp_path / "t", {"phases": phases}, clock=clock) as trace:
        found = of_trace(trace, DEV)
    assert (found["stall_first_epoch_ms"], found["stall_later_epochs_ms"]) == (None, 3)
    assert found["epoch_s"] == 2


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
    clock = {"name": "mono", "start_ns": 0, "end_ns": 20 * second}
    tables = {"phases": epochs, "samples": power}
    with make_trace(tmp_path / "a", tables, clock=clock) as trace:
        found = of_trace(trace)
    assert found["epoch_energy_j"] == pytest.approx((20 * 2 + 40 * 4) / 6 * 3)
    assert found["epoch_energy_j_why"] is None
    why = {"not_available": {"rapl": "no domain", "gpu": "no driver", "jetson": "no rail"}}
    memory = [{"ts": 6 * second, "name": "memory_used", "value": 1.0, "unit": "bytes"}]
    tables = {"phases": epochs, "samples": memory}
    with make_trace(tmp_path / "b", tables, samples=why, clock=clock) as trace:
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


def test_energy_that_no_reader_told_is_not_measured_for_the_trace_s_own_reason(tmp_path):
    study(tmp_path)
    trace_of(tmp_path / "runs/a/run.trace", samples=[], why={"rapl": "there is no RAPL"})
    frame = read_runs(tmp_path)[1]
    assert frame["energy_j"].isna().all()
    for id in ("C7", "J9"):
        found = verdict(id, frame)
        assert found.verdict == claims.UNMEASURED
        assert "there is no RAPL" in found.why


def test_a_peak_of_one_sample_is_not_the_median_memory_of_a_job(tmp_path):
    samples = [
        {"ts": second * 10**9, "name": "memory_used", "value": value, "unit": "bytes"}
        for second, value in enumerate((4e9, 4.2e9, 9e9))
    ]
    trace_of(tmp_path / "run.trace", samples)
    found = measure(tmp_path)
    assert (found["memory_median_bytes"], found["memory_used_bytes"]) == (4.2e9, 9e9)


def test_measures_of_an_earlier_version_count_without_what_changed_if_the_trace_is_gone(tmp_path):
    kept = {"faults": 23.0, "top_cause_percent": 91.6, "top_causes_percent": 99.0}
    (tmp_path / FILE).write_text(json.dumps({"version": 9, "measures": kept}))
    found = measure(tmp_path)
    assert {name for name, value in found.items() if value is not None} == {"faults"}
    trace_of(tmp_path / "run.trace")
    assert measure(tmp_path, DEV)["faults"] == 2


@pytest.mark.parametrize("version", [8, VERSION + 1])
def test_measures_of_a_version_that_is_not_known_do_not_count(tmp_path, version):
    (tmp_path / FILE).write_text(json.dumps({"version": version, "measures": {"faults": 23.0}}))
    with pytest.raises(BadTrace):
        measure(tmp_path)


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
