"""A page whose window gets another size looks like one that is opened with that size."""

import pandas as pd
import pytest

from tests.support import drawn_pages
from tests.support.figure_pages import CUT, write_figures
from tracer.analysis.figures.blame import blame
from tracer.analysis.figures.prashanthi2022 import epoch_violins

LOOKS = """JSON.stringify([...document.querySelectorAll('.figure')].map(one => [
  one.offsetWidth, one.offsetHeight, one.layout.margin, one.layout.xaxis.nticks,
  one.layout.dragmode, one.querySelector('.main-svg').getBoundingClientRect().width,
  [...one.querySelectorAll('.xtick text, .ytick text, .g-xtitle text, .heatmap-label text')]
    .map(text => text.textContent)]))"""
"""Sizes, margins and words of all figures."""
SIZES = [(1200, 400), (400, 1200), (1200, 800), (800, 1200)]
RANGES = "[...document.querySelectorAll('.lane .js-plotly-plot')].map(p => p.layout.xaxis.range)"
SERIES = "#lane-3 .legend button"
PRESSED = f"[...document.querySelectorAll('{SERIES}')].map(one => one.ariaPressed)"
SHOWN = "document.querySelector('#lane-3 .js-plotly-plot').data.map(one => one.visible !== false)"


def opened(page, path, width):
    page.size(width)
    page.open(path)
    return page.js(LOOKS)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Writes a page of a heat map with texts in its cells, and of rows with long names."""
    waits = [("job", "lock", "process", f"p-{n}", 30.0 - n, None) for n in range(12)]
    columns = ["target", "kind", "whose", "blamed", "total_s", "path_s"]
    rows = [
        {"model": "resnet18", "settings": f"dataset cifar10, card-{n}", "of_mean_percent": percent}
        for n in range(3)
        for percent in (90.0, 110.0)
    ]
    return write_figures(
        tmp_path_factory.mktemp("page"),
        blame(pd.DataFrame(waits, columns=columns).astype({"path_s": "Float64"})),
        epoch_violins(pd.DataFrame(rows)),
    )


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_figures_get_the_layout_of_the_new_width(tab, figures, before, after):
    with tab() as page:
        expected = opened(page, figures, after)
        assert opened(page, figures, before) != expected
        page.size(after)
        page.until(f"{LOOKS} === {expected!r}")
        assert page.js(CUT) == [] and page.console == []


def test_lanes_get_their_layout_and_keep_time_and_hidden_series(tab, tmp_path):
    (tmp_path / "run.html").write_text(drawn_pages.training().html)
    with tab() as page:
        expected = opened(page, tmp_path / "run.html", 400)
        wide = opened(page, tmp_path / "run.html", 1200)
        count = page.js("document.querySelectorAll('.legend button').length")
        for width, looks in ((400, expected), (1200, wide)):
            page.size(width)
            page.until(f"{LOOKS} === {looks!r}")
        page.click(SERIES)
        page.click("[data-zoom=in]")
        page.size(400)
        page.until("document.querySelector('.lane .js-plotly-plot').layout.margin.l === 62")
        assert page.js("document.querySelectorAll('.legend button').length") == count
        assert page.js(PRESSED) == ["false", "true"] and page.js(SHOWN) == [True, False]
        page.click("[data-zoom=in]")
        assert {tuple(one) for one in page.js(RANGES)} == {(22.5, 37.5)}
        assert page.console == []
