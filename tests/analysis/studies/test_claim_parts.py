"""Claims against studies whose answer is known, with runs in them that must not count."""

import itertools
import math
import random
import statistics

import numpy as np
import pandas as pd
import pytest

from tracer.analysis.statistics import t_quantile
from tracer.analysis.studies import claims
from tracer.analysis.studies.fault_functions import cause_of, of_causes
from tracer.analysis.studies.papers import park2023
from tracer.analysis.studies.runs import UNLIMITED

pytestmark = pytest.mark.slow

MODELS = ("alexnet", "lstm", "mobilebert", "squeezenet")
USUAL = {
    "mode": "train", "checkpoint_every": None, "checkpoint_way": None, "memory": None,
    "seccomp": True, "cpus": None, "workers": 4, "power_mode": "default",
}  # fmt: skip
OTHERS = (
    {"checkpoint_every": "end"}, {"checkpoint_way": "rename"}, {"memory": "400m"},
    {"cpus": 0.5}, {"seccomp": False}, {"power_mode": "cpu_quota 0.5"}, {"mode": "infer"},
    {"checkpoint_every": "7", "checkpoint_way": "new"},
)  # fmt: skip
"""Runs that the claims of Park & Bahn 2023 are not about."""
NOISE = (0.99, 1.0, 1.01)
"""Factors by which repeats differ."""


def study(measure, by_place, models=MODELS, others=1000.0, **factors):
    """Returns runs of a measure by place, three repeats each, and others with wild values.

    `by_place`: values by place, or by model and place.
    """
    rows = []
    for model, (repeat, noise) in itertools.product(models, enumerate(NOISE)):
        of_model = by_place.get(model, by_place)
        for where, value in of_model.items():
            run = {**USUAL, **factors, "model": model, "where": where, "repeat": repeat}
            rows.append({**run, measure: value * noise})
            for other in OTHERS:
                rows.append({**run, **other, measure: others * (where == "1")})
    return pd.DataFrame(rows)


def with_measures(*frames):
    """Returns the runs of several such studies with all measures of each."""
    keys = [name for name in frames[0].columns if name in (*USUAL, "model", "where", "repeat")]
    found = frames[0]
    for frame in frames[1:]:
        found = found.merge(frame, on=keys)
    return found


def verdict(id, frame):
    """Judges one claim; `claims.judge` does that for each of them."""
    return claims.judge_one(claims.claims()[id], frame)


@pytest.mark.parametrize(
    ("container", "expected"),
    [(1.5, claims.AGREES), (1.4, claims.AGREES), (1.08, claims.DIFFERS), (1.0, claims.DIFFERS),
     (3.0, claims.DIFFERS)],
)  # fmt: skip
def test_cpu_time_in_a_container_is_about_half_as_much_again(container, expected):
    found = verdict("P1", study("cpu_s", {"host": 100.0, "1": 100.0 * container}))
    assert found.value == pytest.approx(container)
    assert found.values == 12 and found.verdict == expected
    assert "12 pairs of runs that differ only in where 1 against host" in found.why
    each = f"{container:.3g}"
    models = f"alexnet {each}, lstm {each}, mobilebert {each}, squeezenet {each}"
    assert models in found.why and "repeats: 3" in found.why


def test_a_wide_interval_around_half_as_much_again_is_undecided():
    frame = study("cpu_s", {"host": 100.0, "1": 150.0}, models=("lstm",))
    own = (frame["where"] == "1") & (frame["cpu_s"] < 200)
    frame.loc[own, "cpu_s"] = [100.0, 150.0, 200.0]
    assert verdict("P1", frame).verdict == claims.UNDECIDED


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.00027, claims.AGREES), (0.0009, claims.AGREES), (0.002, claims.DIFFERS),
     (0.2, claims.DIFFERS)],
)  # fmt: skip
def test_the_daemon_s_cpu_time_is_a_thousandth(share, expected):
    assert verdict("P3", study("daemon_cpu_share", {"1": share})).verdict == expected


def causes(**more):
    told = {"faults_by_causes_percent": 32.0, "top_causes_percent": 60.0, "top_cause_percent": 16.0,
            "faults_unnamed_percent": 5.0} | more  # fmt: skip
    return with_measures(*(study(name, {"1": value}, others=0.1) for name, value in told.items()))


def test_few_functions_cause_most_faults_and_they_are_the_paper_s():
    found = verdict("P8", causes(faults_by_loader_relocation_percent=16.2))
    assert (found.verdict, found.value) == (claims.AGREES, pytest.approx(32))
    assert "loader relocation 16.2 %" in found.why
    assert "functions without a name 5 %" in found.why
    # As concentrated as the paper's, but by other functions.
    assert verdict("P8", causes(faults_by_causes_percent=2.0)).verdict == claims.DIFFERS
    assert verdict("P8", causes(top_causes_percent=20.0)).verdict == claims.DIFFERS


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("_dl_relocate_object", "loader_relocation"),
        ("_dl_relocate_object_no_relro", "loader_relocation"),
        ("elf_machine_rela_relative", "loader_relocation"),
        ("runtime.memclrNoHeapPointers", "garbage_collection"),
        ("runtime.gcDrain", "garbage_collection"),
        ("runtime.(*gcWork).init", "garbage_collection"),
        ("runtime.(*spanSet).push", "container_start"),
        ("runtime.getempty", "container_start"),
        ("runtime.memmove", "memory_copy"),
        ("__memmove_avx_unaligned_erms", None),  # the job's own copies
        ("memmove", None), ("gc_collect_main", None), ("main.gcDrain", None),
        ("xruntime.memmove", None), ("runtime.memmove2", None), ("", None), (None, None),
        (float("nan"), None), ("runtime.gchelper", None), ("dl_relocate", None),
    ],
)  # fmt: skip
def test_functions_have_the_paper_s_causes(function, cause):
    assert cause_of(function) == cause


def test_causes_are_shares_of_all_faults_and_unknown_without_names():
    rows = [("_dl_relocate_object", 16.0), ("runtime.memmove", 5.0), ("runtime.gcDrain", 4.0),
            ("runtime.memclrNoHeapPointers", 3.0), ("conv2d", 42.0), (None, 20.0),
            (None, 10.0)]  # fmt: skip
    found = of_causes(pd.DataFrame(rows, columns=["symbol", "percent"]))
    assert found["faults_by_garbage_collection_percent"] == 7
    assert found["faults_by_container_start_percent"] == 0
    assert (found["faults_by_causes_percent"], found["faults_unnamed_percent"]) == (28, 30)
    none = of_causes(pd.DataFrame([(None, 100.0)], columns=["symbol", "percent"]))
    assert "faults_by_causes_percent" not in none
    assert none["faults_by_causes_percent_why"] == "the function of no page fault is known"
    unknown = dict.fromkeys(
        ("faults_by_causes_percent", "top_causes_percent", "top_cause_percent"), np.nan
    )
    nothing = verdict("P8", causes(**unknown).assign(
        faults_by_causes_percent_why="the function of no page fault is known"))  # fmt: skip
    assert (nothing.verdict, nothing.why) == (
        claims.UNMEASURED, "the function of no page fault is known",
    )  # fmt: skip


def reasons(periodic, background, sync):
    shares = {"periodic": periodic, "background": background, "sync": sync}
    return with_measures(
        *(study(f"writebacks_{name}", {"1": share}, others=0.5) for name, share in shares.items())
    )


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.75, 0.245, 0.005), claims.AGREES), ((0.99, 0.0, 0.01), claims.DIFFERS),
     ((0.75, 0.25, 0.0), claims.AGREES), ((0.75, 0.1, 0.005), claims.DIFFERS),
     ((0.75, 0.2, 0.05), claims.DIFFERS)],
)  # fmt: skip
def test_shares_of_reasons_are_in_the_paper_s_ranges(shares, expected):
    found = verdict("P9", reasons(*shares))
    assert found.verdict == expected
    assert "share of background: " in found.why and "share of sync: " in found.why


def test_background_s_share_grows_in_every_model():
    more = {model: {"1": 0.2, "4": 0.3 + 0.03 * n} for n, model in enumerate(MODELS)}
    found = verdict("P10", study("writebacks_background", more, others=0.9))
    assert found.verdict == claims.AGREES
    assert found.value == pytest.approx(statistics.mean(0.1 + 0.03 * n for n in range(4)))
    assert "share of models in which it grows: 1 [1, 1]" in found.why
    assert "share of a model, 4 containers: 0.39 [" in found.why
    less = {**more, "lstm": {"1": 0.4, "4": 0.1}}
    assert verdict("P10", study("writebacks_background", less)).verdict == claims.UNDECIDED
    far = {model: {"1": 0.2, "4": 0.95} for model in MODELS}
    assert verdict("P10", study("writebacks_background", far)).verdict == claims.DIFFERS


def test_runs_above_the_background_threshold_are_parts_of_their_own():
    usual = study("writebacks_background", {"1": 0.01, "4": 0.02}).assign(
        dirty_background_bytes=None
    )
    above = study("writebacks_background", {"1": 0.25, "4": 0.4}, dirty_background_bytes="230m")
    frame = pd.concat([usual, above], ignore_index=True)
    frame["writebacks_periodic"] = 1 - frame["writebacks_background"]
    frame["writebacks_sync"] = 0.0
    single = verdict("P9", frame)
    assert "share of background: 0.01 [" in single.why
    assert "with a background threshold below a checkpoint: 0.25 [" in single.why
    four = verdict("P10", frame)
    assert four.value == pytest.approx(0.01) and four.values == 12
    assert "4 containers - 1, with a threshold below a checkpoint: 0.15 [" in four.why
    assert "only in where 4 against 1 (with a limit of dirty_background_bytes)" in four.why


def test_faults_under_a_memory_limit_with_swap_are_a_part_of_their_own():
    usual = study("faults", {"host": 100.0, "1": 220.0}).assign(swap=None)
    plenty = study("faults", {"host": 400.0, "1": 1000.0}, memory="300m", swap="2g")
    frame = pd.concat([usual, plenty], ignore_index=True)
    frame["major_faults"] = np.where(frame["swap"].notna(), 0.8, 0.01) * frame["faults"]
    found = verdict("P2", frame)
    assert (found.value, found.values) == (pytest.approx(2.2), 12)
    assert found.verdict == claims.AGREES
    assert "both with a memory limit and swap: 2.5 [" in found.why
    assert "share of major faults in a container with a memory limit and swap: 0.8 [" in found.why
    few = frame.assign(major_faults=0.1 * frame["faults"])
    assert verdict("P2", few).verdict == claims.DIFFERS
    alone = verdict("P2", usual.assign(major_faults=1.0))
    assert (alone.verdict, alone.value) == (claims.AGREES, found.value)
    assert "this study has no runs for it" in alone.why


@pytest.mark.parametrize(
    ("ratio", "major", "expected"),
    [(3.0, 0.8, claims.AGREES), (3.0, 0.1, claims.DIFFERS), (1.5, 0.8, claims.DIFFERS)],
)
def test_a_claim_is_judged_by_its_other_parts_if_the_first_was_not_measured(ratio, major, expected):
    """All runs have a memory limit and swap."""
    frame = study("faults", {"host": 100.0, "1": 100.0 * ratio}, memory="300m", swap="2g")
    found = verdict("P2", frame.assign(major_faults=major * frame["faults"]))
    assert found.verdict == expected
    assert (found.value, found.values) == (pytest.approx(ratio), 12)
    assert found.measured == "page faults, container / host, both with a memory limit and swap"
    assert "page faults, container / host: this study has no runs for it" in found.why
    assert "share of major faults in a container with a memory limit and swap: 0." in found.why


def test_one_run_of_each_part_is_no_measurement():
    frame = study("faults", {"host": 100.0, "1": 300.0}, memory="300m", swap="2g")
    first = (frame["repeat"] == 0) & (frame["model"] == MODELS[0])
    alone = frame[first & (frame["memory"] == "300m")]
    found = verdict("P2", alone.assign(major_faults=0.8 * alone["faults"]))
    assert (found.verdict, found.value, found.values) == (claims.UNMEASURED, None, 0)
    assert found.measured == "page faults, container / host"


def steps(ratios, **factors):
    """Returns trainings on the host and in a container, whose compute times have these ratios."""
    by = {model: {"host": 10.0, "1": 10.0 * ratio} for model, ratio in ratios.items()}
    return study("train_compute_ms", by, models=tuple(ratios), **factors)


PAPER = {"lenet": 1.537, "mobilenet": 1.1626, "resnet18": 1.0734}


def test_a_container_costs_light_models_most():
    without = steps(dict.fromkeys(PAPER, 9.0), workers=0)
    found = verdict("C1", pd.concat([steps(PAPER), without]))
    assert found.verdict == claims.AGREES
    assert found.value == pytest.approx(statistics.mean(PAPER.values()))
    assert "that of lenet: 1.54 [" in found.why and "that of lenet - that of resnet18" in found.why
    upside_down = dict(zip(PAPER, reversed(PAPER.values()), strict=True))
    assert verdict("C1", steps(upside_down)).verdict == claims.DIFFERS
    alike = dict.fromkeys(PAPER, 1.1)
    assert verdict("C1", steps(alike)).verdict == claims.DIFFERS


def parts(optimizer, forward, backward):
    told = {"optimizer": optimizer, "forward": forward, "backward": backward}
    return with_measures(
        *(study(f"train_{part}_ms", {"host": 5.0, "1": 5.0 * more}, ("mobilenet", "lenet"))
          for part, more in told.items())
    )  # fmt: skip


def test_the_optimizer_grows_most():
    found = verdict("C5", parts(6.7, 1.114, 1.0489))
    assert (found.verdict, found.value) == (claims.AGREES, pytest.approx(6.7 - 1.114))
    assert "time of mobilenet's optimizer, container / host: 6.7 [" in found.why
    assert verdict("C5", parts(1.2, 1.1, 1.3)).verdict == claims.DIFFERS
    # It grows most, but far less than in the paper.
    assert verdict("C5", parts(1.3, 1.1, 1.05)).verdict == claims.DIFFERS


def test_neither_seccomp_nor_workers_change_a_container_s_overhead():
    usual = steps({"mobilenet": 1.2})[lambda runs: runs["seccomp"]]
    off = steps({"mobilenet": 1.21}, seccomp=False)
    off = off[(off["where"] == "1") & (off["train_compute_ms"] < 100)]
    alike = steps({"mobilenet": 1.19}, workers=0)[lambda runs: runs["seccomp"]]
    found = verdict("C6", pd.concat([usual, off, alike]))
    assert found.verdict == claims.AGREES
    assert "with 0 workers / with more: 0.992 [" in found.why
    less = steps({"mobilenet": 0.6}, workers=0)
    assert verdict("C6", pd.concat([usual, off, less])).verdict == claims.DIFFERS


@pytest.mark.parametrize("seed", range(3))
def test_ratios_and_levels_are_those_of_a_naive_program(seed):
    """Loops over rows, instead of joins; runs of all kinds, some missing, some unmeasured."""
    numbers = random.Random(seed)
    rows = []
    for model, where, repeat in itertools.product(MODELS, ("host", "1", "4"), range(3)):
        for other in ({}, *OTHERS, {"checkpoint_every": "epoch", "checkpoint_way": "truncate"}):
            if numbers.random() < 0.2:
                continue
            run = {**USUAL, "model": model, "where": where, "repeat": repeat, **other}
            measures = {name: numbers.uniform(0.1, 9) for name in ("faults", "cpu_s")}
            measures["writebacks_background"] = numbers.random()
            if numbers.random() < 0.1:
                measures = dict.fromkeys(measures, None)
            rows.append({**run, **measures})
    numbers.shuffle(rows)
    frame = pd.DataFrame(rows)

    def counts(run):
        return all(
            run[name] in (None, *usual) for name, usual in UNLIMITED.items() if name in run
        ) and run["mode"] == "train"  # fmt: skip

    def paired(measure, of, to):
        same = (*USUAL, "model", "repeat")
        return [
            (a[measure], b[measure])
            for a in rows
            for b in rows
            if a["where"] == of and b["where"] == to and counts(a) and counts(b)
            and all(a[name] == b[name] for name in same)
            and a[measure] is not None and b[measure] is not None
        ]  # fmt: skip

    for id, measure in (("P1", "cpu_s"), ("P2", "faults")):
        expected = [a / b for a, b in paired(measure, "1", "host")]
        found = verdict(id, frame)
        assert (found.value, found.values) == (
            pytest.approx(statistics.mean(expected)), len(expected),
        )  # fmt: skip
        error = statistics.stdev(expected) / math.sqrt(len(expected))
        student = found.value - t_quantile(0.975, len(expected) - 1) * error
        assert found.low >= 0 and (found.low > 0) == (student > 0)
    expected = [a - b for a, b in paired("writebacks_background", "4", "1")]
    found = verdict("P10", frame)
    assert (found.value, found.values) == (
        pytest.approx(statistics.mean(expected)), len(expected),
    )  # fmt: skip
    assert claims.judge(frame) == claims.judge(frame.sample(frac=1, random_state=seed).sort_index())


def test_other_habits_are_in_none_of_the_paper_s_tables():
    rows = [
        {"id": f"{n}", **USUAL, "model": "alexnet", "where": "1", "repeat": n % 3, **other,
         "reason": reason, "writebacks": 10 if not other else 1000, "wakes": 2}
        for n, other in enumerate(
            ({}, {"checkpoint_every": "epoch"}, {"checkpoint_way": "truncate"}, *OTHERS)
        )
        for reason in ("periodic", "sync")
    ]  # fmt: skip
    for row in rows:
        if row["checkpoint_every"] == "epoch" or row["checkpoint_way"] == "truncate":
            row["writebacks"] = 10
    found = park2023.writeback_reasons(pd.DataFrame(rows))
    own = found[(found["model"] == "alexnet") & (found["where"] == "one container")]
    own = own.set_index("reason")
    assert own["writebacks"].to_dict() == {"periodic": 10, "background": 0, "sync": 10}
    assert own["runs"].tolist() == [3, 3, 3]
    assert own["share_high"].max() <= 1 and own["share_low"].min() >= 0
