"""The report as one HTML page: nothing is fetched, and what runs are called is only ever text."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis.studies.report.cells import cell, rows
from analysis.studies.report.claim_rows import COLUMNS, claim_rows
from analysis.studies.report.contents import Contents

_TEMPLATES = Path(__file__).with_name("templates")
_PAGE = "study.html.j2"


def page(found: Contents) -> str:
    """The page's text. It forbids itself, by a policy of its own, to load anything."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = _figure
    environment.filters["cell"] = cell
    return environment.get_template(_PAGE).render(
        found=found,
        claims=rows(claim_rows(found.verdicts), COLUMNS),
        whys=[(verdict.id, verdict.why) for verdict in found.verdicts if verdict.why],
        plotly=Markup(get_plotlyjs()) if any(one.figures for one in found.sections) else "",
    )


def _figure(figure: go.Figure) -> Markup:
    """A figure as JSON that no name in it can break out of."""
    told = str(figure.to_json())
    for character in "<>&":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return Markup(told)
