"""Collects the data of one trace for a report. It takes time; its result is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.analysis.findings.catalogue import findings as all_findings
from tracer.analysis.findings.finding import Finding
from tracer.analysis.memory.knowledge import knowledge
from tracer.analysis.report.by_phase import by_phase
from tracer.analysis.report.reads import about_partial, about_together
from tracer.analysis.report.step_times import about_processes
from tracer.analysis.report.tables import DECLARED, MERGED, TABLES
from tracer.analysis.scale.sources import Source, opened
from tracer.analysis.views.disks.devices import notes as devices_notes
from tracer.analysis.views.energy import energy, why_none
from tracer.store.manifest import duration_s, recording, why_no_events
from tracer.store.trace import Trace

_FACTS = ("complete", "targets", "loss", "own_cost", "vm")


@dataclass(frozen=True)
class Gathered:
    """The data of one trace that a report shows.

    `facts`: complete, duration_s, targets, loss, own_cost and vm of the manifest, and
    without_events: why no kernel events were recorded (null: they may have been). `parts`: the
    parts of the tables in `MERGED` that the trace has. `tables`: the other tables. `notes`:
    sentences. `recording`: a value that is equal in copies of a recording; None: not known.
    """

    facts: dict[str, Any]
    parts: dict[str, pd.DataFrame]
    tables: dict[str, pd.DataFrame]
    notes: list[str]
    findings: list[Finding]
    recording: tuple[object, ...] | None = None

    def every_table(self) -> dict[str, pd.DataFrame]:
        """Returns the tables of this trace, in the order of the report."""
        found = {name: MERGED[name].finish(parts) for name, parts in self.parts.items()}
        found |= self.tables
        return {name: found[name] for name in DECLARED if name in found}


def gather(
    trace: Trace,
    by: str | None = None,
    findings: int | None = None,
    baseload: Source | None = None,
    alone: bool = True,
) -> Gathered:
    """Collects the data of a report from one trace.

    `by`: adds a table by phase, epoch or step. `findings`: number of findings at most; None: all.
    `baseload`: a recording of the idle machine, to split energy with. `alone`: the report has no
    other trace. Raises BadTrace if a table is damaged, or if `by` needs a table that is missing and
    the trace is alone; among others, it has no table by phase then.
    """
    found = all_findings(trace)[:findings] if findings != 0 else []
    parts, tables = {}, {}
    for name, table in TABLES.items():
        if not table.is_possible(trace):
            continue
        if name in MERGED:
            parts[name] = MERGED[name].parts(trace)
        else:
            tables[name] = table.of(trace)
    if by is not None and (alone or DECLARED["by_phase"].is_possible(trace)):
        tables["by_phase"] = by_phase(trace, by)
    written = set(parts["block_latency"]["dev"].dropna()) if "block_latency" in parts else set()
    notes = devices_notes(trace.manifest, written, once=True)
    without = why_no_events(trace.manifest)
    if without is not None:
        notes.append(without)
    if baseload is not None or "samples" in trace.tables:
        split = _energy(trace, baseload)
        if len(split):
            tables["energy"] = split
        else:
            notes.append(why_none(trace))
    facts: dict[str, Any] = {name: dict(trace.manifest)[name] for name in _FACTS}
    facts["duration_s"] = duration_s(trace.manifest)
    facts["without_events"] = without
    if "phases" in trace.tables:
        notes += about_processes(trace)
    if "page_cache" in trace.tables:
        notes += [*knowledge(trace).sentences, *about_partial(trace), *about_together(trace)]
    return Gathered(facts, parts, tables, notes, found, recording(trace.manifest))


def _energy(trace: Trace, baseload: Source | None) -> pd.DataFrame:
    if baseload is None:
        return energy(trace, None)
    with opened(baseload) as idle:
        return energy(trace, idle)
