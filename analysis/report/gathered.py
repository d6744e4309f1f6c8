"""What a report needs of one trace: the part that takes time, and that is small afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.findings.catalogue import findings as all_findings
from analysis.findings.finding import Finding
from analysis.report.by_phase import by_phase
from analysis.report.tables import MERGEABLE, TABLES
from analysis.scale.sources import Source, opened
from analysis.studies.identity import recording
from analysis.views.devices import notes as devices_notes
from analysis.views.energy import energy, why_none
from tracer.store.manifest import duration_s
from tracer.store.trace import Trace

_FACTS = ("complete", "targets", "loss", "own_cost", "vm")


@dataclass(frozen=True)
class Gathered:
    """One trace, as far as a report tells of it.

    `facts`: of its manifest: complete, duration_s, targets, loss, own_cost, vm. `parts`: of the
    tables in `MERGEABLE` that it can give. `tables`: the others, as they are. `notes`: sentences.
    `recording`: what two copies of one recording have in common; None: not known.
    """

    facts: dict[str, Any]
    parts: dict[str, pd.DataFrame]
    tables: dict[str, pd.DataFrame]
    notes: list[str]
    findings: list[Finding]
    recording: tuple[object, ...] | None = None

    def every_table(self) -> dict[str, pd.DataFrame]:
        """The tables of this one trace, in the order of the report."""
        found = {name: MERGEABLE[name].finish(parts) for name, parts in self.parts.items()}
        found |= self.tables
        order = [*TABLES, *self.tables]
        return {name: found[name] for name in dict.fromkeys(order) if name in found}


def gather(
    trace: Trace, by: str | None = None, findings: int | None = None, baseload: Source | None = None
) -> Gathered:
    """All that a report tells of this trace.

    `by`: a table by phase, epoch or step, too. `findings`: so many at most, all for None.
    `baseload`: a recording of the idle machine, to split energy by. Raises BadTrace where a table
    is damaged, or --by asks for one that is not there.
    """
    found = all_findings(trace)[:findings] if findings != 0 else []
    parts, tables = {}, {}
    for name, (make, needs) in TABLES.items():
        if not all(need in trace.tables for need in needs):
            continue
        if name in MERGEABLE:
            parts[name] = MERGEABLE[name].parts(trace)
        else:
            tables[name] = make(trace)
    if by is not None:
        tables["by_phase"] = by_phase(trace, by)
    written = set(parts["block_latency"]["dev"].dropna()) if "block_latency" in parts else set()
    notes = devices_notes(trace.manifest, written)
    if baseload is not None or "samples" in trace.tables:
        split = _energy(trace, baseload)
        if len(split):
            tables["energy"] = split
        else:
            notes.append(why_none(trace))
    facts: dict[str, Any] = {name: dict(trace.manifest)[name] for name in _FACTS}
    facts["duration_s"] = duration_s(trace.manifest)
    return Gathered(facts, parts, tables, notes, found, recording(trace.manifest))


def _energy(trace: Trace, baseload: Source | None) -> pd.DataFrame:
    if baseload is None:
        return energy(trace, None)
    with opened(baseload) as idle:
        return energy(trace, idle)
