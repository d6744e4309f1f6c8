"""Manifests, raw streams and tables that are refused in one clear error."""

import json
import os

import pytest

from tests.support.pages import Page, enter, leave, raw_trace
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

GETPID = 39


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 99}, "schema 99"),
        ({"schema": None}, "schema: Input should be a valid integer"),
        ({"schema": True}, "schema: Input should be a valid integer"),
        ({"clock": {}}, r"clock.start_ns: Field required"),
        ({"clock": None}, "clock: Input should be an object"),
        ({"clock": {"start_ns": -1, "end_ns": 0}}, "greater than or equal to 0"),
        ({"targets": {}}, "targets: Input should be a valid array"),
        ({"targets": [{"pid": "1"}]}, r"targets.0"),
        ({"state": "else"}, "state: Input should be"),
        ({"own_files": {"8:0": [1 << 64]}}, r"own_files.8:0.0"),
        ({"kernel": {"release": 5}}, r"kernel.release"),
        ({"tables": {"block": 5}}, r"tables.block"),
        ({"capture": {}}, "does not list its events and streams"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path, change, said):
    raw_trace(tmp_path / "t", {0: [Page(0)]}, **change)
    with pytest.raises(BadTrace, match=said):
        Trace(tmp_path / "t")


def test_an_event_without_the_field_that_is_needed_is_refused(tmp_path):
    page = Page(0).event(100, enter(7, GETPID))
    made = raw_trace(tmp_path / "t", {0: [page]})
    formats = made["capture"]["formats"]
    formats["raw_syscalls:sys_enter"] = formats["raw_syscalls:sys_enter"].replace("long id", "x y")
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(made))
    with pytest.raises(BadTrace, match="raw_syscalls:sys_enter has no field id"):
        Trace(tmp_path / "t")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("../../etc/passwd", "invalid name"),
        ("/etc/passwd", "invalid name"),
        ("gone.raw", "cannot be read"),
    ],
)
def test_a_stream_outside_the_trace_is_refused(tmp_path, file, said):
    made = raw_trace(tmp_path / "t", {0: [Page(0)]})
    made["capture"]["streams"][0]["file"] = file
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(made))
    with pytest.raises(BadTrace, match=said):
        Trace(tmp_path / "t")
    assert not (tmp_path / "t/events").exists()


def test_a_stream_that_is_a_link_is_refused(tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    raw = tmp_path / "t/raw/ftrace-target-cpu0.raw"
    raw.rename(tmp_path / "elsewhere")
    raw.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadTrace, match="cannot be read"):
        Trace(tmp_path / "t")


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"nonsense" * 100])
def test_a_damaged_table_is_one_clear_error(tmp_path, damage):
    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    Trace(tmp_path / "t").close()
    (tmp_path / "t/events/syscalls.parquet").write_bytes(damage)
    with pytest.raises(BadTrace, match=r"syscalls\.parquet is damaged"):
        Trace(tmp_path / "t")


def test_a_missing_table_is_one_clear_error(tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0).event(1, enter(7, 1))]})
    Trace(tmp_path / "t").close()
    (tmp_path / "t/events/syscalls.parquet").unlink()
    with pytest.raises(BadTrace, match="is missing"):
        Trace(tmp_path / "t")


def test_damage_within_a_table_is_one_clear_error(tmp_path):
    from tracer.analysis.report.tables import all_tables

    page = Page(0)
    for i in range(30):
        page.event(10 * i, enter(7, GETPID)).event(10 * i + 5, leave(7, GETPID, i))
    raw_trace(tmp_path / "t", {0: [page]})
    Trace(tmp_path / "t").close()
    path = tmp_path / "t/events/syscalls.parquet"
    data = bytearray(path.read_bytes())
    data[4:100] = b"\xff" * 96  # the first column; the footer, at the end, is fine
    path.write_bytes(data)
    with Trace(tmp_path / "t") as trace, pytest.raises(BadTrace, match="damaged"):
        all_tables(trace)


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_a_stream_that_is_no_file_is_refused(tmp_path, kind):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    raw = tmp_path / "t/raw/ftrace-target-cpu0.raw"
    raw.unlink()
    os.mkfifo(raw) if kind == "fifo" else raw.mkdir()
    with pytest.raises(BadTrace, match="not a regular file"):
        Trace(tmp_path / "t")


@pytest.mark.parametrize(
    "threads",
    ["", "null", "{}", "[1]", "[[1,2,3]]", '[[1e400,2,3,"x",null]]', '[["a",2,3,"x",null]]',
     '[[4294967296,2,3,"x",null]]', '[[-1,2,3,"x",null]]', '[[1,1,1,"\\ud800",null]]', "[" * 9999],
)  # fmt: skip
def test_a_list_of_threads_that_makes_no_sense_is_refused(tmp_path, threads):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    (tmp_path / "t/raw/threads.json").write_text(threads)
    with pytest.raises(BadTrace, match=r"threads\.json is damaged"):
        Trace(tmp_path / "t")
