"""Parts of all pages: templates, figures as JSON, and the content security policy."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tracer.analysis.page.cells import cell

TEMPLATES = Path(__file__).with_name("templates")
_PLOTLY = TEMPLATES / "plotly-cartesian.min.js"
"""The part of plotly.js (npm: plotly.js-cartesian-dist-min) that draws all of our figures: a third
of the whole, which the Python package brings."""


def render(
    template: str,
    folder: Path,
    figures: bool,
    own: tuple[str, ...] = ("parts.js", "page.js"),
    **content: Any,
) -> str:
    """Returns the HTML of a page: a template of `folder` that extends `base.html.j2`.

    `figures`: the page has figures, and so needs plotly. `own`: the page's own scripts. The
    page's content security policy forbids it to load anything and to run any script other than
    those included here.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = figure_json
    environment.filters["cell"] = cell
    scripts = [_PLOTLY.read_text(encoding="utf-8")] if figures else []
    scripts += [(TEMPLATES / name).read_text(encoding="utf-8") for name in own]
    scripts = [one.replace("\r\n", "\n").replace("\r", "\n") for one in scripts]
    return environment.get_template(template).render(
        scripts=[Markup(one) for one in scripts],
        hashes=[_hash(one) for one in scripts],
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        **content,
    )


def figure_json(figure: go.Figure) -> Markup:
    """Returns a figure as JSON that no name in it can break out of."""
    told = str(figure.to_json())
    for character in "<>&":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return Markup(told)


def _hash(script: str) -> str:
    """Returns the hash by which a content security policy allows a script."""
    digest = hashlib.sha256(script.encode("utf-8", "replace")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
