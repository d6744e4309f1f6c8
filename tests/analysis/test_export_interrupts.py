"""An export that a signal ends between two batches of rows."""

import gc
import sys

import pytest

from tests.support.traces import make_trace
from tracer.analysis.exchange.tables_out import write_tables
from tracer.store.trace import Trace


class Interrupted(Trace):
    """A trace whose reader is interrupted after the first batch."""

    def batches(self, *query, **how):
        yield next(super().batches(*query, **how))
        raise KeyboardInterrupt


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_writer_of_tables_that_is_interrupted_says_nothing_of_its_own(
    tmp_path, monkeypatch, format
):
    """Parquet's writes the end of its file when it is deleted; the file was closed by then."""
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    make_trace(tmp_path / "t", {"syscalls": [{"tid": 7}]}).close()
    with Interrupted(tmp_path / "t") as trace, pytest.raises(KeyboardInterrupt):
        write_tables(trace, tmp_path, format, None)
    gc.collect()
    assert said == []
