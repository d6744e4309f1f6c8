"""The report as one HTML page: it fetches nothing, and names of runs are always escaped."""

from __future__ import annotations

from pathlib import Path

from tracer.analysis.page.base import render
from tracer.analysis.page.cells import rows
from tracer.analysis.studies.report.claim_rows import COLUMNS, claim_rows
from tracer.analysis.studies.report.contents import Contents

_TEMPLATES = Path(__file__).with_name("templates")
_PAGE = "study.html.j2"


def page(found: Contents) -> str:
    """Returns the page's text. Its content security policy forbids it to load anything."""
    return render(
        _PAGE,
        _TEMPLATES,
        figures=any(one.figures for one in found.sections),
        found=found,
        claims=rows(claim_rows(found.verdicts), COLUMNS),
        whys=[(verdict.id, verdict.why) for verdict in found.verdicts if verdict.why],
    )
