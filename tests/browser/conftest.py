"""Fixtures of one browser for the tests of all pages."""

from contextlib import contextmanager

import pytest

from tests.support.devtools import Browser


@pytest.fixture(scope="session")
def running_browser(tmp_path_factory):
    """Starts one browser for all tests."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def tab(running_browser):
    """Opens a tab: `with tab() as page`."""
    return running_browser.tab


@pytest.fixture
def drawn_narrow(tab):
    """Opens a page on a screen of 390 px; returns its element when all its figures are drawn."""

    def open_page(path, figures):
        with tab() as page:
            page.size(390, 2000)
            page.open(path)
            assert page.js("document.querySelectorAll('.plot-container').length") == figures
            assert page.js("document.documentElement.dataset.drawn") == str(figures)
            assert page.console == [] and page.asked == []
            return page.js("document.documentElement.outerHTML")

    return open_page


@pytest.fixture(scope="module")
def kept(running_browser):
    """Opens a page once for all tests of a module; each test uses `with kept(PATH) as page`.

    A page takes seconds to draw. After each test the page is restored, except for sorted tables,
    and the test fails if the page logged or requested anything.
    """
    with running_browser.tab() as opened:
        shown = []

        @contextmanager
        def page(path):
            if shown != [path]:
                opened.size(1200)
                opened.open(path)
                shown[:] = [path]
            yield opened
            assert opened.console == []
            assert opened.asked == []
            opened.restore()

        yield page
