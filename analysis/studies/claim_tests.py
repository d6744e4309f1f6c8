"""The test of each claim of the papers: the values computed from the runs, and their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.analysis.studies.claim_values import (
    CONTAINER,
    FOUR,
    GIVEN,
    HOST,
    WITH_WORKERS,
    Compute,
    Where,
    between_models,
    difference,
    greatest_of_models,
    inference_against_training,
    level,
    models_in_which,
    optimizer_beyond_the_rest,
    overhead_without_workers,
    quotient,
    ratio,
    ratio_of_same_work,
)
from tracer.analysis.studies.flush_layer import possible_savings
from tracer.analysis.studies.intervals import ANY, PERCENT, SHARE
from tracer.analysis.studies.special_values import (
    SMALL_ERROR_PERCENT,
    default_beaten,
    faults_by_causes,
    later_stall_by_the_cache,
    saved_beyond_the_stall,
    saving_left,
    slowdown_of_containers,
    well_predicted,
)


@dataclass(frozen=True)
class Test:
    """The test of a claim: values computed from the runs, and the bounds between which it holds."""

    measured: str
    compute: Compute
    least: float = -np.inf
    most: float = np.inf
    why: str = ""
    """Name of the column of `runs` with the reason why a measure is missing."""
    beside: Test | tuple[Test, ...] = ()
    """Other parts of the claim; each counts if it was measured."""
    about: float | None = None
    """The paper's number, if the claim is about a number: an interval that excludes it differs."""

    @property
    def others(self) -> tuple[Test, ...]:
        """The other parts of the claim."""
        return self.beside if isinstance(self.beside, tuple) else (self.beside,)


def _around(number: float, over: float = 0.0) -> Mapping[str, Any]:
    """Returns the bounds of "about `number`": half of its distance from `over` to either side."""
    half = (number - over) / 2
    return {"least": number - half, "most": number + half, "about": number}


_MUCH_ALIKE = (0.8, 1.25)
_GB = 1e9
_FOUR_BELOW: Where = {**FOUR, "dirty_background_bytes": GIVEN}
_CONTAINER_BELOW: Where = {**CONTAINER, "dirty_background_bytes": GIVEN}
_PAPER_COMPUTE = {"lenet": 1.537, "mobilenet": 1.1626, "resnet18": 1.0734}
"""Prashanthi et al. 2023, Figure 1a."""


def _compute_of(model: str) -> Compute:
    return ratio("train_compute_ms", CONTAINER, HOST, model=model, **WITH_WORKERS)


TESTS = {
    "P1": Test(
        "CPU time, container / host", ratio("cpu_s", CONTAINER, HOST), **_around(1.5, over=1.0)
    ),
    "P2": Test(
        "page faults, container / host",
        ratio("faults", CONTAINER, HOST),
        least=2.0,
        beside=(
            Test(
                "page faults within the stages of the job, container / host",
                ratio("stage_faults", CONTAINER, HOST),
                least=2.0,
            ),
            Test(
                "page faults, container / host, both with a memory limit and swap",
                ratio("faults", CONTAINER, HOST, memory=GIVEN, swap=GIVEN),
                least=2.0,
            ),
            Test(
                "share of major faults in a container with a memory limit and swap",
                quotient("major_faults", "faults", SHARE, where="1", memory=GIVEN, swap=GIVEN),
                least=0.5,
            ),
        ),
    ),
    "P3": Test(
        "daemon's CPU time / container's",
        level("daemon_cpu_share", "1"),
        most=0.001,
        beside=Test(
            "daemon's page faults / container's", level("daemon_fault_share", "1"), most=1e-4
        ),
    ),
    "P4": Test(
        "share of block_rq_insert on the run's disk through wb_workfn",
        level("insert_by_wb_workfn", "1", SHARE),
        0.1777,
        why="insert_by_wb_workfn_why",
        beside=Test("of the writes alone", level("insert_writes_by_wb_workfn", "1", SHARE), 0.1777),
    ),
    "P5": Test(
        "mean interval between wakes, container / host",
        ratio("writeback_interval_s", CONTAINER, HOST),
        most=1.0,
        beside=Test(
            "standard deviation of that interval, container / host",
            ratio("writeback_interval_std_s", CONTAINER, HOST),
            least=1.0,
        ),
    ),
    "P6": Test(
        "mean interval between wakes, 4 containers / 1",
        ratio("writeback_interval_s", FOUR, CONTAINER),
        *_MUCH_ALIKE,
    ),
    "P7": Test(
        "mean interval between wakes / timer",
        quotient("writeback_interval_s", "writeback_timer_s", where="1"),
        most=1.0,
    ),
    "P8": Test(
        "% of faults by the functions of the paper's causes",
        faults_by_causes,
        **_around(31.3),
        why="faults_by_causes_percent_why",
        beside=(
            Test(
                "% of faults by the ten most frequent causes",
                level("top_causes_percent", "1", PERCENT),
                least=31.3,
            ),
            Test(
                "% of faults by the most frequent cause",
                level("top_cause_percent", "1", PERCENT),
                least=6.2,
            ),
        ),
    ),
    "P9": Test(
        "share of periodic among write-backs",
        level("writebacks_periodic", "1", SHARE),
        0.681,
        0.815,
        beside=(
            Test("share of background", level("writebacks_background", "1", SHARE), 0.184, 0.316),
            Test("share of sync", level("writebacks_sync", "1", SHARE), most=0.008),
            Test(
                "share of background, with a background threshold below a checkpoint",
                level("writebacks_background", "1", SHARE, dirty_background_bytes=GIVEN),
                0.184,
                0.316,
            ),
        ),
    ),
    "P10": Test(
        "background's share, 4 containers - 1",
        difference("writebacks_background", FOUR, CONTAINER),
        least=0.0,
        beside=(
            Test(
                "share of models in which it grows",
                models_in_which("writebacks_background", FOUR, CONTAINER),
                least=0.5,
            ),
            Test(
                "greatest background's share of a model, 4 containers",
                greatest_of_models("writebacks_background", "4", SHARE),
                **_around(0.421),
            ),
            Test(
                "background's share, 4 containers - 1, with a threshold below a checkpoint",
                difference("writebacks_background", _FOUR_BELOW, _CONTAINER_BELOW),
                least=0.0,
            ),
        ),
    ),
    "P11": Test(
        "share of write-backs on the hottest 1 % of pages, last quarter - first",
        level("hot_share_growth", "1", ANY),
        least=0.0,
    ),
    # The paper gives no capacity. Without the final drain, a large layer can save any share.
    "P12": Test(
        "most that a flush layer saves, final drain included",
        level("improvement", "1", possible_savings()),
        least=0.77,
    ),
    "P13": Test(
        "most that a flush layer saves, final drain included, 4 containers",
        level("improvement", "4", possible_savings()),
        least=0.77,
    ),
    "C1": Test(
        "compute time of a step, container / host",
        ratio("train_compute_ms", CONTAINER, HOST, **WITH_WORKERS),
        least=1.0,
        beside=(
            *(
                Test(f"that of {model}", _compute_of(model), **_around(paper, over=1.0))
                for model, paper in _PAPER_COMPUTE.items()
            ),
            Test(
                "that of lenet - that of resnet18",
                between_models("train_compute_ms", "lenet", "resnet18"),
                least=0.0,
            ),
        ),
    ),
    "C2": Test(
        "median CPU utilisation, container / host",
        ratio("cpu_use_percent", CONTAINER, HOST, **WITH_WORKERS),
        least=1.0,
        beside=Test(
            "median GPU utilisation, container / host",
            ratio("gpu_use_percent", CONTAINER, HOST, **WITH_WORKERS),
            most=1.0,
            why="gpu_use_percent_why",
        ),
    ),
    "C3": Test(
        "slowdown of a step by less CPU speed, container - host",
        slowdown_of_containers,
        least=0.0,
    ),
    "C4": Test(
        "system calls per step, container / host",
        ratio_of_same_work("syscalls", CONTAINER, HOST, **WITH_WORKERS),
        least=1.0,
    ),
    "C5": Test(
        "time of the optimizer, container / host, - the greater of forward's and backward's",
        optimizer_beyond_the_rest,
        least=0.0,
        beside=Test(
            "time of mobilenet's optimizer, container / host",
            ratio("train_optimizer_ms", CONTAINER, HOST, model="mobilenet", **WITH_WORKERS),
            **_around(17.63 / 2.63, over=1.0),
        ),
    ),
    "C6": Test(
        "compute time of a step, without seccomp / with it",
        ratio("train_compute_ms", {**CONTAINER, "seccomp": False}, {**CONTAINER, "seccomp": True}),
        *_MUCH_ALIKE,
        beside=Test(
            "compute time of a step, container / host: with 0 workers / with more",
            overhead_without_workers,
            *_MUCH_ALIKE,
        ),
    ),
    "C7": Test(
        "energy of a training per step, container / host",
        ratio_of_same_work("energy_j", CONTAINER, HOST, **WITH_WORKERS),
        least=1.0,
        why="energy_j_why",
    ),
    "C8": Test(
        "median memory used, container - host, bytes",
        difference("memory_median_bytes", CONTAINER, HOST, **WITH_WORKERS),
        most=0.35 * _GB,
    ),
    "C9": Test("compute overhead of inference - of training", inference_against_training, most=0.0),
    "J1": Test(
        "fetch stall of a step, later epochs / first: cache dropped / kept",
        later_stall_by_the_cache,
        most=1.0,
    ),
    "J2": Test(
        "fetch stall of a step, 1 worker / none",
        ratio("train_fetch_stall_ms", {"workers": 1}, {"workers": 0}),
        most=0.5,
    ),
    "J3": Test(
        "share of a step saved by 4 workers, minus the share that was stall with 1",
        saved_beyond_the_stall,
        most=0.05,
    ),
    "J4": Test(
        "stall saved by a faster disk: with cache and workers / without",
        saving_left,
        most=0.05,
    ),
    "J5": Test(
        "time of an epoch, batches of 64 / of 4",
        ratio("epoch_s", {"batch_size": 64}, {"batch_size": 4}),
        most=1.0,
    ),
    "J6": Test(
        "spread of epoch times / mean, after the first", level("epoch_spread", None), most=0.05
    ),
    "J7": Test(
        "repeats in which some model's default mode is off the Pareto front",
        default_beaten,
        least=0.5,
    ),
    "J8": Test(
        f"predicted epoch times within {SMALL_ERROR_PERCENT} %", well_predicted, least=31 / 40
    ),
    "J9": Test(
        "share of a training's energy that the idle machine would have used",
        level("baseload_share", None),
        least=0.5,
        why="baseload_share_why",
    ),
}
"""The tests by claim. The bounds are the claim's own; of a range, the end that is easier to reach.
"About" a number is within half of it to either side, or within half of the paper's increase over 1;
it differs if the interval excludes the paper's number, too. "Do not differ much" and "changes
nothing" are 0.8 to 1.25, as in the usual test of equivalence; "sharply" is by half,
"little" is 5 %, a "small" error of a prediction is 10 %, "not always" is in more than half of the
repeats, "a large part" and "dominate" are a half."""
