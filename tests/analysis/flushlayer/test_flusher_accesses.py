"""Regenerated write-back in the flush layer's models."""

import pytest

from tests.support.dirtied import S, dirtyings, regenerated
from tracer.analysis.flushlayer.flusher.regenerated_accesses import regenerated_accesses
from tracer.analysis.flushlayer.policies import simulate
from tracer.analysis.views.reading.file_pages import NO_FILE, NOT_MAPPED

pytestmark = pytest.mark.slow

DIRTIED = [(1, 0, 0, 3), (40, 0, 1, 1), (50, 1, 0, 1)]


def accesses(passed=()):
    found = dirtyings(DIRTIED, passed=passed)
    return regenerated_accesses(found, regenerated(DIRTIED, passed=passed))


def test_a_page_that_is_written_again_is_the_same():
    found = accesses()
    # 0, 1, 2 at 31 s; page 1 at 70 s; the other file's at 80 s.
    assert found.page.tolist() == [0, 1, 2, 1, 3]
    assert (found.unique, found.by_reason, found.by_device) == (
        4, {"periodic": 5}, {"254:0": 5}
    )  # fmt: skip


def test_the_journals_writes_come_in_between_as_they_were():
    log = (60 * S, "254:0", 900, 2, "journal", None, NO_FILE, 0)
    again = (90 * S, "254:0", 901, 1, "journal", None, NO_FILE, 0)
    found = accesses([log, again])
    assert found.page.tolist() == [0, 1, 2, 3, 4, 1, 5, 4]
    assert found.by_reason == {"periodic": 5, "journal": 3}
    assert found.by_mapping == {"file": 5, "no file": 3, "not mapped": 0}


def test_pages_written_directly_are_those_of_their_file():
    """Pages 1 and 2 of the first file, wherever they lie now, and two pages that nobody knows."""
    direct = (60 * S, "254:0", 7000, 2, "direct", 7, 0, 1)
    again = (90 * S, "254:0", 8000, 2, "direct", 7, 0, 2)
    unknown = (91 * S, "254:0", 8000, 2, "direct", 7, NOT_MAPPED, 0)
    found = accesses([direct, again, unknown])
    # 0, 1, 2 at 31 s; 1 and 2 directly; page 1 at 70 s; the other file's at 80 s; 2 and 3 directly.
    assert found.page.tolist() == [0, 1, 2, 1, 2, 1, 3, 2, 4, 5, 6]
    assert found.by_reason == {"direct": 6, "periodic": 5}
    assert found.by_mapping == {"file": 9, "no file": 0, "not mapped": 2}


def test_a_layer_can_be_simulated_on_them():
    found = accesses()
    counts = simulate("lru", found.page, found.unique, 4)
    assert (counts.write_hits, counts.destaged, counts.resident) == (1, 0, 4)
