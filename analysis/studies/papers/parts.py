"""Every table and figure of the papers: what it is made of, what it is called, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from analysis.studies.papers import park2023, prashanthi2022, prashanthi2023

if TYPE_CHECKING:
    import plotly.graph_objects as go

RUNS = "runs"
"""The frame of runs and their measures, in the place of an extract."""
FACTS = "facts"
"""The frame of runs and what their traces tell of their machines, likewise."""


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper.

    `needs`: the extract (or RUNS, or FACTS) that `table` takes. `figures`: each draws the table.
    `shown`: whether the table is for people, too, or only what a figure is drawn of. `places`:
    where the runs were that it is made of; none: everywhere. `one_place`: `table` takes the runs of
    one place alone, this one, unless it is told another one as `where`.
    """

    title: str
    about: str
    needs: str
    table: Callable[..., pd.DataFrame]
    figures: list[Callable[[pd.DataFrame], go.Figure]] = field(default_factory=list)
    shown: bool = True
    places: tuple[str, ...] = ()
    one_place: str = ""


def parts(paper: str | None) -> list[Part]:
    """The tables and figures of a paper, by its seed; of all papers where none is named."""
    found = {"001": _park2023, "000": _prashanthi2023, "002": _prashanthi2022}
    chosen = [found[paper]] if paper in found else list(found.values())
    return [part for make in chosen for part in make()]


def _park2023() -> list[Part]:
    from analysis.figures import park2023 as draw

    return [
        Part(
            "Table 5: events of a container, the daemon and the host",
            "Counted by perf in the context of the processes themselves, per run. The paper's runs"
            " were longer: what can be compared is container to host. Its kinds of cores are added"
            " up.",
            "counters",
            park2023.event_counts,
            [draw.event_ratios],
            places=("host", "1"),
        ),
        Part(
            "Table 6: call chains of block_rq_insert",
            "Call graphs that lead to a request's insertion, by the kernel function that tells why"
            " it was made.",
            "call_chains",
            park2023.call_chains,
            [draw.call_chains],
        ),
        Part(
            "Table 7: settings of write-back",
            "The kernel's sysctls vm.dirty_*, of all runs.",
            FACTS,
            park2023.flush_settings,
        ),
        Part(
            "Table 8: causes of page faults",
            "In one container and its daemon, by task, file and function of the instruction. The"
            " paper's rows stand beside ours by rank alone.",
            "fault_causes",
            park2023.fault_causes,
            [draw.fault_causes],
            places=("1",),
            one_place="1",
        ),
        Part(
            "Tables 9 and 10: why write-backs began",
            "writeback_start events on the run's own file system. What the paper leaves out (other"
            " reasons) counts in our shares.",
            "writeback_reasons",
            park2023.writeback_reasons,
            [draw.writeback_reasons],
        ),
        Part(
            "Figure 3: times between write-backs",
            "Between successive writeback_start events on the run's own file system. The paper"
            " draws them without numbers.",
            "writeback_intervals",
            park2023.writeback_intervals,
            [draw.writeback_intervals],
        ),
        Part(
            "Figure 3: how these times are spread",
            "The mean of each quantile over the repeats.",
            "interval_quantiles",
            park2023.interval_spread,
            [draw.interval_spread],
            shown=False,
        ),
        Part(
            "Figure 4: pages by the time of their write-back",
            "One container, the first repeat; pages that were never written are left out.",
            "page_heat",
            park2023.page_heat,
            [draw.page_heat],
            shown=False,
            places=("1",),
            one_place="1",
        ),
        Part(
            "Figure 6: I/O latency that a flush layer saves",
            "By the paper's own model (8 ms a page on the disk, 350 ns in the layer). It gives no"
            " capacity, and does not say whether what is left in the layer in the end counts."
            " improvement: the most that any capacity saves when it does. needed: the capacity at"
            " which the paper's number is reached when it does not, as a share of the distinct"
            " pages written, and in MiB. identity: whether a block of the disk makes a page the"
            " same, or a page of a file. Every write to the run's own disk counts, as in the paper,"
            " whoever made it; of a trace without a disk of its own, those of its targets.",
            "layer_curve",
            park2023.layer_improvement,
            [draw.layer_improvement],
        ),
        Part(
            "Figure 6 by capacity",
            "What a layer of each size saves, in the first repeat; hollow markers: the size at"
            " which the paper's number is reached without the final drain.",
            "layer_curve",
            park2023.layer_curves,
            [draw.layer_curves],
            shown=False,
        ),
    ]


def _prashanthi2023() -> list[Part]:
    from analysis.figures import prashanthi2023 as draw

    return [
        Part(
            "Figures 1a and 3a: time of a minibatch",
            "Mean over a run's minibatches. The paper timed a GPU; on a CPU forward, backward and"
            " optimizer are the compute time.",
            "step_times",
            prashanthi2023.minibatch_times,
            [draw.minibatch_times, draw.increases],
        ),
        Part(
            "Figure 7: parts of the compute time",
            "",
            "step_times",
            prashanthi2023.compute_parts,
            [draw.minibatch_times, draw.increases],
        ),
        Part(
            "Figures 2, 4 and 5: use of CPU, GPU, power and memory",
            "Medians of what was sampled of the machine from the first to the last step of the"
            " stage; CPU utilisation is of all CPUs.",
            "usage",
            prashanthi2023.usage_medians,
        ),
        Part(
            "Figures 2, 4 and 5: how they are spread",
            "Quantiles, their mean over the repeats.",
            "usage",
            prashanthi2023.usage_spread,
            [draw.usage_violins],
            shown=False,
        ),
        Part(
            "Figure 5: memory that a container adds",
            "Between the medians of memory used, per pair of runs.",
            "usage",
            prashanthi2023.memory_overhead,
            [draw.memory_overhead],
        ),
        Part(
            "Figures 1b and 3b: energy",
            "The baseload is the idle machine's power over the time of the run; null where no"
            " baseload was recorded.",
            "energy",
            prashanthi2023.energy_split,
            [draw.energy_split],
        ),
    ]


def _prashanthi2022() -> list[Part]:
    from analysis.figures import prashanthi2022 as draw

    return [
        Part(
            "Figure 2a: an epoch by the number of workers",
            "Without the first epoch, on the host.",
            "epochs",
            prashanthi2022.stall_by_workers,
            [lambda frame: draw.epoch_bars(frame, "workers", "workers")],
            one_place="host",
        ),
        Part(
            "Figure 2b: fetch stall of the first epoch and of later ones",
            "With what was read from the run's own disk meanwhile, and what was in the page cache.",
            "epochs",
            prashanthi2022.stall_by_epoch,
            [draw.stall_by_epoch],
            one_place="host",
        ),
        Part(
            "Figure 3: an epoch by the storage medium",
            "On the host. sd-card, hdd and nvme-ssd are this machine's disk, held to their speed by"
            " the kernel.",
            "epochs",
            prashanthi2022.stall_by_medium,
            [draw.stall_by_medium],
            one_place="host",
        ),
        Part(
            "Figure 4: an epoch by the size of a batch",
            "Without the first epoch, on the host.",
            "epochs",
            prashanthi2022.stall_by_batch,
            [
                lambda frame: draw.epoch_bars(frame, "batch_size", "images a batch"),
                lambda frame: draw.step_lines(frame, "batch_size", "images a batch"),
            ],
            one_place="host",
        ),
        Part(
            "Figure 5: how much epochs vary",
            "Within a run, without its first epoch.",
            "epochs",
            prashanthi2022.epoch_spread,
            one_place="host",
        ),
        Part(
            "Figure 5: every epoch beside its run's mean",
            "",
            "epochs",
            prashanthi2022.epoch_times,
            [draw.epoch_violins],
            shown=False,
            one_place="host",
        ),
        Part(
            "Figures 8 and 10: power modes, and what was predicted of them",
            "An epoch after the first. The modes that were learned from are `profiled`.",
            RUNS,
            prashanthi2022.mode_times,
            [draw.predicted_times, draw.time_and_energy],
        ),
    ]
