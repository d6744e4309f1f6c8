"""The page of a prediction in a real browser: it draws, sorts, and loads nothing."""

import pytest

from tests.support.browser import look
from tests.support.page_events import HOT, ONE, SCANNED, TWO, looped, scanned
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.page.memory import memory_page

EVIL = "<img src=http://evil.example/a.png onerror=alert(1)><script>alert(1)</script>\x1b[2J\u202e"
PLOT = "document.querySelector('#{} .js-plotly-plot')"
LINES = PLOT.format("target-{}") + "._fullData"
AXIS = PLOT + "._fullLayout.yaxis.title.text"


def write_page(folder, name, shared=None):
    """Writes the page of two targets, the second with this name; returns its path."""
    made = looped(pages=256, epochs=3)
    made.read(0, 9, ino=99, tid=9)  # in no epoch
    processes = [
        {**one, "target": name} if one.get("target") == "peer" else one
        for one in made.tables["processes"]
    ]
    tables = {**made.tables, "processes": processes}
    with make_trace(folder / "a.trace", tables, targets=TWO, clock=made.clock) as trace:
        amounts = [256 << 10, 512 << 10, 2 << 20]
        found = answer_memory(trace, amounts, read_ahead=0, shared=shared)
    (folder / "x.html").write_text(memory_page(f"{name}.trace", found))
    return folder / "x.html"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes the page; returns its path."""
    return write_page(tmp_path_factory.mktemp("memory"), "peer")


@pytest.fixture
def page(made, tab):
    """Opens the page."""
    with tab() as opened:
        opened.size(1200)
        opened.open(made)
        yield opened
        assert opened.console == [] and opened.asked == []


def test_the_page_draws_a_figure_per_target_and_loads_nothing(made, tmp_path):
    seen = look(made, tmp_path)
    assert seen.console == [] and seen.asked == []
    assert seen.dom.count('class="plot-container') == 2
    assert 'data-drawn="2"' in seen.dom


def test_a_narrow_page_draws_a_figure_per_target_and_loads_nothing(made, drawn_narrow):
    assert drawn_narrow(made, 2)


def test_the_lines_are_the_means_of_later_epochs(page):
    drawn = page.js(
        f"{LINES.format(0)}.map(one => [one.name, Array.from(one.x), Array.from(one.y)])"
    )
    memory = [0.25, 0.5, 2]
    assert drawn == [
        ["kernel", memory, [1, 1, 0]],
        ["LRU", memory, [1, 1, 0]],
        ["best", memory, [0.75, 0.5, 0]],
        ["kept", memory, [0.75, 0.5, 0]],
    ]
    # Without epochs, all reads are drawn.
    assert page.js(f"Array.from({LINES.format(1)}[1].y)") == [9 / 256] * 3
    titles = [page.js(AXIS.format(f"target-{number}")) for number in (0, 1)]
    assert titles == ["read per epoch, MiB", "read, MiB"]


def test_the_table_has_each_epoch_and_sorts(page):
    head = "#target-0 th:nth-child(1)"
    rows = "[...document.querySelectorAll('#target-0 tbody tr')].map(row => row.cells[0].innerText)"
    assert len(page.js(rows)) == 9
    for _ in range(2):
        page.click(f"{head} button")
        memory = [float(text) for text in page.js(rows)]
        assert memory in (sorted(memory), sorted(memory, reverse=True))
    said = page.js("document.querySelector('#basis').innerText")
    assert "job: with 1.0 MiB, LRU reads no page twice." in said


def test_targets_that_share_the_memory_have_a_figure_together(tab, tmp_path):
    path = write_page(tmp_path, "peer", shared=True)
    with tab() as page:
        page.size(1200)
        page.open(path)
        lines = f"{PLOT.format('together-0')}._fullData"
        # All epochs of both: three times 256 pages and 9, of which 256 and 9 fit into 2 MiB.
        assert page.js(f"Array.from({lines}[1].y)") == [3 + 9 / 256] * 2 + [1 + 9 / 256]
        assert page.js(AXIS.format("together-0")) == "read, MiB"
        said = page.js("document.querySelector('#basis').innerText")
        assert "job and peer share each amount of memory." in said
        assert page.console == [] and page.asked == []


def test_a_range_is_a_bar_of_the_figure_and_in_brackets(tab, tmp_path):
    made = scanned(700_000_000)
    with make_trace(tmp_path / "a.trace", made.tables, targets=ONE, clock=made.clock) as trace:
        found = answer_memory(trace, [160 << 10, 8 << 20], read_ahead=0)
    (tmp_path / "x.html").write_text(memory_page("a", found))
    with tab() as page:
        page.size(1200)
        page.open(tmp_path / "x.html")
        kernel, lru = (f"{LINES.format(0)}[{number}]" for number in (0, 1))
        # Means of the two later epochs, of 4 KiB pages.
        assert page.js(f"Array.from({kernel}.y)") == [SCANNED / 512] * 2
        assert page.js(f"Array.from({kernel}.error_y.array)") == [HOT / 512, 0]
        assert page.js(f"Array.from({kernel}.error_y.arrayminus)") == [0, 0]
        assert page.js(f"[{kernel}.error_y.visible, {lru}.error_y?.visible ?? false]") == [
            True,
            False,
        ]
        said = page.js("document.querySelector('#target-0').innerText")
        assert "[0, 0.1172]" in said and "In brackets, and as bars" in said
        assert page.console == [] and page.asked == []


def test_a_hostile_name_runs_and_loads_nothing(tab, tmp_path):
    path = write_page(tmp_path, EVIL)
    with tab() as page:
        page.size(390, 800)
        page.open(path)
        assert page.js("document.documentElement.scrollWidth") <= 390
        assert page.js("document.querySelectorAll('img, a[href^=http], iframe').length") == 0
        assert "<script>alert(1)" in page.js("document.querySelector('h1').innerText")
        assert page.console == [] and page.asked == []
