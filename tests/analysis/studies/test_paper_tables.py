"""The papers' tables, of small frames of runs with known answers."""

import pandas as pd
import pytest

from tests.support.run_frames import row, run
from tracer.analysis.studies.intervals import ANY
from tracer.analysis.studies.papers import (
    park2023,
    park2023_limits,
    prashanthi2023,
)
from tracer.analysis.studies.papers.numbers import MODELS, numbers
from tracer.analysis.studies.papers.parts import FACTS, RUNS, parts
from tracer.analysis.studies.spread import increase, over_runs, settings

PLACES = ("host", "1", "4")


def test_a_mean_has_an_interval_over_the_values_that_are_there():
    frame = pd.DataFrame({"k": ["a"] * 4 + ["b", "c"], "v": [2.0, 3.0, 4.0, None, 7.0, None]})
    found = over_runs(frame, ["k"], ["v"])
    # Student's half width over the mean is 4.3027 / sqrt(3) / 3 = 0.8281: 3 exp(-+0.8281).
    assert row(found, k="a")[["v", "v_low", "v_high"]].tolist() == pytest.approx(
        [3, 1.3107, 6.8666], 1e-3
    )
    found = over_runs(frame, ["k"], ["v"], {"v": ANY})
    assert row(found, k="a")[["v_low", "v_high"]].tolist() == pytest.approx([0.5159, 5.4841], 1e-3)
    assert row(found, k="b")["v"] == 7 and pd.isna(row(found, k="b")["v_low"])
    assert pd.isna(row(found, k="c")["v"])
    assert found["runs"].tolist() == [4, 1, 1]


def test_an_increase_is_over_pairs_of_runs_that_are_alike():
    rows = [
        run(where, repeat, v=value)
        for where, repeat, value in (
            ("host", 0, 10.0), ("host", 1, 20.0),
            ("1", 0, 15.0), ("1", 1, 30.0), ("1", 2, 900.0), ("4", 0, 900.0),
        )
    ]  # fmt: skip
    found = increase(pd.DataFrame(rows), ["model"], "v")
    assert found[["increase_percent", "pairs"]].to_numpy().tolist() == [[50, 2]]


def test_settings_are_what_most_runs_do_not_have():
    rows = [run(repeat=n, workers=4, seccomp=True, cpus=None) for n in range(3)]
    rows += [run(workers=0, seccomp=True, cpus=None), run(workers=4, seccomp=False, cpus=0.5)]
    rows[-1]["id"] = "limited"
    frame = pd.DataFrame(rows)
    assert settings(frame).tolist() == ["", "", "", "workers 0", "cpus 0.5, seccomp off"]
    assert settings(frame, ["workers"]).tolist()[3] == ""


def test_every_model_of_the_papers_has_a_name_of_ours():
    for name in (
        "park2023_table9_10_writeback_reasons",
        "park2023_fig6_io_latency_improvement",
        "prashanthi2023_container_overhead",
    ):
        assert set(numbers(name)["model"]) <= set(MODELS.values())


def test_events_are_counted_by_whose_they_are():
    def counts(where, repeat, role, **events):
        return [
            {**run(where, repeat), "role": role, "event": event, "value": value}
            for event, value in events.items()
        ]

    faults, clock = "page-faults", "task-clock"
    rows = []
    for repeat in (0, 1):
        rows += counts("host", repeat, "job", **{faults: 100.0, clock: 10.0, "cycles": None})
        rows += counts("1", repeat, "job", **{faults: 200.0 + 100 * repeat, clock: 15.0})
        rows += counts("1", repeat, "daemon", **{faults: 4.0})
        rows += counts("4", repeat, "job", **{faults: 9999.0})
    rows += [
        {**run("1", 0), "role": "job", "event": f"cpu_{kind}/instructions/", "value": value}
        for kind, value in (("core", 5.0), ("atom", 7.0))
    ]
    found = park2023.event_counts(pd.DataFrame(rows))
    of_faults = row(found, event=faults)
    assert (of_faults["container_process"], of_faults["docker_daemon"]) == (250, 4)
    assert (of_faults["host_process"], of_faults["container_to_host"]) == (100, 2.5)
    assert of_faults["paper_container_to_host"] == pytest.approx(2.0415, 1e-3)
    assert row(found, event=clock)["unit"] == "ns"
    assert pd.isna(row(found, event=clock)["paper_host_process"])
    cycles = row(found, event="cycles")
    assert pd.isna(cycles["container_process"]) and pd.isna(cycles["host_process"])
    # Both kinds of cores together: 306402857705993 + 61663593615121.
    assert cycles["paper_host_process"] == 368066451321114
    assert row(found, event="instructions")["container_process"] == 12


def test_events_of_runs_are_paired_and_not_added_up_if_their_settings_differ():
    def counts(where, repeat, workers, value, role="job", event="page-faults", **limits):
        of = run(where, repeat, workers=workers, **limits)
        of["id"] += str(limits.get("memory"))
        return {**of, "role": role, "event": event, "value": value}

    def faults(frame, of=park2023.event_counts):
        found = row(of(frame), event="page-faults")
        return found[["host_process", "container_process", "docker_daemon"]].tolist(), found

    rows = []
    for repeat in (0, 1):
        for workers, on_host in ((0, 100.0), (4, 1000.0), (None, 400.0)):
            rows.append(counts("host", repeat, workers, on_host))
            rows.append(counts("1", repeat, workers, 2 * on_host))
            rows.append(counts("1", repeat, workers, 3.0, "daemon"))
    rows.append(counts("1", 0, 8, 1000.0))  # no run on the host with 8 workers
    frame = pd.DataFrame(rows)
    values, found = faults(frame)
    assert values == [500, 1000, 3]
    assert found[["container_to_host", "container_to_host_low", "pairs"]].tolist() == [2, 2, 6]
    limited = [
        counts(where, 0, 4, value, memory=memory, swap="2g")
        for memory, where, value in (
            ("250m", "host", 10.0), ("250m", "1", 30.0), ("400m", "host", 2.0), ("400m", "1", 6.0),
        )
    ]  # fmt: skip
    frame = pd.DataFrame([*rows, *limited])
    assert faults(frame)[0] == [500, 1000, 3]
    values, found = faults(frame, park2023_limits.event_counts)
    assert values[:2] == [6, 18]
    assert found[["container_to_host", "container_to_host_high", "pairs"]].tolist() == [3, 3, 2]


def test_call_chains_that_a_run_lacks_count_as_none_of_its_requests():
    rows = [
        {**run(repeat=repeat), "event": "block:block_rq_insert", "chain": chain, "count": count,
         "share": share, "write_share": writes, "other_disks": others, "comm": comm, "path": chain}
        for repeat, chain, count, share, writes, others, comm in (
            (0, "write-back by flusher", 3, 0.75, 1.0, 0.4, "kworker/u8:1"),
            (0, "read", 1, 0.25, 0.0, 0.4, "python"),
            (1, "read", 4, 1.0, None, 0.2, "python"),  # no write
        )
    ]  # fmt: skip
    rows.append({**rows[0], "event": "other:event", "share": 1.0, "other_disks": 1.0})
    rows.append({**rows[0], "mode": "infer", "id": "infer", "other_disks": 1.0})
    said = park2023.other_disks(pd.DataFrame(rows))
    assert said.startswith("30.0% of all") and said.endswith("(in a run 20.0% to 40.0%).")
    found = park2023.call_chains(pd.DataFrame(rows))
    flusher = row(found, chain="write-back by flusher")
    assert (flusher["share"], flusher["runs"], flusher["comm"]) == (0.375, 2, "kworker/u8:1")
    assert flusher["paper_share"] == 0.1777
    assert row(found, chain="read")["share"] == 0.625
    assert (flusher["write_share"], row(found, chain="read")["write_share"]) == (1.0, 0.0)
    assert pd.isna(row(found, chain="read")["paper_share"])


def test_causes_of_faults_are_ranked_by_their_mean_and_unknown_files_are_kept():
    rows = [
        {**run(repeat=repeat), "comm": comm, "file": file, "symbol": None, "percent": percent}
        for repeat in (0, 1)
        for comm, file, percent in (("python", "libpython", 60.0), ("python", None, 30.0))
    ]
    rows.append({**rows[0], "comm": "dockerd", "percent": 20.0})
    rows += [{**run("host"), "comm": "host", "file": "x", "symbol": None, "percent": 99.0}]
    found = park2023.fault_causes(pd.DataFrame(rows))
    assert found["rank"].tolist() == list(range(1, 11))
    assert found["task"].tolist()[:3] == ["python", "python", "dockerd"]
    assert found["percent"].tolist()[:3] == [60, 30, 10]
    assert pd.isna(found["file"][1]) and pd.isna(found["task"][3])
    assert found["paper_percent"][0] == 6.2
    assert found["paper_function"][0] == "_dl_relocate_object"


def test_reasons_of_write_backs_stand_beside_the_paper_s_by_model_and_tenancy():
    rows = [
        {**run(where, repeat), "reason": reason, "writebacks": count, "wakes": count / 2}
        for where, repeat, reason, count in (
            ("1", 0, "periodic", 6), ("1", 0, "background", 2),
            ("1", 1, "periodic", 10),
            ("4", 0, "periodic", 1), ("4", 0, "vmscan", 1),
            ("host", 0, "periodic", 5),
        )
    ]  # fmt: skip
    found = park2023.writeback_reasons(pd.DataFrame(rows))
    one = row(found, where="one container", model="alexnet", reason="periodic")
    assert (one["writebacks"], one["share"], one["runs"]) == (8, 0.875, 2)
    # 5866 of 1674 + 5866 + 57
    assert one["paper_share"] == pytest.approx(0.7721, 1e-3)
    assert row(found, where="one container", model="alexnet", reason="background")["share"] == 0.125
    assert (one["wakes"], one["wakes_low"] < 4 < one["wakes_high"]) == (4, True)
    sync = row(found, where="one container", model="alexnet", reason="sync")
    assert (sync["share"], sync["writebacks"], sync["wakes"]) == (0, 0, 0)  # no run had it
    assert sync["paper_writebacks"] == 57
    lstm = row(found, where="4 containers", model="lstm", reason="background")
    assert pd.isna(lstm["writebacks"]) and lstm["paper_writebacks"] == 5361
    assert row(found, where="4 containers", model="alexnet", reason="vmscan")["share"] == 0.5
    assert row(found, where="host", model="alexnet", reason="periodic")["share"] == 1


def test_limited_runs_have_tables_of_their_own():
    rows = [
        {
            **run("1", repeat), "reason": reason, "writebacks": count, "wakes": None,
            "dirty_background_bytes": given,
        }
        for repeat, given, reason, count in (
            (0, "230m", "background", 3), (0, "230m", "periodic", 1), (1, None, "periodic", 8),
        )
    ]  # fmt: skip
    for one in rows:
        one["id"] += str(one["dirty_background_bytes"])
    frame = pd.DataFrame(rows)
    low = park2023_limits.writeback_reasons(frame)
    one = row(low, where="one container", model="alexnet", reason="background")
    assert (one["share"], one["runs"], one["paper_writebacks"]) == (0.75, 1, 1674)
    usual = park2023.writeback_reasons(frame)
    assert row(usual, where="one container", model="alexnet", reason="periodic")["share"] == 1
    with pytest.raises(KeyError, match="dirty_background_bytes"):
        park2023_limits.writeback_reasons(frame.drop(columns="dirty_background_bytes"))


def test_table_5_of_runs_that_swap_leaves_out_runs_that_are_limited_otherwise():
    given = {"role": "job", "event": "major-faults"}
    rows = [
        {**run("1"), **given, "value": 80, "memory": "400m", "swap": "2g"},
        {**run("host"), **given, "value": 60, "memory": "400m", "swap": "2g"},
        {**run("1", 1), **given, "value": 7, "memory": "400m", "swap": None},
        {**run("1", 2), **given, "value": 3, "memory": None, "swap": None},
    ]
    frame = pd.DataFrame(rows)
    found = row(park2023_limits.event_counts(frame), event="major-faults")
    assert (found["container_process"], found["host_process"]) == (80, 60)
    assert row(park2023.event_counts(frame), event="major-faults")["container_process"] == 3


def test_times_between_write_backs_are_over_repeats():
    rows = [
        {**run(where, repeat), "between": between, "reason": reason, "mean_s": mean / parts,
         "std_s": 1.0}
        for between, parts in (("passes", 2), ("wakes", 1))
        for where in PLACES
        for repeat, reason, mean in ((0, "all", 2.0), (1, "all", 4.0), (0, "sync", 99.0))
    ]  # fmt: skip
    found = park2023.writeback_intervals(pd.DataFrame(rows))
    assert found["where"].unique().tolist() == ["host", "one container", "4 containers"]
    assert found["between"].tolist() == ["wakes", "passes"] * 3
    assert found["mean_s"].tolist() == [3, 1.5] * 3
    rows = [
        {**run(repeat=repeat), "between": "wakes", "share": share, "interval_s": s}
        for repeat, share, s in ((0, 0.0, 1.0), (1, 0.0, 3.0), (0, 1.0, 8.0), (1, 1.0, 10.0))
    ]
    found = park2023.interval_spread(pd.DataFrame(rows))
    assert found[["share", "interval_s"]].to_numpy().tolist() == [[0, 2], [1, 9]]


def test_boxes_of_pages_are_of_one_container_s_first_repeat():
    box = {"from_s": 0.0, "to_s": 1.0, "first_page": 0, "last_page": 9, "writebacks": 5}
    rows = [{**run(where, repeat), **box} for where in PLACES for repeat in (1, 2)]
    # A run with other settings is not drawn over it, nor in its place.
    rows.insert(0, {**run("1", 0, workers=0), **box, "writebacks": 99})
    rows.append({**run("1", 1, workers=8), **box, "writebacks": 99})
    rows = [{**one, "workers": one.get("workers", 4)} for one in rows]
    # This model has none of the usual settings.
    rows += [{**run("1", 3, "lenet", workers=w), **box, "writebacks": w} for w in (2, 1)]
    found = park2023.page_heat(pd.DataFrame(rows))
    assert found.to_dict("records") == [
        {"model": "alexnet", **box},
        {"model": "lenet", **box, "writebacks": 1},
    ]


def steps(where, repeat, mode="train", stage="train", model="lenet", **parts):
    return [
        {**run(where, repeat, model, mode), "stage": stage, "part": part, "mean_ms": ms}
        for part, ms in parts.items()
    ]


def test_the_amount_of_work_is_compared_within_a_model():
    rows = [run(model=m, batches=b) for m, b in (("lenet", 9), ("lenet", 9), ("resnet50", 5))]
    rows.append(run(model="lenet", batches=7))
    rows[-1]["id"] = "short"
    assert settings(pd.DataFrame(rows)).tolist() == ["", "", "", "batches 7"]


def test_a_minibatch_on_the_host_and_in_a_container():
    rows = []
    for repeat in (0, 1):
        rows += steps("host", repeat, compute=4.0, forward=1.0, optimizer=1.0)
        rows += steps("1", repeat, compute=5.0 + repeat, forward=1.0, optimizer=3.0)
        rows += steps("1", repeat, stage="inference", compute=99.0)  # of the same training
        rows += steps("host", repeat, "infer", "inference", compute=2.0)
    found = prashanthi2023.minibatch_times(pd.DataFrame(rows))
    compute = row(found, mode="train", model="lenet", part="compute")
    assert (compute["bare_metal_ms"], compute["container_ms"], compute["pairs"]) == (4, 5.5, 2)
    assert compute["increase_percent"] == 37.5
    assert compute["paper_bare_metal_ms"] == 3.91
    assert compute["paper_increase_percent"] == pytest.approx(53.7, 1e-3)
    infer = row(found, mode="infer", model="lenet", part="compute")
    assert (infer["bare_metal_ms"], infer["paper_increase_percent"]) == (2, 30.52)
    assert pd.isna(infer["container_ms"]) and pd.isna(infer["increase_percent"])
    assert pd.isna(row(found, mode="train", model="resnet18", part="compute")["bare_metal_ms"])
    found = prashanthi2023.compute_parts(pd.DataFrame(rows))
    assert row(found, model="lenet", part="optimizer")["increase_percent"] == 200
    update = row(found, model="mobilenet", part="optimizer")
    assert (update["paper_bare_metal_ms"], update["paper_container_ms"]) == (2.63, 17.63)
    assert row(found, model="mobilenet", part="forward")["paper_increase_percent"] == 11.4


def test_the_paper_s_numbers_stand_beside_the_usual_settings_alone():
    rows = []
    for repeat in (0, 1):
        for where in ("host", "1"):
            rows += [one | {"workers": 4} for one in steps(where, repeat, compute=4.0)]
    rows += [one | {"workers": 0, "id": "none"} for one in steps("1", 0, compute=9.0)]
    found = prashanthi2023.minibatch_times(pd.DataFrame(rows))
    usual = row(found, model="lenet", mode="train", settings="", part="compute")
    alone = row(found, model="lenet", mode="train", settings="workers 0", part="compute")
    assert usual["paper_bare_metal_ms"] == 3.91
    assert (alone["container_ms"], usual["container_ms"]) == (9, 4)
    assert pd.isna(alone["paper_bare_metal_ms"]) and pd.isna(alone["increase_percent"])


def test_use_is_by_its_medians_and_memory_by_what_a_container_adds():
    rows = [
        {**run(where, repeat, "lenet"), "name": name, "instance": None, "unit": "", "share": share,
         "value": value}
        for repeat in (0, 1)
        for share in (0.0, 0.5, 1.0)
        for where, name, value in (
            ("host", "memory_used", 4e9), ("1", "memory_used", 4.5e9),
            ("host", "cpu_use", 20.0 + share), ("1", "cpu_use", 25.0 + share),
            ("4", "cpu_use", 99.0), ("1", "processes", 3.0),
        )
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    found = prashanthi2023.usage_medians(frame)
    cpu = row(found, model="lenet", series="CPU utilisation, %")
    assert (cpu["bare_metal_median"], cpu["container_median"]) == (20.5, 25.5)
    memory = row(found, model="lenet", series="memory used, GB")
    assert (memory["bare_metal_median"], memory["paper_container_median"]) == (4, 4.86)
    gpu = row(found, model="mobilenet", series="GPU utilisation, %")
    assert pd.isna(gpu["bare_metal_median"]) and gpu["paper_bare_metal_median"] == 90
    assert set(prashanthi2023.usage_spread(frame)["series"]) == {"memory used", "CPU utilisation"}
    added = row(prashanthi2023.memory_overhead(frame), model="lenet")
    assert added["overhead_gb"] == pytest.approx(0.5)
    assert added["paper_overhead_gb"] == pytest.approx(0.2)


def test_energy_counts_once_and_the_baseload_is_power_over_time():
    rows = [
        {**run(where, repeat, "lenet"), "source": source, "part": part, "energy_j": joule,
         "duration_s": 10.0, "baseload_w": 3.0}
        for where, joule_of_all in (("host", 100.0), ("1", 150.0))
        for repeat in (0, 1)
        for source, part, joule in (
            ("gpu", False, joule_of_all - 40), ("rapl", False, 40.0), ("rapl", True, 30.0),
            ("total", False, joule_of_all),
        )
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    found = prashanthi2023.energy_split(frame)
    one = row(found, where="one container")
    assert (one["energy_j"], one["baseload_j"], one["increment_j"]) == (150, 30, 120)
    assert (one["increase_percent"], one["paper_increase_percent"]) == (50, 48.89)
    alone = frame[frame["source"] == "gpu"].assign(baseload_w=None)
    one = row(prashanthi2023.energy_split(alone), where="one container")
    assert one["energy_j"] == 110
    assert pd.isna(one["baseload_j"]) and pd.isna(one["increment_j"])


def test_energy_is_that_of_a_minibatch_if_runs_tell_their_work():
    """The container uses less energy in ten minutes, and more for the same work."""
    rows = [
        {**run(where, repeat, "lenet", at_least=600.0), "source": "total", "part": False,
         "energy_j": joule, "duration_s": 600.0, "baseload_w": 20.0, "work": work}
        for where, joule, work in (("host", 24_000.0, 1000), ("1", 21_600.0, 600))
        for repeat in (0, 1)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    one = row(prashanthi2023.energy_split(frame), where="one container")
    assert (one["per"], one["energy_j"], one["baseload_j"], one["increment_j"]) == (
        "minibatch", 36, 20, 16,
    )  # fmt: skip
    assert one["increase_percent"] == pytest.approx(50)
    # Without the number of its minibatches, unequal work is compared with nothing.
    frame.loc[0, "work"] = None
    one = row(prashanthi2023.energy_split(frame), where="one container")
    assert (one["per"], one["energy_j"]) == ("run", 21_600)
    assert pd.isna(one["increase_percent"])


def test_every_part_says_what_it_needs_and_what_it_is():
    from tracer.analysis.studies.extracts import MAKERS

    assert {part.needs for part in parts(None)} <= {*MAKERS, RUNS, FACTS}
    assert len(parts(None)) == sum(len(parts(seed)) for seed in ("000", "001", "002"))
    titles = [part.title for part in parts(None)]
    assert len(titles) == len(set(titles))
