"""Results of serving, from run.json: latencies and requests that clients saw, and the weights."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tracer.analysis.studies.facts import RunFacts

_OF_CLIENTS = {
    "latency_p50_ms": "latency_ms.p50",
    "latency_mean_ms": "latency_ms.mean",
    "latency_p99_ms": "latency_ms.p99",
    "achieved_per_s": "achieved_per_s",
}


def served(found: RunFacts) -> dict[str, float | str | None]:
    """Returns latencies, requests and weights of a run that served; null: not served or not told.

    The latencies and rates of `_OF_CLIENTS` are means over the servers. `requests_due` and
    `requests_unanswered` (failed or dropped) are sums. `weights`: trained or fresh.
    """
    clients: list[dict[str, Any]] = [
        dict(client)
        for one in found.get("summaries") or []
        if one is not None and (client := one.get("client")) is not None
    ]
    frame = pd.json_normalize(clients)

    def known(column: str) -> pd.Series[float]:
        own = frame[column] if column in frame else pd.Series(dtype=float)
        return pd.to_numeric(own, errors="coerce")

    requests, answered = (known(name).sum(min_count=len(frame) or 1) for name in _COUNTS)
    return {
        **{name: _finite(known(column).mean()) for name, column in _OF_CLIENTS.items()},
        "requests_due": _finite(requests),
        "requests_unanswered": _finite(requests - answered),
        "weights": (found.get("weights") or {}).get("kind"),
    }


_COUNTS = ("requests", "answered")


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
