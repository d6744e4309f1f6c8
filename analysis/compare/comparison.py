"""Comparison of all measures of all groups, most important change first.

Every measure with a p is a test, and some of many tests succeed by chance. So p is corrected for
the number of tests (Benjamini and Hochberg 1995). A measure is called changed if its corrected p is
below 5 %, so at most one in twenty changes is expected to be noise.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.compare.evidence import one_sided
from tracer.analysis.compare.groups import (
    Group,
    Grouping,
    about_pairs,
    different_lengths,
    different_work,
    pairs,
    told,
)
from tracer.analysis.compare.measured import LARGEST, Measured, measured
from tracer.analysis.compare.ratio import Values, ratio
from tracer.analysis.compare.verdicts import KEYS, ROWS, judged
from tracer.analysis.report.lost import lost_in_words
from tracer.analysis.scale.mapping import results
from tracer.analysis.scale.sources import Source, find_traces
from tracer.analysis.studies.identity import Identity, identity
from tracer.probes.errors import UsageError
from tracer.store.manifest import recording
from tracer.store.names import escaped
from tracer.store.trace import Trace


@dataclass(frozen=True)
class Run:
    """The data of one trace that a comparison needs, so that it is opened only once.

    `path`: its path or URL. `lost`: its losses in words, "" for none; None: not known. `recording`:
    a key that copies of one recording share; None: not known.
    """

    path: str
    identity: Identity
    measured: Measured
    lost: str | None
    recording: tuple[object, ...] | None


@dataclass(frozen=True)
class Comparison:
    """Groups of traces compared with the first group, the base.

    `grouping`: the groups, and how they were found. `runs`: the traces. `values`: one row per trace
    and measure (topic, measure, unit, group, trace, value, weight). `tests`: the number of tests.
    `notes`: sentences on the comparison. `left_out`: by topic, the number of measures that are not
    compared, because they are among the largest of no trace. `rows`: one row per measure and group
    except the base, in order of verdict and score, with the columns of `ROWS`:

    - runs, mean and median: of the runs that count; if runs pair, of those with a partner
    - ratio of the means to the base's, its 95 % interval (null: see `why`), p, and p_corrected for
      all `tests`
    - weight: the share of the job's time that the measure is about
    - score: the weight times the distance of the interval from 1, as a logarithm; without one,
      times that of the ratio, at most 1 for a ratio of 0
    - lossy: a trace of the two groups lost events; null: not known
    """

    grouping: Grouping
    runs: list[Run]
    values: pd.DataFrame
    rows: pd.DataFrame
    tests: int
    notes: list[str]
    left_out: dict[str, int]


def look(trace: Trace) -> Run:
    """Returns the data of a trace that a comparison needs. This is the slow part."""
    who = identity(trace)
    manifest = trace.manifest
    loss = manifest["loss"]
    lost = lost_in_words(
        loss.get("events", 0), loss.get("windows", 0), loss.get("unknown", 0), manifest["complete"]
    )
    known = "windows" in loss or bool(lost)
    return Run(
        escaped(str(trace.folder)),
        who,
        measured(trace, who.dev),
        lost if known else None,
        recording(manifest),
    )


def compare(
    traces: Sequence[str | Path],
    groups: Mapping[str, Sequence[str | Path]] | None = None,
    pair: bool = False,
    scheduler: str | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compares groups of traces with the first group, the base.

    `traces`: paths or URLs of traces, packs, or folders of them. `groups`: such locations by the
    name of their group, in place of `traces`; None: groups are found from the traces. `pair`: runs
    that do not pair by their factors pair by their order. `scheduler`: as in
    `tracer.analysis.scale.mapping.results`. `done`: called with the number of traces read and of
    all.

    Raises UsageError for fewer than two groups, for a trace in two groups, and for groups that
    cannot pair; BadTrace if a trace cannot be read.
    """
    notes: list[str] = []
    named = _once(groups, notes) if groups is not None else None
    sources = list(itertools.chain(*named.values())) if named else _unique(traces, notes)
    if len(sources) < 2:
        said = ": ".join(["a comparison needs two traces", *notes])
        raise UsageError(said, "e.g. tracer compare a.trace b.trace")
    looks = results(look, sources, scheduler, done)
    runs = [
        replace(run, path=escaped(source.location))
        for source, run in zip(sources, looks, strict=True)
    ]
    return compared(runs, named, pair, notes)


def _unique(locations: Sequence[str | Path], notes: list[str]) -> list[Source]:
    found: dict[str, Source] = {}
    for source in find_traces([str(location) for location in locations]):
        if found.setdefault(source.place(), source) is not source:
            notes.append(f"{source.location} is named twice, but counts once")
    return list(found.values())


def _once(groups: Mapping[str, Sequence[str | Path]], notes: list[str]) -> dict[str, list[Source]]:
    found = {name: _unique(locations, notes) for name, locations in groups.items()}
    of: dict[str, str] = {}
    for name, sources in found.items():
        for source in sources:
            if (other := of.setdefault(source.place(), name)) != name:
                raise UsageError(
                    f"{source.location} is in the groups {other} and {name}",
                    "name it in only one of them",
                )
    return found


def compared(
    runs: Sequence[Run],
    groups: Mapping[str, Sequence[object]] | None = None,
    pair: bool = False,
    notes: Sequence[str] = (),
) -> Comparison:
    """Compares traces by their data; with `groups`, `runs` must be in the order of the groups."""
    identities = [run.identity for run in runs]
    if groups is None:
        grouping = told(identities)
    else:
        numbers = iter(range(len(runs)))
        made = [Group(name, tuple(next(numbers) for _ in paths)) for name, paths in groups.items()]
        grouping = Grouping(made, "as given")
    if len(grouping.groups) < 2 or not all(group.traces for group in grouping.groups):
        raise UsageError("a comparison needs two groups of traces", "give --group NAME=T,T twice")
    values = _values(runs, grouping)
    left_out = _left_out(runs)
    said = [*notes, *grouping.notes, *_about(runs, grouping, identities)]
    said += _about_left_out(left_out)
    rows: list[dict[str, Any]] = []
    base = grouping.groups[0]
    for group in grouping.groups[1:]:
        paired = pairs(base, group, identities, by_order=pair)
        if pair and paired is None:
            raise UsageError(
                f"{base.name} has {base.runs} and {group.name} {group.runs}",
                "--pair needs the same number of runs in each group, in the same order",
            )
        said += about_pairs(base, group, paired, identities)
        rows += _rows(values, runs, base, group, paired)
    frame = judged(pd.DataFrame(rows, columns=ROWS))
    tests = int(frame["p"].notna().sum())
    return Comparison(grouping, list(runs), values, frame, tests, said, left_out)


def _about(runs: Sequence[Run], grouping: Grouping, identities: Sequence[Identity]) -> list[str]:
    said = different_work(grouping.groups, identities)
    said += different_lengths(grouping.groups, [run.measured.length_s for run in runs])
    seen: dict[tuple[object, ...], Run] = {}
    for run in runs:
        if run.recording is None:
            continue
        first = seen.setdefault(run.recording, run)
        if first is not run:
            said.append(f"{first.path} and {run.path} are the same recording")
    for group in grouping.groups:
        of_group = [runs[number].measured.notes for number in group.traces]
        notes = dict.fromkeys(itertools.chain.from_iterable(of_group))
        said += [f"{group.name}: {note}" for note in notes]
        lossy = [runs[number] for number in group.traces if runs[number].lost]
        if lossy:
            more = f" and {len(lossy) - 1} more" if len(lossy) > 1 else ""
            said.append(
                f"events are missing in {group.name}: {lossy[0].path}{more} ({lossy[0].lost}), so"
                " that its counts are too low"
            )
        unknown = [runs[number] for number in group.traces if runs[number].lost is None]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            said.append(
                f"it is not known whether events are missing in {group.name}:"
                f" {unknown[0].path}{more}"
            )
        if len(group.traces) == 1:
            said.append(f"{group.name} is a single run, so noise cannot be told from change")
    return said


def _left_out(runs: Sequence[Run]) -> dict[str, int]:
    """Returns by topic the number of measures that are among the largest of no trace."""
    frames = [run.measured.frame for run in runs if len(run.measured.frame)]
    found = pd.concat([frame[[*KEYS, "leading"]] for frame in frames], ignore_index=True)
    leads = found.groupby(KEYS)["leading"].any()
    return dict(Counter(str(topic) for topic, *_ in leads.index[~leads.astype(bool)]))


def _about_left_out(left_out: Mapping[str, int]) -> list[str]:
    return [
        f"{topic}: the {LARGEST[topic]} of each trace with the most time are compared;"
        f" {count:,} measures of others are left out"
        for topic, count in left_out.items()
    ]


def _values(runs: Sequence[Run], grouping: Grouping) -> pd.DataFrame:
    """Returns a row per trace and leading measure; a missing measure gets its `absent` value."""
    of = {number: group.name for group in grouping.groups for number in group.traces}
    parts = [
        run.measured.frame.assign(trace=number, group=of[number])
        for number, run in enumerate(runs)
        if number in of and len(run.measured.frame)
    ]
    if not parts:
        raise UsageError("the traces have no measures to compare", "see tracer info T")
    frame = pd.concat(parts, ignore_index=True)
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    frame = frame[np.isfinite(frame["value"].astype(float))]
    lacks = one_sided({number: runs[number].measured.lacks for number in of})
    told_apart = zip(frame["evidence"], frame["trace"], strict=True)
    fair = [not evidence & lacks[number] for evidence, number in told_apart]
    frame = frame[np.array(fair, bool)]
    frame = frame[frame.groupby(KEYS)["leading"].transform("any")]
    missing = []
    for keys, one in frame[frame["absent"].notna()].groupby(KEYS, sort=False):
        topic = keys[0] if isinstance(keys, tuple) else keys
        for number in of:
            of_run = runs[number].measured
            if number in set(one["trace"]) or topic in of_run.whys or topic in of_run.cut:
                continue
            if one["evidence"].iloc[0] & lacks[number]:
                continue
            told = dict(zip(KEYS, keys, strict=True)) | {"trace": number, "group": of[number]}
            filled = {name: one[name].iloc[0] for name in ("absent", "evidence")}
            missing.append(told | {"value": filled["absent"], "weight": 0.0} | filled)
    if missing:
        frame = pd.concat([frame, pd.DataFrame(missing)], ignore_index=True)
    return frame[[*KEYS, "group", "trace", "value", "weight", "evidence"]]


def _rows(
    values: pd.DataFrame,
    runs: Sequence[Run],
    base: Group,
    group: Group,
    paired: list[tuple[int, int]] | None,
) -> list[dict[str, Any]]:
    rows = []
    lossy = _lossy([runs[number] for number in (*base.traces, *group.traces)])
    for keys, one in values.groupby(KEYS, sort=False):
        by_trace = one.set_index("trace")["value"]
        row = dict(zip(KEYS, keys, strict=True)) | {"group": group.name, "base": base.name}
        sides = [_of(by_trace, list(part.traces)) for part in (base, group)]
        couples = _couples(by_trace, paired)
        counted = sides if couples is None else couples
        row |= _middle("base_", counted[0]) | _middle("", counted[1]) | {"lossy": lossy}
        row["weight"] = float(one["weight"].max())
        if not (len(sides[0]) and len(sides[1])):
            gone = group if len(sides[0]) else base
            why = _why(runs, gone, str(row["topic"]), one["evidence"].iloc[0])
            row["why"] = f"not in {gone.name}: {why}"
            rows.append(row)
            continue
        found = ratio(counted[0], counted[1], paired=couples is not None)
        rows.append(
            row
            | {
                "ratio": found.ratio, "ratio_low": found.low, "ratio_high": found.high,
                "pairs": len(couples[0]) if couples is not None else None,
                "method": found.method, "p": found.p, "why": found.why or None,
            }
        )  # fmt: skip
    return rows


def _lossy(runs: Sequence[Run]) -> bool | None:
    """Returns whether any of the traces lost events; None: not known."""
    if any(run.lost for run in runs):
        return True
    return None if any(run.lost is None for run in runs) else False


def _of(by_trace: pd.Series[float], traces: Sequence[int]) -> Values:
    return np.asarray([by_trace[n] for n in traces if n in by_trace.index], np.float64)


def _couples(
    by_trace: pd.Series[float], paired: list[tuple[int, int]] | None
) -> tuple[Values, Values] | None:
    if paired is None:
        return None
    both = [(a, b) for a, b in paired if a in by_trace.index and b in by_trace.index]
    if not both:
        return None
    return _of(by_trace, [a for a, _ in both]), _of(by_trace, [b for _, b in both])


def _middle(prefix: str, values: Values) -> dict[str, Any]:
    known = len(values) > 0
    return {
        f"{prefix}runs": len(values),
        f"{prefix}mean": float(values.mean()) if known else None,
        f"{prefix}median": float(np.median(values)) if known else None,
    }


def _why(runs: Sequence[Run], group: Group, topic: str, evidence: frozenset[str]) -> str:
    for number in group.traces:
        if (why := runs[number].measured.whys.get(topic)) is not None:
            return why
    if any(topic in runs[number].measured.cut for number in group.traces):
        return "it has too many names to compare all of them"
    lacks = one_sided({number: run.measured.lacks for number, run in enumerate(runs)})
    if lacked := evidence & {table for number in group.traces for table in lacks[number]}:
        return f"a trace has no table {', '.join(sorted(lacked))}"
    return "nothing of this kind was recorded"
