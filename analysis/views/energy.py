"""Energy of a recording, and what of it the machine would have used without the job.

Power that was sampled becomes energy as in seed 002, section 4.5: the sum of each sample's power
times the time since the sample before. A counter of energy is taken where there is one.
"""

from __future__ import annotations

import pandas as pd

from probes.errors import UsageError
from probes.sampler.catalogue import READERS
from tracer.store.trace import Trace

_SOURCES = [
    (reader.name, series.name, series.rate is not None)
    for reader in READERS
    for series in reader.series
    if series.unit == ("J" if series.rate is not None else "W")
]
"""(reader, series, whether it is a counter of energy) of all that tells of energy."""

TOTAL = "total"

_ENERGY = """
WITH sources(reader, name, counter) AS (VALUES {sources}),
steps AS (
    SELECT s.reader, s.name, s.counter, instance, ts, value,
        value - lag(value) OVER w AS grown, (ts::HUGEINT - lag(ts) OVER w) / 1e9 AS s
    FROM samples JOIN sources s USING (name)
    WHERE value IS NOT NULL AND target IS NULL AND ts BETWEEN {since} AND {until}
    WINDOW w AS (PARTITION BY name, instance ORDER BY ts)
),
parts AS (
    SELECT reader, name, counter, instance, count(*) + 1 AS samples,
        list_sum(list(s ORDER BY ts)) AS duration_s,
        list_sum(list(if(counter, grown, value * s) ORDER BY ts)) AS energy_j, max(s) AS longest_s
    FROM steps WHERE s > 0 AND (NOT counter OR grown >= 0) GROUP BY ALL
)
SELECT reader AS source, instance, if(counter, 'counter', 'power x interval') AS method,
    samples, duration_s, longest_s, energy_j, energy_j / duration_s AS mean_w
FROM parts
QUALIFY row_number() OVER (PARTITION BY reader, instance ORDER BY counter DESC) = 1
ORDER BY source, instance
"""


def energy(
    trace: Trace, baseload: Trace | None = None, between: tuple[int, int] | None = None
) -> pd.DataFrame:
    """Energy by source; empty where the machine gave no power.

    `between` takes the samples of that time alone, in ns of the trace's clock.

    Columns: source (gpu, jetson, rapl, or total: of all that is no part of another), instance (GPU,
    rail, domain), part (within another row's), method (counter, or power x interval), samples,
    duration_s (from the first sample to the last), longest_s (between two), energy_j, mean_w.

    With a `baseload`, a recording without a target, its mean power is scaled by the run's duration
    (seeds 000, section 5.1.5, and 002, section 5.6.2). Columns: baseload_w, baseload_j, increment_j
    (energy beyond it; below 0 the machine drew less), baseload_share (of energy_j). Null for a
    source that the baseload lacks.

    Raises BadTrace for a trace without samples, UsageError for a baseload with a target.
    """
    found = _by_source(trace, between)
    if baseload is None:
        return found
    if baseload.manifest["targets"]:
        raise UsageError(
            f"{baseload.folder} has a target, and a baseload has none",
            "record one: tracer record --baseload -d 600 -o idle.trace",
        )
    idle = _by_source(baseload)[["source", "instance", "mean_w"]]
    found = found.merge(
        idle.rename(columns={"mean_w": "baseload_w"}), on=["source", "instance"], how="left"
    )
    found["baseload_j"] = found["baseload_w"] * found["duration_s"]
    found["increment_j"] = found["energy_j"] - found["baseload_j"]
    found["baseload_share"] = found["baseload_j"] / found["energy_j"]
    return found


def all_of(found: pd.DataFrame) -> pd.Series[float] | None:
    """The row of `energy` that has all of it: the total, or the only source; None without any."""
    whole = found[~found["part"].astype(bool)]
    total = whole[whole["source"] == TOTAL]
    rows = total if len(total) else whole
    return rows.iloc[0] if len(rows) else None


def _by_source(trace: Trace, between: tuple[int, int] | None = None) -> pd.DataFrame:
    trace.require("samples")
    sources = ", ".join(f"('{reader}', '{name}', {c})" for reader, name, c in _SOURCES)
    since, until = between or (0, (1 << 63) - 1)
    query = _ENERGY.replace("{sources}", sources)
    found = trace.sql(query.replace("{since}", str(since)).replace("{until}", str(until)))
    names = list(zip(found["source"], found["instance"], strict=True))
    found.insert(2, "part", pd.Series([_part(*name, names) for name in names], dtype=bool))
    whole = found[~found["part"]]
    if len(whole) > 1:
        total = {
            "source": TOTAL,
            "instance": None,
            "part": False,
            "method": "sum",
            "samples": whole["samples"].min(),
            "duration_s": whole["duration_s"].max(),
            "longest_s": whole["longest_s"].max(),
            "energy_j": whole["energy_j"].sum(),
            "mean_w": whole["mean_w"].sum(),
        }
        found = pd.concat([found, pd.DataFrame([total])], ignore_index=True)
    return found


def _part(source: str, instance: str | None, names: list[tuple[str, str | None]]) -> bool:
    """Whether what a source measures is measured by another one, too.

    RAPL's psys holds packages, a package its cores and uncore, but not its memory (kernel:
    drivers/powercap/intel_rapl_common.c). A Jetson's *_IN rail feeds all others.
    """
    if instance is None:
        return False
    if source == "rapl":
        if ("rapl", "psys") in names:
            return instance != "psys"
        return "/" in instance and not instance.endswith("/dram")
    if source == "jetson":
        module = any(s == "jetson" and i is not None and i.endswith("_IN") for s, i in names)
        return module and not instance.endswith("_IN")
    return False


def why_none(trace: Trace) -> str:
    """Why a trace tells of no energy, source by source."""
    reasons = trace.manifest.get("samples", {}).get("not_available", {})
    readers = {reader: name for reader, name, _ in _SOURCES}
    told = [
        f"{reader}: {reasons.get(reader) or reasons.get(name) or 'gave no power'}"
        for reader, name in readers.items()
    ]
    return f"energy is not available: {'; '.join(told)}"
