"""The page of a comparison in a real browser: it draws, sorts, prints, and runs no foreign code."""

import re

import pytest

from tests.support import drawn_pages
from tests.support.browser import look

FIGURE = "#changed .js-plotly-plot"
PANELS = ["changed", "noise", "missing", "traces", "how"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes the page of three groups of five runs; returns its path."""
    path = tmp_path_factory.mktemp("page") / "compared.html"
    path.write_text(drawn_pages.comparison())
    return path


@pytest.fixture
def page(made, kept):
    """Opens the page."""
    with kept(made) as opened:
        yield opened


def visible(page):
    return page.js(
        "[...document.querySelectorAll('[role=tabpanel]')].filter(p => p.offsetHeight > 9)"
        ".map(p => p.id)"
    )


def test_the_page_draws_all_figures_and_loads_nothing(made, tmp_path):
    seen = look(made, tmp_path)
    assert seen.console == [] and seen.asked == []
    assert seen.dom.count('class="plot-container') == 2  # changes and noise
    assert 'data-drawn="2"' in seen.dom


def test_a_narrow_page_draws_all_figures_and_loads_nothing(made, drawn_narrow):
    assert drawn_narrow(made, 2)


def test_intervals_and_hollow_dots_are_drawn(page):
    bars = page.js(f"document.querySelectorAll('{FIGURE} .errorbar').length")
    dots = page.js(f"document.querySelectorAll('{FIGURE} .points path.point').length")
    assert bars == dots == 14  # seven measures in two groups: means, p50 and p95 of steps
    names = page.js(f"document.querySelector('{FIGURE}').data.map(one => one.name)")
    assert names == ["slow", "same"]
    filled = page.js(
        f"[...document.querySelectorAll('{FIGURE} .points')]"
        ".map(one => getComputedStyle(one.querySelector('path')).fill)"
    )
    assert filled[0] == "rgb(0, 114, 178)" and filled[1] == "none"


def test_tabs_and_tables_work(page):
    assert visible(page) == ["changed"]
    for name in PANELS[1:]:
        page.click(f"#tab-{name}")
        assert visible(page) == [name]
    page.click("#tab-changed")
    head = "#changed th:nth-child(2)"
    page.click(f"{head} button")
    measures = page.js(
        "[...document.querySelectorAll('#changed tbody tr')].map(row => row.cells[1].textContent)"
    )
    assert measures == sorted(measures) and len(set(measures)) == 7
    assert page.js(f"document.querySelector('{head}').getAttribute('aria-sort')") == "ascending"


def test_the_page_is_dark_if_the_system_or_the_reader_wants_it(page):
    ink = f"document.querySelector('{FIGURE}').layout.font.color"
    assert page.js(ink) == "#1b1f24"
    page.prefer("dark")
    page.until(f"{ink} === '#e6edf3'")
    page.click("#theme")
    assert page.js(ink) == "#1b1f24"


def test_a_page_fits_a_phone_and_leaves_room_for_values(made, tab, tmp_path):
    with tab() as page:
        page.size(360, 700, phone=True)
        page.open(made)
        for name in PANELS:
            page.click(f"#tab-{name}")
            assert page.js("document.documentElement.scrollWidth") <= 360, name
        page.click("#tab-changed")
        wide = f"document.querySelector('{FIGURE} .nsewdrag').getBoundingClientRect().width"
        assert page.js(wide) > 150
        assert page.console == []


def test_a_printed_page_has_all_parts_dark_on_white(page):
    page.click("#tab-how")
    page.prefer("dark")
    page.js(
        "addEventListener('beforeprint', () => { window.printed ="
        f" document.querySelector('{FIGURE}').layout.font.color }})"
    )
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) > 1
    assert page.js("window.printed") == "#1b1f24"
    page.ask("Emulation.setEmulatedMedia", media="print")
    assert visible(page) == PANELS


def test_hostile_traces_run_and_load_nothing(tab, tmp_path):
    (tmp_path / "x.html").write_text(drawn_pages.hostile_comparison())
    with tab() as page:
        page.size(390, 800)
        page.open(tmp_path / "x.html")
        for name in PANELS:
            page.click(f"#tab-{name}")
            assert page.js("document.documentElement.scrollWidth") <= 390, name
        assert page.js("document.querySelectorAll('img, a[href^=http], iframe').length") == 0
        assert page.js(f"document.querySelector('{FIGURE}') !== null")
        assert page.console == [] and page.asked == []
