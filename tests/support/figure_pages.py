"""A page of figures alone, and the texts in it that readers cannot read."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from tracer.analysis.page.base import render

_TEMPLATE = """{% extends "base.html.j2" %}
{% from "tables.html.j2" import figure %}
{% block body %}{% for one in figures_of_page %}{{ figure(one, "x") }}{% endfor %}{% endblock %}
"""
CUT = """[...document.querySelectorAll('.figure')].flatMap(figure => {
  const box = figure.getBoundingClientRect();
  return [...figure.querySelectorAll('.xtick text, .ytick text, .g-xtitle text, .g-ytitle text')]
    .filter(one => {
      const own = one.getBoundingClientRect();
      return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1;
    }).map(one => one.textContent);
})"""
"""Names and titles of axes that lie outside of their figure, in JavaScript."""


def write_figures(folder: Path, *figures: go.Figure) -> Path:
    """Writes a page of these figures; returns its path."""
    (folder / "figures.j2").write_text(_TEMPLATE)
    page = render("figures.j2", folder, figures=True, figures_of_page=figures)
    (folder / "figures.html").write_text(page)
    return folder / "figures.html"
