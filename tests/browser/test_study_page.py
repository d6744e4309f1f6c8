"""The page of a study opens offline: it draws its figures, logs no errors and loads nothing."""

import re

import pytest

from tests.support.browser import look
from tests.support.studies import EVIL, make_study
from tracer.analysis.studies.report.contents import contents
from tracer.analysis.studies.report.page import page


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes the page of a study with hostile names; returns its path and number of figures."""
    folder = tmp_path_factory.mktemp("page")
    found = contents(make_study(folder / "s", model=EVIL, served=True, reported=True))
    (folder / "x.html").write_text(page(found))
    return folder / "x.html", sum(len(one.figures) for one in found.sections)


def test_errors_and_requests_of_a_page_are_noticed(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://evil.example/a.png"><script>nothing.there()</script>')
    seen = look(bad, tmp_path)
    assert any("nothing is not defined" in said for said in seen.console)
    assert seen.asked == ["http://evil.example/a.png"]


def no_element_of_an_enemy(dom):
    shown = re.sub("<script.*?</script>", "", dom, flags=re.DOTALL)
    return not any(
        element in shown for element in ('<img src="x"', '<a href="http', 'xlink:href="http')
    )


def test_the_page_draws_all_figures_and_loads_nothing(made, tmp_path):
    path, figures = made
    seen = look(path, tmp_path)
    assert seen.console == []
    assert seen.asked == []
    assert figures > 10
    assert seen.dom.count('class="plot-container') == figures
    assert no_element_of_an_enemy(seen.dom)


def test_a_narrow_page_draws_all_figures_and_loads_nothing(made, drawn_narrow):
    assert no_element_of_an_enemy(drawn_narrow(*made))


def test_the_verdicts_on_claims_are_in_sight_without_scrolling(made, tab):
    with tab() as page:
        page.size(1200)
        page.open(made[0])
        table = "document.querySelector('#claims + .wide')"
        assert page.js(f"[...{table}.querySelectorAll('th')].at(-1).innerText") == "verdict"
        assert page.js(f"{table}.querySelectorAll('tbody tr').length") > 5
        assert page.js(f"{table}.scrollWidth - {table}.clientWidth") == 0


def test_the_policy_of_the_page_forbids_requests(made, tmp_path):
    text = made[0].read_text().replace("</body>", "<img src='http://evil.example/b.png'></body>")
    (tmp_path / "x.html").write_text(text)
    seen = look(tmp_path / "x.html", tmp_path)
    assert any("Content Security Policy" in said for said in seen.console)
    assert seen.asked == []
