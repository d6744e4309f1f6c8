"""Tables of a trace that somebody else made: what no recorder of ours wrote is refused by name."""

import os
import socket

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.budget import run_within
from tests.support.claims import claim, claims_of, varint
from tests.support.traces import make_trace, rows_of
from tracer.probes.catalogue import TABLES
from tracer.probes.errors import BadTrace
from tracer.probes.loss import TABLE as LOSS
from tracer.probes.schema import SHORT
from tracer.store.trace import Trace

PHASES = TABLES["phases"]
ROWS = [{"start": n, "end": n + 1, "pid": 7, "tid": 7, "name": "step"} for n in range(3)]


@pytest.fixture
def trace(tmp_path):
    make_trace(tmp_path / "t", {"phases": ROWS}).close()
    return tmp_path / "t"


def put(trace, table, **options):
    pq.write_table(table, trace / "events/phases.parquet", **options)


def phases(rows=ROWS):
    return pa.Table.from_batches([rows_of(PHASES, rows)])


def changed(column, values, nullable=True, name=None):
    """The rows with another column in the place of one of theirs."""
    table = phases()
    at = table.schema.get_field_index(column)
    values = pa.array(values)
    return table.set_column(at, pa.field(name or column, values.type, nullable), values)


def refused(trace):
    """The words with which the trace is refused."""
    with pytest.raises(BadTrace) as error:
        Trace(trace)
    said = str(error.value)
    assert "\n" not in said and "phases.parquet" in said
    return said


@pytest.mark.parametrize(
    "folder", ["pid=8", "name=x", "a*b", "wha?", "[ab]", "{a,b}", "it's", 'a"b', "a\nb", "%41", "-"]
)
def test_the_folder_that_a_trace_lies_in_changes_no_row(tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / "aab").mkdir()
    make_trace(tmp_path / "aab/t", {"phases": [{**ROWS[0], "pid": 9}]}).close()
    with make_trace(tmp_path / folder / "t", {"phases": ROWS}) as trace:
        found = trace.sql("SELECT pid, name FROM phases")
    assert found["pid"].tolist() == [7, 7, 7] and set(found["name"]) == {"step"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (changed("start", ["a", "b", "c"], nullable=False), "start is BYTE_ARRAY"),
        (changed("start", [1.0, 2.0, 3.0], nullable=False), "start is DOUBLE"),
        (changed("start", pa.array([1, 2, 3], pa.timestamp("ns"))), "start is INT64"),
        (changed("start", [1, 2, 3]), "start may be null"),
        (changed("start", [[1], [2], [3]]), "lacks the column start"),
        (changed("start", [{"x": 1}] * 3), "lacks the column start"),
        (changed("start", [1, 2, 3], nullable=False, name="begin"), "lacks the column start"),
        (changed("pid", pa.array([1, 2, 3], pa.int64())), "pid is INT64"),
        (changed("epoch", pa.array([1, 2, 3], pa.uint64())), "epoch is INT64, Int"),
        (changed("name", [b"a", b"b", b"c"], nullable=False), "name is BYTE_ARRAY"),
        (changed("epoch", [1, 2, 3], name="START"), "2 columns called start"),
    ],
)
def test_a_column_that_is_none_of_the_table(trace, table, said):
    put(trace, table)
    assert said in refused(trace)


def test_columns_in_another_order_and_columns_that_nobody_knows(trace):
    table = phases()
    more = table.append_column("marking lane", pa.array(["x", "y", "z"]))
    put(trace, more.select([*reversed(table.column_names), "marking lane"]))
    with Trace(trace) as opened:
        found = opened.sql("SELECT * FROM phases")
    assert list(found) == [column.name for column in PHASES.columns]
    assert found["start"].tolist() == [0, 1, 2]


def test_no_rows(trace):
    put(trace, phases([]))
    with Trace(trace) as opened:
        assert opened.sql("SELECT count(*) AS n FROM phases")["n"].tolist() == [0]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100, b"PAR1" + b"\xff\xff\xff\x7fPAR1"])
def test_a_file_that_is_no_table(trace, data):
    (trace / "events/phases.parquet").write_bytes(data)
    assert "not a Parquet file" in refused(trace)


def test_an_encrypted_table_is_called_so(trace):
    path = trace / "events/phases.parquet"
    path.write_bytes(path.read_bytes()[:-4] + b"PARE")
    assert "encrypted" in refused(trace)


def _fifo(path):
    os.mkfifo(path)


def _folder(path):
    path.mkdir()


def _link(path):
    path.symlink_to("/dev/null")


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)
        made.bind(path.name)


@pytest.mark.parametrize("make", [_fifo, _folder, _link, _socket])
def test_a_path_that_is_not_a_file_is_refused_at_once(trace, make, monkeypatch):
    monkeypatch.chdir(trace)
    path = trace / "events/phases.parquet"
    path.unlink()
    make(path)
    assert "not a regular file" in refused(trace)


def test_a_link_to_another_folder_of_tables(trace, tmp_path):
    (trace / "events").rename(tmp_path / "elsewhere")
    (trace / "events").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadTrace, match="symbolic link"):
        Trace(trace)


def test_a_table_that_unpacks_to_more_than_any_does_is_refused_before_it_is(trace):
    zeros = pa.array(np.zeros((257 << 20) // 8, np.int64))
    codes = pa.array(np.zeros(len(zeros), np.int8))
    names = pa.DictionaryArray.from_arrays(codes, pa.array(["step"]))
    schema = pa.schema([PHASES.arrow_schema().field(name) for name in ("start", "name")])
    table = pa.Table.from_arrays([zeros, names], schema=schema)
    put(trace, table, compression="zstd", use_dictionary=["name"], row_group_size=len(zeros))
    assert (trace / "events/phases.parquet").stat().st_size < 1 << 20
    assert "column start unpacks to 269" in run_within(64 << 20, refused, trace)


def test_a_text_longer_than_any_is_refused_where_it_is_read(trace):
    put(trace, phases([{**ROWS[0], "name": "x" * (SHORT + 1)}]))
    with Trace(trace) as opened:
        assert opened.sql("SELECT start FROM phases")["start"].tolist() == [0]
        with pytest.raises(BadTrace, match="name has more than 1024 bytes"):
            opened.sql("SELECT name FROM phases")


def _names_of_calls(folder):
    with Trace(folder) as trace, pytest.raises(BadTrace) as error:
        trace.arrow("SELECT name FROM syscalls")
    return str(error.value)


def test_a_long_name_that_a_small_file_repeats_is_refused_before_it_takes_memory(tmp_path):
    rows = 200_000
    call = {"ts": 1, "cpu": 0, "pid": 7, "tid": 7, "nr": 1, "name": "write"}
    make_trace(tmp_path / "t", {"syscalls": [call]}).close()
    path = tmp_path / "t/events/syscalls.parquet"
    table = pq.read_table(path).take(pa.array(np.zeros(rows, np.int64)))
    at = table.schema.get_field_index("name")
    long = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["x" * 60_000]))
    pq.write_table(table.set_column(at, table.schema.field("name"), long), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    said = run_within(256 << 20, _names_of_calls, tmp_path / "t")
    assert "name has more than 1024 bytes" in said


def test_a_footer_that_no_table_has(trace):
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(1000)])
    schema = schema.with_metadata({"x": "y" * (4 << 20)})
    put(trace, schema.empty_table())
    assert "footer" in refused(trace)


def test_more_columns_than_any_table_has(trace):
    # A footer: version, list of the schema's elements, rows, row groups. An element: optional,
    # called a, of the type INT64; the first is called r and has the others as children.
    many = 300_000
    column = b"\x15\x04\x25\x02\x18\x01a\x00"
    root = b"\x48\x01r\x15" + varint(2 * many) + b"\x00"
    footer = b"\x15\x02\x19\xfc" + varint(many + 1) + root + many * column + b"\x16\x00\x19\x0c\x00"
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (trace / "events/phases.parquet").write_bytes(data)
    assert "damaged" in run_within(256 << 20, refused, trace)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (slice(0, 1), "it claims 1000000000000 rows, and its row groups 1009"),
        (slice(1, 2), "has 1000000000000 values in a row group of 1009 rows"),
        (slice(-1, None), "has 1009 values in a row group of 1000000000000 rows"),
    ],
)
def test_a_footer_that_claims_more_rows_than_its_parts(trace, places, said):
    rows = 1009  # a prime
    put(trace, phases([{**ROWS[0], "start": n} for n in range(rows)]))
    path = trace / "events/phases.parquet"
    assert claims_of(path, rows) == len(PHASES.columns) + 2
    claim(path, rows, 10**12, places)
    assert said in refused(trace)


def test_the_table_of_losses_is_looked_at_too(trace):
    pq.write_table(pa.table({"stream": [1]}), trace / f"{LOSS.name}.parquet")
    with pytest.raises(BadTrace, match=r"loss\.parquet is damaged: its column stream is INT64"):
        Trace(trace)


def test_a_damaged_page_is_told_with_the_trace_also_when_rows_are_read_in_batches(trace):
    rows = 200_000
    columns = {name: np.arange(rows) for name in ("start", "end")}
    few = phases().take(pa.array(np.zeros(rows, np.int64)))
    for name, values in columns.items():
        at = few.schema.get_field_index(name)
        few = few.set_column(at, few.schema.field(name), pa.array(values))
    put(trace, few, compression="none", use_dictionary=["name"], data_page_size=1 << 16)
    path = trace / "events/phases.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    data[middle : middle + (1 << 17)] = b"\xff" * (1 << 17)
    path.write_bytes(data)
    with Trace(trace) as opened, pytest.raises(BadTrace, match=f"the tables of {trace} are dam"):
        for _ in opened.batches("SELECT start FROM phases", rows=1000):
            pass
