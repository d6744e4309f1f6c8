"""Properties of all views: their columns are the declared ones, and they name missing tables."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import make_waiting
from tracer.analysis.views.catalogue import VIEWS, make_named
from tracer.probes.catalogue import TABLES
from tracer.probes.errors import BadTrace
from tracer.probes.schema import Type
from tracer.store.trace import Trace

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "lenet.trace"
SQL = {
    Type.INT16: "SMALLINT",
    Type.INT32: "INTEGER",
    Type.INT64: "BIGINT",
    Type.UINT64: "UBIGINT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOL: "BOOLEAN",
    Type.TEXT: "VARCHAR",
}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trace of steps that are made up."""
    folder = tmp_path_factory.mktemp("waiting") / "t"
    make_waiting(folder).close()
    return folder


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trace that has every table, and no row in any."""
    folder = tmp_path_factory.mktemp("empty") / "t"
    make_trace(folder, {name: [] for name in TABLES}).close()
    return folder


def recorded(waiting: Path, needs: Iterable[str]) -> Trace:
    """Opens a trace that has these tables: a recording, or the made-up steps."""
    trace = Trace(FIXTURE)
    if all(need in trace.tables for need in needs):
        return trace
    trace.close()
    return Trace(waiting)


views = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


@views
@pytest.mark.parametrize("rows", [True, False], ids=["recorded", "empty"])
def test_a_view_has_the_columns_that_it_declares(waiting, empty, view, rows):
    with recorded(waiting, view.needs) if rows else Trace(empty) as trace:
        described = trace.sql(f"DESCRIBE {view.make(trace)}")
        assert list(zip(described["column_name"], described["column_type"], strict=True)) == [
            (column.name, SQL[column.type]) for column in view.columns
        ]
        frame = view.frame(trace)
        assert list(frame.columns) == [column.name for column in view.columns]
        # The fixture's job waited for nothing that events tell of, and no bio was split.
        assert frame.empty == (not rows or view.name in ("stalls", "rest_queues"))


@views
def test_a_view_names_the_tables_that_it_lacks(tmp_path, view):
    with make_trace(tmp_path / "t", {}) as trace, pytest.raises(BadTrace) as caught:
        view.make(trace)
    told = str(caught.value)
    one = len(view.needs) == 1
    assert f"no {'table' if one else 'tables'} {', '.join(view.needs)}" in told
    if view.needs == ("phases",):
        assert "tracer query --columns phases" in told
    else:
        assert f"record {'it' if one else 'them'}: tracer record -e " in told


@views
def test_the_tables_that_a_view_needs_are_enough(tmp_path, view):
    with make_trace(tmp_path / "t", {name: [] for name in view.needs}) as trace:
        assert view.frame(trace).empty


@views
def test_the_example_of_a_view_works(waiting, view):
    with recorded(waiting, view.needs) as trace:
        make_named(trace, view.example)
        found = trace.sql(view.example)
    assert len(found.columns)


@pytest.mark.parametrize("made_up", [False, True])
def test_views_can_be_made_twice_and_in_any_order(waiting, made_up):
    with Trace(waiting if made_up else FIXTURE) as trace:
        there = [name for name, view in VIEWS.items() if set(view.needs) <= set(trace.tables)]
        assert len(there) >= 3
        rows = {}
        for names in (there, reversed(there)):
            for name in names:
                count = trace.sql(f"SELECT count(*) AS n FROM {VIEWS[name].make(trace)}")["n"][0]
                assert rows.setdefault(name, count) == count


def test_no_view_is_made_that_a_query_does_not_name():
    with Trace(FIXTURE) as trace:
        make_named(trace, "SELECT count(*) AS calls, 'flushes' AS faults FROM requests")
        assert trace.made == {"requests"}


def test_a_frame_keeps_whole_numbers_whole(tmp_path):
    late = (1 << 62) + 1
    rows = [{"ts": late, "tid": 7, "nr": 0, "name": "read"}]
    rows += [{"ts": 1, "tid": 7, "nr": 0, "name": "read", "dur_ns": late}]
    with make_trace(tmp_path / "t", {"syscalls": rows}) as trace:
        frame = VIEWS["calls"].frame(trace, columns=("ts", "dur_ns"))
        few = VIEWS["calls"].frame(trace, where="dur_ns > 0")
    assert frame["ts"].tolist() == [late, 1]
    assert frame["dur_ns"].isna().tolist() == [True, False]
    assert frame["dur_ns"][1] == late
    assert len(few) == 1


class TestSpilling:
    @pytest.fixture
    def temporary(self, tmp_path, monkeypatch):
        folder = tmp_path / "tmp"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        return folder

    def spill(self, trace):
        trace.connection.execute("CREATE TEMP TABLE wide AS SELECT range AS i FROM range(10000)")
        (spill,) = Path(tempfile.gettempdir()).iterdir()
        assert spill.stat().st_mode & 0o777 == 0o700
        return trace.connection.execute("SELECT current_setting('temp_directory')").fetchone()[0]

    def test_its_folder_is_private_and_goes_with_the_trace(self, tmp_path, temporary):
        with make_trace(tmp_path / "t", {}) as trace:
            assert Path(self.spill(trace)).parent == temporary
        assert not os.listdir(temporary)

    def test_it_goes_after_an_error_too(self, tmp_path, temporary):
        with pytest.raises(BadTrace), make_trace(tmp_path / "t", {}) as trace:
            self.spill(trace)
            trace.sql("SELECT error('damaged')")
        assert not os.listdir(temporary)

    def test_it_goes_when_nobody_closes_the_trace(self, tmp_path, temporary):
        trace = make_trace(tmp_path / "t", {})
        self.spill(trace)
        del trace
        assert not os.listdir(temporary)

    @pytest.mark.parametrize("cpus", [1, 3, 100])
    def test_memory_is_bounded(self, tmp_path, cpus):
        with make_trace(tmp_path / "t", {}) as trace:
            trace.use_cpus(cpus)
            ((held,),) = trace.rows("SELECT current_setting('memory_limit')")
        number, unit = held.split()
        mib = float(number) * {"MiB": 1, "GiB": 1024}[unit]
        assert mib == pytest.approx(96 * (min(8, cpus) + 2), rel=0.1)
