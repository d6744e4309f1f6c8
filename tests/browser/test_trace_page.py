"""The page of a trace in a real browser: it draws, zooms, sorts, prints; no foreign code runs."""

import re

import pytest

from tests.support import drawn_pages
from tests.support.browser import look
from tests.support.traces import make_trace
from tracer.analysis.page.trace import trace_page

RANGES = "[...document.querySelectorAll('.lane .js-plotly-plot')].map(p => p.layout.xaxis.range)"
BAR = "#lane-2 .nsewdrag"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes the page of a minute of training; returns its path and number of lanes."""
    path = tmp_path_factory.mktemp("page") / "run.html"
    path.write_text(drawn_pages.training().html)
    return path, len(drawn_pages.training().timeline.lanes)


@pytest.fixture
def page(made, kept):
    """Opens the page."""
    with kept(made[0]) as opened:
        yield opened


def shown(page):
    """Returns the interval of time that all lanes show; it must be the same in each."""
    ranges = page.js(RANGES)
    assert len({tuple(one) for one in ranges}) == 1
    return ranges[0]


def test_the_page_draws_all_lanes_and_loads_nothing(made, tmp_path):
    path, lanes = made
    seen = look(path, tmp_path)
    assert seen.console == [] and seen.asked == []
    assert seen.dom.count('class="plot-container') == lanes
    assert f'data-drawn="{lanes}"' in seen.dom


def test_a_narrow_page_draws_all_lanes_and_loads_nothing(made, drawn_narrow):
    assert drawn_narrow(*made)


def test_zooming_one_lane_zooms_all(page):
    assert shown(page) == [0, 60]
    page.drag(BAR, 0.25, 0.5)
    begin, end = shown(page)
    assert begin == pytest.approx(15, abs=1) and end == pytest.approx(30, abs=1)
    assert float(page.js("document.getElementById('zoom-from').value")) == pytest.approx(
        begin, 1e-4
    )
    x, y, width, height = page.place(BAR)
    for _ in range(20):  # on a busy machine two clicks may be too far apart for a double-click
        for clicks in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                page.mouse(kind, x + width / 2, y + height / 2, clicks)
        if shown(page) == [0, 60]:
            break
    assert shown(page) == [0, 60]


def test_buttons_keys_and_numbers_choose_the_time(page):
    page.click("[data-zoom=in]")
    assert shown(page) == [15, 45]
    page.click("[data-zoom=right]")
    assert shown(page) == [22.5, 52.5]
    page.key("0", "0")
    assert shown(page) == [0, 60]
    page.js("document.getElementById('zoom-to').focus()")
    page.js("document.getElementById('zoom-to').select()")
    for digit in "12":
        page.key(digit, digit)
    page.key("Tab")
    assert shown(page) == [0, 12]


def test_the_legend_hides_a_series_and_a_box_hides_a_lane(page):
    # The first series of the legend is at the bottom, so the ones above it move down.
    page.click("#lane-3 .legend button")
    data = "document.querySelector('#lane-3 .js-plotly-plot').data"
    assert page.js(f"{data}.map(one => one.visible)") == [True, False]
    upper = page.js(f"{data}[0].y.reduce((sum, value) => sum + value)")
    page.click("#lane-3 .legend button")
    assert page.js(f"{data}.map(one => one.visible)") == [True, True]
    both = page.js(f"{data}[0].y.reduce((sum, value) => sum + value)")
    assert 0 < upper < both == 11
    page.click(".chooser summary")
    page.click("[data-lane=lane-3]")
    assert page.js("document.getElementById('lane-3').offsetHeight") == 0
    page.click("[data-lane=lane-3]")
    assert page.js("document.getElementById('lane-3').offsetHeight") > 100


def visible(page):
    return page.js(
        "[...document.querySelectorAll('[role=tabpanel]')].filter(p => p.offsetHeight > 9)"
        ".map(p => p.id)"
    )


def test_tabs_work_with_mouse_and_keys(page):
    assert visible(page) == ["timeline"]
    page.click("#tab-tables")
    assert visible(page) == ["tables"]
    page.key("ArrowRight")
    assert visible(page) == ["how"]
    page.key("ArrowRight")
    assert visible(page) == ["timeline"]
    page.key("End")
    assert visible(page) == ["how"]
    assert page.js("document.activeElement.id") == "tab-how"
    page.js("location.hash = '#table-syscalls'")
    page.until("!document.getElementById('tables').hidden")


def cells(page, table, column):
    return page.js(
        f"[...document.querySelectorAll('#table-{table} tbody tr')]"
        f".map(row => row.cells[{column}].textContent)"
    )


def test_tables_sort_with_mouse_and_keys(page):
    page.click("#tab-tables")
    head = "#table-syscalls th:nth-child({})"
    page.click(head.format(1) + " button")
    names = cells(page, "syscalls", 0)
    assert names == sorted(names) and len(names) > 3
    page.js(f"document.querySelector('{head.format(2)} button').focus()")
    page.key("Enter", "\r")
    calls = [int(text.replace(",", "")) for text in cells(page, "syscalls", 1)]
    assert calls == sorted(calls, reverse=True)
    page.key(" ", " ")
    assert [int(text.replace(",", "")) for text in cells(page, "syscalls", 1)] == sorted(calls)
    assert page.js(f"document.querySelector('{head.format(2)}').getAttribute('aria-sort')") == (
        "ascending"
    )


def test_dashes_come_last_in_both_sort_orders(page):
    page.click("#tab-tables")
    column = page.js(
        "[...document.querySelectorAll('#table-samples th')].findIndex("
        "th => th.textContent.startsWith('instance'))"
    )
    for _ in range(2):
        page.click(f"#table-samples th:nth-child({column + 1}) button")
        found = cells(page, "samples", column)
        assert "-" in found and found[-1] == "-"
        assert "-" not in found[: found.index("-")]


def ink(page):
    return page.js("getComputedStyle(document.body).color"), page.js(
        "document.querySelector('.lane .js-plotly-plot').layout.font.color"
    )


def test_the_page_is_dark_if_the_system_or_the_reader_wants_it(page):
    assert ink(page) == ("rgb(27, 31, 36)", "#1b1f24")
    page.prefer("dark")
    page.until("document.querySelector('.lane .js-plotly-plot').layout.font.color === '#e6edf3'")
    assert ink(page)[0] == "rgb(230, 237, 243)"
    page.click("#theme")
    assert ink(page) == ("rgb(27, 31, 36)", "#1b1f24")
    page.prefer("light")
    page.click("#theme")
    assert ink(page) == ("rgb(230, 237, 243)", "#e6edf3")


def test_a_page_fits_the_width_of_a_phone(made, tab, tmp_path):
    with tab() as page:
        page.size(360, 700, phone=True)
        page.open(made[0])
        for name in ("timeline", "tables", "how"):
            page.click(f"#tab-{name}")
            assert page.js("document.documentElement.scrollWidth") <= 360, name
        assert page.js("document.querySelector('.lane .js-plotly-plot').layout.dragmode") is False
        assert page.console == []


def test_a_printed_page_has_all_parts_dark_on_white(page):
    page.click("#tab-how")
    page.js(
        "addEventListener('beforeprint', () => { window.printed = ["
        "document.querySelector('.lane .js-plotly-plot').layout.font.color,"
        "document.querySelectorAll('.lane .main-svg').length,"
        "Math.max(...[...document.querySelectorAll('.lane .main-svg')].map(s => s.clientWidth))] })"
    )
    page.prefer("dark")
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) > 4
    colour, drawings, widest = page.js("window.printed")
    assert colour == "#1b1f24" and drawings > 10 and 600 < widest <= 710
    page.ask("Emulation.setEmulatedMedia", media="print")
    assert visible(page) == ["timeline", "tables", "how"]


def test_a_hostile_trace_runs_and_loads_nothing(tab, tmp_path):
    (tmp_path / "x.html").write_text(drawn_pages.hostile().html)
    with tab() as page:
        page.size(390, 800)
        page.open(tmp_path / "x.html")
        for name in ("tables", "how", "timeline"):
            page.click(f"#tab-{name}")
        for _ in range(3):
            page.click("[data-zoom=in]")
        assert page.js("document.documentElement.scrollWidth") <= 390
        assert page.js("document.querySelectorAll('img, a[href^=http], iframe').length") == 0
        assert page.console == [] and page.asked == []


def test_the_policy_blocks_content_added_to_the_page(made, tab, tmp_path):
    added = "<img src='http://evil.example/b.png'><script>document.title = 'evil'</script></body>"
    (tmp_path / "x.html").write_text(made[0].read_text().replace("</body>", added))
    with tab() as page:
        page.open(tmp_path / "x.html")
        assert page.js("document.title") == "run.trace"
        assert len(page.console) == 2
        assert all("Content Security Policy" in said for said in page.console)


def test_a_series_of_one_sample_is_a_dot_and_later_lanes_are_drawn(tab, tmp_path):
    half = 5 * 10**8
    samples = [
        {"ts": half, "name": "cpu_use", "value": 50.0, "unit": "%", "target": "job"},
        {"ts": half, "name": "rss", "value": 5e8, "unit": "bytes", "target": "job"},
    ]
    job = {"name": "job", "role": "target", "kind": "pid", "pid": 7}
    clock = {"name": "mono", "start_ns": 0, "end_ns": 10**9}
    with make_trace(tmp_path / "t", {"samples": samples}, targets=[job], clock=clock) as trace:
        (tmp_path / "x.html").write_text(trace_page(trace, {}, []))
    with tab() as page:
        page.open(tmp_path / "x.html")
        lanes, drawn, dots = page.js(
            "['.lane', '.lane .plot-container', '.lane .points path']"
            ".map(one => document.querySelectorAll(one).length)"
        )
        assert lanes == drawn == dots == 2
        swatch, dot = page.js(
            "[getComputedStyle(document.querySelector('.swatch.dot')).backgroundColor,"
            " getComputedStyle(document.querySelector('.points path')).fill]"
        )
        assert swatch == dot
        assert page.console == []


def test_a_figure_that_cannot_be_drawn_says_so_and_the_others_are_drawn(made, tab, tmp_path):
    path, lanes = made
    html = path.read_text()
    start = '<script type="application/json">'
    (tmp_path / "x.html").write_text(html.replace(f"{start}{{", f"{start}damaged", 1))
    with tab() as page:
        page.open(tmp_path / "x.html")
        assert page.js("document.querySelectorAll('.plot-container').length") == lanes - 1
        assert "could not be drawn" in page.js("document.querySelector('.figure').textContent")
        assert len(page.console) == 1
