"""The report as one HTML page: nothing is fetched, and what runs are called is only ever text."""

from __future__ import annotations

from pathlib import Path

from analysis.page.base import render
from analysis.page.cells import rows
from analysis.studies.report.claim_rows import COLUMNS, claim_rows
from analysis.studies.report.contents import Contents

_TEMPLATES = Path(__file__).with_name("templates")
_PAGE = "study.html.j2"


def page(found: Contents) -> str:
    """The page's text. It forbids itself, by a policy of its own, to load anything."""
    return render(
        _PAGE,
        _TEMPLATES,
        figures=any(one.figures for one in found.sections),
        found=found,
        claims=rows(claim_rows(found.verdicts), COLUMNS),
        whys=[(verdict.id, verdict.why) for verdict in found.verdicts if verdict.why],
    )
