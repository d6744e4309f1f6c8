"""The order in which the recorder asks for the names of used files."""

import pytest

from tests.support.traces import rows_of
from tracer.probes.catalogue import TABLES
from tracer.session.used_files import used_files
from tracer.store.tables import write_table

JOB, OTHER = 7, 8
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
]


def used(pid, ino, times=1, event="access"):
    """Events of the page cache of a file."""
    return [
        {"ts": 1, "pid": pid, "tid": pid or 9, "event": event, "dev": "254:0", "ino": ino}
    ] * times


@pytest.fixture
def order(tmp_path):
    def ask(**tables):
        for name, rows in tables.items():
            write_table(TABLES[name], tmp_path, rows_of(TABLES[name], rows))
        return [ino for *_, ino in used_files(tmp_path)]

    return ask


def test_files_of_the_targets_come_before_those_that_others_use_more(order):
    written = [{"ts": 1, "pid": OTHER, "tid": OTHER, "event": "dirty_folio", "dev": "254:0",
                "ino": 1}]  # fmt: skip
    cached = used(OTHER, 2, 9) + used(JOB, 3) + used(JOB, 4, 2) + used(None, 5, 5)
    assert order(processes=PROCESSES, page_cache=cached, dirty=written) == [4, 3, 1, 2, 5]


def test_a_file_that_a_target_shares_with_others_is_its_own(order):
    cached = used(OTHER, 2, 9) + used(OTHER, 3, 2) + used(JOB, 3)
    assert order(processes=PROCESSES, page_cache=cached) == [3, 2]


def test_files_without_a_table_of_processes_are_in_order_of_use(order):
    assert order(page_cache=used(JOB, 3) + used(OTHER, 2, 9)) == [2, 3]
