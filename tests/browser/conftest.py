"""One browser for all pages."""

from contextlib import contextmanager

import pytest

from tests.support.devtools import Browser


@pytest.fixture(scope="session")
def running_browser(tmp_path_factory):
    """A browser, started once."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def tab(running_browser):
    """Open a tab: `with tab() as page`."""
    return running_browser.tab


@pytest.fixture(scope="module")
def kept(running_browser):
    """Open a page once for all tests of a module: `with kept(PATH) as page`, in each of them.

    A page draws for seconds. Each test has it as it was opened, but for tables that were sorted,
    and it must have said and asked nothing.
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
