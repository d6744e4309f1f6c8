"""Every table and figure of the papers: its source, its title, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from tracer.analysis.studies.papers import (
    park2023,
    park2023_layer,
    park2023_limits,
    prashanthi2022,
    prashanthi2022_modes,
    prashanthi2023,
    serving,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

RUNS = "runs"
"""Names the frame of runs and their measures, used instead of an extract."""
FACTS = "facts"
"""Names the frame of runs and the facts of their machines, used instead of an extract."""


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper.

    `needs`: the extract (or RUNS, or FACTS) that `table` takes. `figures`: each draws the table.
    `shown`: true if the table itself is shown; false if it only feeds a figure. `mode`, `places`:
    the mode and the places of the runs that it is made from; empty: all. `one_place`: `table` takes
    the runs of one place only; this is the default of its argument `where`. `why`: gives the reason
    for a table without values from its frame; "" if it knows none. `note`: makes a sentence from
    what `table` takes, to be shown after `about`.
    """

    title: str
    about: str
    needs: str
    table: Callable[..., pd.DataFrame]
    figures: list[Callable[[pd.DataFrame], go.Figure]] = field(default_factory=list)
    shown: bool = True
    mode: str = ""
    places: tuple[str, ...] = ()
    one_place: str = ""
    why: Callable[[pd.DataFrame], str] | None = None
    note: Callable[[pd.DataFrame], str] | None = None

    def said(self, frame: pd.DataFrame) -> str:
        """Returns the text of the part for a frame that `table` can take."""
        return " ".join(filter(None, (self.about, self.note and self.note(frame))))


def parts(paper: str | None) -> list[Part]:
    """Returns the tables and figures of a paper, by its key; None: of all papers."""
    found = {"001": _park2023, "000": _prashanthi2023, "002": _prashanthi2022}
    chosen = [found[paper]] if paper in found else list(found.values())
    return [part for make in chosen for part in make()]


def _park2023() -> list[Part]:
    from tracer.analysis.figures import park2023 as draw

    return [
        Part(
            "Table 5: events of a container, the daemon and the host",
            "Counted by perf in the context of the processes themselves, per run. The paper's runs"
            " were longer, so compare the ratio of container to host. The paper's kinds of cores"
            " are added up.",
            "counters",
            park2023.event_counts,
            [draw.event_ratios],
            places=("host", "1"),
        ),
        Part(
            "Table 6: call chains of block_rq_insert",
            "Call graphs that lead to the insertion of a request on the run's own disk, by the"
            " kernel function that shows why it was made; path: the kernel functions from there on."
            " share: of all requests. write_share: of those that write, without the reads of"
            " dropped caches. The paper does not say whether its caches were cold.",
            "call_chains",
            park2023.call_chains,
            [draw.call_chains],
            note=park2023.other_disks,
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
            " paper's rows are matched with ours by rank only.",
            "fault_causes",
            park2023.fault_causes,
            [draw.fault_causes],
            places=("1",),
            one_place="1",
        ),
        Part(
            "Tables 9 and 10: reasons of write-backs",
            "writeback_start events (passes of the flusher) on the run's own file system, as the"
            " paper counts them, and the flusher's wakes with that reason: one wake makes several"
            " passes. Our shares are of passes, and include the reasons that the paper leaves"
            " out.",
            "writeback_reasons",
            park2023.writeback_reasons,
            [draw.writeback_reasons],
        ),
        Part(
            "Table 5 with limited memory and swap",
            "As Table 5, of the runs with the factors memory and swap.",
            "counters",
            park2023_limits.event_counts,
            places=("host", "1"),
        ),
        Part(
            "Tables 9 and 10 with a lower background threshold",
            "As Tables 9 and 10, of the runs with the factor dirty_background_bytes.",
            "writeback_reasons",
            park2023_limits.writeback_reasons,
        ),
        Part(
            "Figure 3: intervals between write-backs",
            "Intervals on the run's own file system between successive wakes of the flusher, and"
            " between its passes (writeback_start events): one wake makes several passes. The"
            " claims P5 to P7 are about wakes. The paper draws the intervals without numbers.",
            "writeback_intervals",
            park2023.writeback_intervals,
            [draw.writeback_intervals],
        ),
        Part(
            "Figure 3: distribution of the intervals",
            "The mean of each quantile over the repeats.",
            "interval_quantiles",
            park2023.interval_spread,
            [draw.interval_spread],
            shown=False,
        ),
        Part(
            "Figure 4: pages by the time of their write-back",
            "One container, the first repeat with the usual settings; pages that were never"
            " written are left out.",
            "page_heat",
            park2023.page_heat,
            [draw.page_heat],
            shown=False,
            places=("1",),
            one_place="1",
        ),
        Part(
            "Figure 6: I/O latency that a flush layer saves",
            "By the paper's model (8 ms a page on the disk, 350 ns in the layer). The paper gives"
            " no capacity, and does not say what makes a page the same, nor whether the final drain"
            " of the layer counts. identity: by disk block, page of a file, page of a path (a"
            " checkpoint that is renamed over the old one is the same), or page index alone."
            " writes: all to the run's own disk, as in the paper, or those of files, without the"
            " journal and metadata; if a trace has no disk of its own, the writes of its targets"
            " count. improvement: the most that any capacity saves with the final drain; at full:"
            " without the drain, with room for all pages. bound: 1 - distinct / written, the share"
            " of writes that repeat a page. No layer saves more with the final drain. fell back:"
            " pages whose file or path is not known, identified by block or by file. needed: the"
            " capacity that reaches the paper's number without the final drain, in MiB and as a"
            " share of a checkpoint of all jobs. If no page was written twice, a layer saves"
            " exactly its share of the pages, and no capacity is given.",
            "layer_curve",
            park2023_layer.layer_improvement,
            [draw.layer_improvement],
        ),
        Part(
            "Figure 6 by capacity",
            "Saving by a layer of each size, in the first repeat with the usual settings. Solid:"
            " without the final drain; dashed: with it. Hollow markers: the size that reaches the"
            " paper's number without the final drain.",
            "layer_curve",
            park2023_layer.layer_curves,
            [draw.layer_curves],
            shown=False,
        ),
        Part(
            "Figure 6 by checkpoint habit",
            "The most that any capacity saves of all writes, with the final drain, by the time and"
            " the way in which a job writes its checkpoints; the paper does not tell its own."
            " checkpoints: E, which each job wrote. bound: 1 - 1 / E, the saving of a checkpoint's"
            " own pages if all its checkpoints are the same pages to the layer.",
            "layer_curve",
            park2023_layer.layer_habits,
            [draw.layer_habits],
        ),
        *_serving(),
    ]


def _serving() -> list[Part]:
    from tracer.analysis.figures import serving as draw

    return [
        Part(
            "Serving: latency",
            "The paper describes an image that serves the saved model (section 3), but neither its"
            " load nor any number. The time of a request counts from when it was due; of few"
            " requests, the 99th percentile is nearly the longest. weights: trained means that the"
            " model was trained in this study.",
            RUNS,
            serving.latencies,
            [draw.latencies],
            mode="serve",
        ),
        Part(
            "Serving: page faults, CPU time and write-back",
            "Page faults and CPU time of a server, from its start to its end; write-backs"
            " and MiB written of a run, on its own disk.",
            RUNS,
            serving.costs,
            mode="serve",
        ),
        Part(
            "Serving: containers against the host",
            "Ratios over pairs of runs that differ in nothing but the place.",
            RUNS,
            serving.against_host,
            [draw.against_host],
            mode="serve",
        ),
    ]


def _prashanthi2023() -> list[Part]:
    from tracer.analysis.figures import prashanthi2023 as draw

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
            "Medians of the machine's samples from the first to the last step of the stage; CPU"
            " utilisation is of all CPUs.",
            "usage",
            prashanthi2023.usage_medians,
        ),
        Part(
            "Figures 2, 4 and 5: distribution of use",
            "Mean of each quantile over the repeats.",
            "usage",
            prashanthi2023.usage_spread,
            [draw.usage_violins],
            shown=False,
        ),
        Part(
            "Figure 5: memory that a container adds",
            "Difference of the medians of memory used, per pair of runs.",
            "usage",
            prashanthi2023.memory_overhead,
            [draw.memory_overhead],
        ),
        Part(
            "Figures 1b and 3b: energy",
            "Energy of a run divided by its minibatches, since trainings of a given time do unequal"
            " work. The baseload is the idle machine's power times the duration of the run;"
            " null if no baseload was recorded.",
            "energy",
            prashanthi2023.energy_split,
            [draw.energy_split],
        ),
    ]


def _prashanthi2022() -> list[Part]:
    from tracer.analysis.figures import prashanthi2022 as draw

    return [
        Part(
            "Figure 2a: epoch time by number of workers",
            "Without the first epoch, on the host.",
            "epochs",
            prashanthi2022.stall_by_workers,
            [lambda frame: draw.epoch_bars(frame, "workers", "workers")],
            one_place="host",
        ),
        Part(
            "Figure 2b: fetch stall of the first epoch and of later ones",
            "With the bytes read from the run's own disk, the size of the page cache, and the share"
            " of the pages of its files that the job found in the cache.",
            "epochs",
            prashanthi2022.stall_by_epoch,
            [draw.stall_by_epoch],
            one_place="host",
        ),
        Part(
            "Figure 3: epoch time by storage medium",
            "On the host. sd-card, hdd and nvme-ssd are this machine's disk, throttled by the"
            " kernel to their speed.",
            "epochs",
            prashanthi2022.stall_by_medium,
            [draw.stall_by_medium],
            one_place="host",
        ),
        Part(
            "Figure 4: epoch time by batch size",
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
            "Figure 5: variation of epoch times",
            "Within a run, without its first epoch.",
            "epochs",
            prashanthi2022.epoch_spread,
            one_place="host",
        ),
        Part(
            "Figure 5: every epoch against the mean of its run",
            "",
            "epochs",
            prashanthi2022.epoch_times,
            [draw.epoch_violins],
            shown=False,
            one_place="host",
        ),
        Part(
            "Figures 8 and 10: power modes, measured and predicted",
            "Values of an epoch after the first. The prediction learns from the `profiled` modes.",
            RUNS,
            prashanthi2022.mode_times,
            [draw.predicted_times, draw.time_and_energy],
        ),
        Part(
            "Section 5.1.1: fetch stall with limited memory",
            "On the host, with the bytes read from the run's own disk. The limit holds for the job"
            " with its page cache, as the memory of the paper's smaller devices does. Of the pages"
            " of files that the job used: those in the page cache, and those read again because"
            " reclaim had taken them out of it.",
            "epochs",
            prashanthi2022_modes.stall_by_memory,
            one_place="host",
        ),
        Part(
            "Figures 2c, 3c, 5b, 9b and 11: energy of an epoch",
            "Values of an epoch after the first, on the host.",
            RUNS,
            prashanthi2022_modes.epoch_energy,
            why=prashanthi2022_modes.why_no_epoch_energy,
        ),
        Part(
            "Figure 6: frequency scaling (DVFS)",
            "",
            RUNS,
            prashanthi2022_modes.no_table,
            why=prashanthi2022_modes.why_no_governor,
        ),
        Part(
            "Figure 7: power of the idle machine by state",
            "",
            RUNS,
            prashanthi2022_modes.no_table,
            why=prashanthi2022_modes.why_no_idle_states,
        ),
        Part(
            "Figure 9a: parts of an epoch by power mode",
            "Without the first epoch, on the host.",
            "epochs",
            prashanthi2022_modes.parts_by_mode,
            [lambda frame: draw.epoch_bars(frame, "power_mode", "")],
            one_place="host",
        ),
        Part(
            "Figures 13 to 16: modes that differ in one setting",
            "Values of an epoch after the first.",
            RUNS,
            prashanthi2022_modes.by_one_setting,
        ),
    ]
