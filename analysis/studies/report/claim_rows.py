"""The claims as rows, the same in every format."""

from __future__ import annotations

from typing import Any

from tracer.analysis.studies.claims import Verdict

COLUMNS = [
    *("id", "claim", "measured", "paper", "here", "here_low", "here_high", "n", "verdict"),
]


def claim_rows(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Returns one row per claim."""
    return [
        {
            "id": one.id,
            "claim": one.claim,
            "measured": one.measured or None,
            "paper": one.paper_value,
            "here": one.value,
            "here_low": one.low,
            "here_high": one.high,
            "n": one.values or None,
            "verdict": one.verdict,
        }
        for one in verdicts
    ]
