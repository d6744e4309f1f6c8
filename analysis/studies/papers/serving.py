"""Serving: the runs of the deployment image, for which Park & Bahn 2023 gives no numbers.

Section 3 describes the image: it runs the saved model and answers requests. Each function takes one
row per run, with its measures.
"""

from __future__ import annotations

import pandas as pd

from tracer.analysis.studies.runs import FACTORS
from tracer.analysis.studies.spread import in_order, over_runs, without_limits

_LATENCY = ["latency_p50_ms", "latency_mean_ms", "latency_p99_ms"]
_COSTS = ["faults", "major_faults", "cpu_s", "writebacks", "written_mib"]
_COMPARED = {
    "latency_p50_ms": "median latency",
    "latency_p99_ms": "99th percentile of latency",
    "faults": "page faults",
    "cpu_s": "CPU time",
}


def _servings(runs: pd.DataFrame) -> pd.DataFrame:
    return without_limits(runs[runs["mode"] == "serve"])


def latencies(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the latencies of served models, and what became of the requests.

    Columns: model, where, rate (requests a second to a server, as the study asks); latency_p50_ms,
    latency_mean_ms, latency_p99_ms, achieved_per_s of a server (each with _low, _high);
    requests_due and requests_unanswered, of all servers and runs (null: not known of some run);
    weights (trained: by a training of the study; fresh; or how many runs had each); runs.
    """
    own = _servings(runs)
    keys = ["model", "where", "rate"]
    found = over_runs(own, keys, [*_LATENCY, "achieved_per_s"])
    grouped = own.groupby(keys, sort=False)
    for name in ("requests_due", "requests_unanswered"):
        sums = grouped[name].agg(_sum).rename(name).reset_index()
        found = found.merge(sums, on=keys)
    weights = grouped["weights"].agg(_kinds).rename("weights").reset_index()
    found = found.merge(weights, on=keys)
    found.insert(len(found.columns) - 1, "runs", found.pop("runs"))
    return in_order(found, ["model", "rate"])


def costs(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns what the kernel did for served models.

    Columns: model, where; faults, major_faults and cpu_s (of a server, from its start to its end),
    writebacks and written_mib (of a run, on its own disk; null: not recorded), each with _low and
    _high; runs.
    """
    return in_order(over_runs(_servings(runs), ["model", "where"], _COSTS), ["model"])


def against_host(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns how much more a served model costs in containers than on the host.

    Columns: measure, model, where (the containers), to_host (the ratio, _low, _high), pairs of runs
    that differ in nothing but the place.
    """
    own = _servings(runs)
    same = [name for name in FACTORS if name in own and name != "where"]
    host = own[own["where"] == "host"]
    pairs = own[own["where"] != "host"].merge(host, on=same, suffixes=("", "_host"))
    parts = []
    for name, said in _COMPARED.items():
        below = pd.to_numeric(pairs[f"{name}_host"])
        ratio = pd.to_numeric(pairs[name]) / below.where(below != 0)
        parts.append(pairs[["model", "where"]].assign(measure=said, to_host=ratio))
    each = pd.concat(parts).dropna(subset=["to_host"])
    found = over_runs(each, ["measure", "model", "where"], ["to_host"])
    found = found.rename(columns={"runs": "pairs"})
    order = {said: number for number, said in enumerate(_COMPARED.values())}
    found = in_order(found.assign(order=found["measure"].map(order)), ["order", "model"])
    return found.drop(columns="order").sort_values(
        "measure", key=lambda names: names.map(order), kind="stable", ignore_index=True
    )


def _sum(values: pd.Series[float]) -> float:
    return float(pd.to_numeric(values).sum(min_count=len(values)))


def _kinds(values: pd.Series[str]) -> str | None:
    """Returns the kind of the weights; "trained 2, fresh 1" if runs differ; null: not recorded."""
    counts = values.fillna("not recorded").value_counts()
    if len(counts) > 1:
        return ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return str(values.iloc[0]) if values.notna().all() else None
