"""Energy of a recording, and the part that the machine would have used without the job.

Sampled power becomes energy as in Prashanthi et al. 2022, section 4.5: the sum over all samples of
the power times the time since the previous sample. An energy counter is used if there is one.
"""

from __future__ import annotations

import pandas as pd

from tracer.probes.errors import UsageError
from tracer.probes.sampler.catalogue import READERS
from tracer.store.trace import Trace

_SOURCES = [
    (reader.name, series.name, series.rate is not None)
    for reader in READERS
    for series in reader.series
    if series.unit == ("J" if series.rate is not None else "W")
]
"""(reader, series, is an energy counter) for each series of energy or power."""

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
    """Returns the energy by source. The frame is empty if the machine reported no power.

    `between` limits the samples to a time (ns of the trace's clock).

    Columns: source (gpu, jetson, rapl, or total: the sum of all rows that are not part of another),
    instance (GPU, rail, domain), part (true: another row includes this one), method (counter, or
    power x interval), samples, duration_s (from the first sample to the last), longest_s (longest
    time between two samples), energy_j, mean_w.

    A `baseload` is a recording without a target. Its mean power is scaled by the run's duration
    (Prashanthi et al. 2023, section 5.1.5; Prashanthi et al. 2022, section 5.6.2). It adds the
    columns baseload_w, baseload_j, increment_j (energy beyond the baseload; below 0 the machine
    drew less), baseload_share (of energy_j). They are null for a source that the baseload lacks.

    Raises BadTrace for a trace without samples, UsageError for a baseload with a target.
    """
    found = _by_source(trace, between)
    if baseload is None:
        return found
    if baseload.manifest["targets"]:
        raise UsageError(
            f"{baseload.folder} has a target, but a baseload is recorded without one",
            "record a baseload: tracer record --baseload -d 600 -o idle.trace",
        )
    idle = _by_source(baseload)[["source", "instance", "mean_w"]]
    found = found.merge(
        idle.rename(columns={"mean_w": "baseload_w"}), on=["source", "instance"], how="left"
    )
    # The machine's total is that of the same sources: the baseload may have others, or fewer.
    total = found["source"] == TOTAL
    whole = found.loc[~found["part"].astype(bool) & ~total, "baseload_w"]
    found.loc[total, "baseload_w"] = whole.sum(min_count=max(1, len(whole)))
    found["baseload_j"] = found["baseload_w"] * found["duration_s"]
    found["increment_j"] = found["energy_j"] - found["baseload_j"]
    found["baseload_share"] = found["baseload_j"] / found["energy_j"]
    return found


def all_of(found: pd.DataFrame) -> pd.Series[float] | None:
    """Returns the row of `energy` for the whole machine: the total, or the only source, or None."""
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
    found.insert(2, "part", pd.Series([is_part(*name, names) for name in names], dtype=bool))
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


def is_part(source: str, instance: str | None, names: list[tuple[str, str | None]]) -> bool:
    """Returns whether another source includes the energy of this one.

    RAPL's psys includes the packages. A package includes its cores and uncore, but not its memory
    (kernel: drivers/powercap/intel_rapl_common.c). A Jetson's *_IN rail feeds all other rails.
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
    """Returns the reason, source by source, for which a trace has no energy."""
    reasons = trace.manifest.get("samples", {}).get("not_available", {})
    readers = {reader: name for reader, name, _ in _SOURCES}
    told = [
        f"{reader}: {reasons.get(reader) or reasons.get(name) or 'reported no power'}"
        for reader, name in readers.items()
    ]
    return f"energy is not available: {'; '.join(told)}"
