"""These tests make their files in memory, and ask as one asks a large trace: with all CPUs."""

from collections.abc import Iterator

import pytest

from tests.support.in_memory import tmp_path, tmp_path_factory  # noqa: F401
from tracer.store import database


@pytest.fixture(autouse=True, scope="module")
def threads() -> Iterator[None]:
    """Gives small traces DuckDB's threads, too: rows may come in another order than with one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "ROW_GROUP", 0)
        yield
