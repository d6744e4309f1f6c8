"""Written data that was waited for: the finding of a small trace, its answer known."""

import pytest

from tests.support.findings import FLUSHER, JBD2, JOB, PROCESSES, call, chain, merged, start

pytestmark = pytest.mark.slow


def test_pages_written_for_an_unknown_reason_may_have_been_waited_for(found, query_again):
    """Without the probe of write-backs nobody tells why the flusher wrote."""
    tables = merged(
        {"processes": PROCESSES, "syscalls": [call("fsync", 10, 10)]},
        chain(JOB, JOB, 100, 12, 1000, 30),
        chain(FLUSHER, JOB, 200, 40, 5000, 70),
    )
    waited = found(tables)["waited for"]
    assert (waited.value, waited.certainty) == (100, "at most")
    assert "(fsync, sync, direct I/O, journal, or for an unknown reason)" in waited.sentence
    query_again(waited)


@pytest.mark.parametrize("pages, told", [(0, "none was"), (1, "less than 0.1 % was")])
def test_little_or_none_of_the_targets_data_was_waited_for(found, pages, told):
    """The flusher wrote it by its timer, but for a page; the journal wrote another program's."""
    tables = merged(
        {"processes": PROCESSES},
        {"writeback": [start(39, "periodic"), {**start(42, "periodic"), "event": "written"}]},
        chain(FLUSHER, JOB, 300, 40, 5000, 4000),
        chain(JBD2, 999, 200, 50, 10_000, 4000),
        chain(JBD2, JOB, 201, 51, 20_000, pages) if pages else {},
    )
    job = {"name": "job", "role": "target", "kind": "pid", "pid": JOB}
    said = found(tables, targets=[job])["waited for"].sentence
    assert said.startswith("up to 50 % of the 31.")
    assert said.endswith(f"; of the targets' 15.6 MiB, {told} waited for")
