"""Pages as a real browser shows them."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Everything in this folder needs a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
