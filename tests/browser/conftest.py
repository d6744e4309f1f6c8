"""One browser for all pages."""

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
