"""Exports during whose work a signal comes, or somebody else puts a file into the output."""

import gc
import sys

import pytest

from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export
from tracer.analysis.exchange.tables_out import write_tables
from tracer.probes.errors import UsageError
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


class Watched(Trace):
    """A trace that calls `reads` before each query of its rows."""

    def batches(self, *query, **how):
        self.reads()
        yield from super().batches(*query, **how)


def test_a_folder_with_a_foreign_file_is_refused_before_anything_is_written(tmp_path):
    make_trace(tmp_path / "t", {"syscalls": [{"tid": 7}]}).close()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").write_text("mine")
    with Watched(tmp_path / "t") as trace:
        trace.reads = lambda: pytest.fail("the tables were written")
        with pytest.raises(UsageError, match=r"letter\.txt, which is not a table"):
            export(trace, "csv", tmp_path / "out", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "t"]


@pytest.mark.parametrize(("format", "output"), [("csv", "out"), ("perfetto", "out/letter.txt")])
def test_a_file_that_somebody_puts_there_during_an_export_is_kept(tmp_path, format, output):
    (tmp_path / "out").mkdir()
    make_trace(tmp_path / "t", {"syscalls": [{"tid": 7}]}).close()
    with Watched(tmp_path / "t") as trace:
        trace.reads = lambda: (tmp_path / "out/letter.txt").write_text("mine")
        with pytest.raises(UsageError, match=r"letter\.txt"):
            export(trace, format, tmp_path / output, force=format == "csv")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["letter.txt"]
    assert (tmp_path / "out/letter.txt").read_text() == "mine"
