"""Files that no event names are found by the names by which processes opened them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.traces import rows_of
from tracer.probes.catalogue import TABLES
from tracer.session.paths import find_files
from tracer.store.names import escaped
from tracer.store.tables import write_table

HOST, CONTAINED = 7, 8
PROCESSES = [
    {"pid": HOST, "tid": HOST, "role": "target"},
    {"pid": CONTAINED, "tid": CONTAINED, "role": "target", "container_id": "c0ffee"},
]


def found(folder, opened, **tables):
    """Finds the files of names, each opened 10 ns after the one before."""
    opens = [{"ts": 10 * number, "pid": pid, "tid": pid, "event": "open", "path": path}
             for number, (pid, path) in enumerate(opened, 1)]  # fmt: skip
    for name, rows in {"opens": opens, "processes": PROCESSES, **tables}.items():
        write_table(TABLES[name], folder, rows_of(TABLES[name], rows))
    end = time.monotonic_ns() + 10**12
    manifest = {
        "clock": {"end_ns": end, "realtime_offset_ns": time.time_ns() - time.monotonic_ns()}
    }
    files, extents, late = find_files(folder, manifest)
    assert (extents, late) == ([], {})
    return files


@pytest.fixture
def on_disk():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        if os.major(Path(folder).stat().st_dev) == 0:
            do_without("a disk", "TRACER_REQUIRE_KERNEL", "/var/tmp is on none")
        yield Path(folder)


def test_a_file_is_found_by_its_name(tmp_path, on_disk):
    path = on_disk / "data"
    path.write_bytes(bytes(5000))
    other = os.fsencode(on_disk) + b"/odd\xff\n"
    os.close(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600))
    facts = path.stat()
    names = [(HOST, str(path)), (HOST, str(path)), (HOST, escaped(other))]
    files = {row[3]: row for row in found(tmp_path, names)}
    dev = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
    dev_of, root, ino, _, born, size, how = files[str(path)]
    assert (dev_of, root, ino, size, how) == (dev, None, facts.st_ino, 5000, "name")
    assert born is None or abs(born - time.monotonic_ns()) < 60 * 10**9
    assert files.keys() == {str(path), escaped(other)}


def test_names_that_lead_to_no_file_of_the_recorder_are_left_out(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "data").touch()
    (tmp_path / "loop").symlink_to("loop")
    names = [
        *(
            (HOST, f"{tmp_path}/{name}")
            for name in ("folder", "fifo", "loop", "missing", "x" * 300)
        ),
        *((HOST, "data"), (HOST, "/proc/self/maps"), (HOST, "/dev/null"), (HOST, "")),
        (CONTAINED, f"{tmp_path}/data"),
    ]
    assert found(tmp_path, names) == []


def test_a_name_that_was_only_opened_in_vain_leads_to_no_file(tmp_path, on_disk):
    """A file of that name was made later. The call that opened "lost" is not recorded."""
    later, twice, lost = (on_disk / name for name in ("later", "twice", "lost"))
    for path in (later, twice, lost):
        path.write_bytes(bytes(5000))
    names = [(HOST, str(path)) for path in (later, twice, twice, lost, later)]
    calls = [
        {"ts": ts, "pid": HOST, "tid": HOST, "name": name, "dur_ns": 1, "ret": ret}
        for ts, name, ret in (
            (11, "openat", -2), (21, "open", -2), (31, "openat", 3), (32, "read", -5),
            (41, "read", -5), (51, "openat", -13),
        )
    ]  # fmt: skip
    files = found(tmp_path, names, syscalls=calls)
    assert {row[3] for row in files} == {str(twice), str(lost)}
