"""Reads of recordings in which the kernel logged no accesses; numbers known by hand."""

from __future__ import annotations

import json

import pytest

from tests.support.page_events import ONE, PAGE
from tests.support.traces import make_trace
from tracer.analysis.memory.knowledge import knowledge
from tracer.analysis.report.reads import READS_BY_EPOCH, READS_BY_FILE
from tracer.analysis.views.reading.inferred_accesses import EVENTS
from tracer.analysis.views.reading.reads import reads

JOB = 7
PROCESS = {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1}
FILE = {"dev": "254:0", "ino": 12}
FILES = [{**FILE, "path": "/data/a", "size": 40 * PAGE}]
LOGGED_NONE = {"capture": {"missing": {"page_cache": ["filemap:mm_filemap_get_pages"]}}}


def plain(frame):
    """Returns a frame with None for null."""
    return frame.astype(object).where(frame.notna(), None)


class Story:
    """Calls and additions of a job, in order of time."""

    def __init__(self):
        self.now = 0
        self.calls, self.events, self.opens, self.looks = [], [], [], []

    def call(self, name, ret, adds=(), ino=12, **more):
        begun = self.now
        for page in adds:
            self.now += 10
            self.events.append({"ts": self.now, "pid": JOB, "tid": JOB, "event": "add", **FILE,
                                "ino": ino, "index": page, "pages": 1})  # fmt: skip
        self.now += 10
        self.calls.append({"ts": begun, "dur_ns": self.now - begun, "pid": JOB, "tid": JOB, "nr": 0,
                           "name": name, "ret": ret, **more})  # fmt: skip
        self.now += 10

    def open(self, fd, path=None):
        if path is not None:
            self.opens.append({"ts": self.now, "pid": JOB, "tid": JOB, "event": "open",
                               "path": path})  # fmt: skip
            self.now += 1
        self.call("openat", fd, fd=-100, flags=0)

    def there(self, fd, position, description=None, dur_ns=5, pid=JOB):
        self.looks.append({"ts": self.now, "dur_ns": dur_ns, "pid": pid, "fd": fd, "flags": 0,
                           "position": position, "description": description,
                           "path": "/data/a"})  # fmt: skip
        self.now += 10

    @property
    def tables(self):
        return {"processes": [PROCESS], "page_cache": self.events, "files": FILES, "block": [],
                "syscalls": self.calls, "opens": self.opens, "descriptors": self.looks}  # fmt: skip

    def trace(self, folder):
        clock = {"name": "mono", "start_ns": 0, "end_ns": self.now + 10}
        return make_trace(folder, self.tables, targets=ONE, clock=clock, **LOGGED_NONE)

    def sums(self, folder, *names):
        with self.trace(folder) as trace:
            reads(trace)
            sums = ", ".join(f"sum({name})::BIGINT" for name in names)
            return trace.rows(f"SELECT {sums} FROM reads")[0]


NAMES = ("accessed", "missed", "read", "unplaced")


def test_a_file_is_told_by_the_pages_that_its_call_adds(tmp_path):
    made = Story()
    made.open(3)
    made.call("read", 2 * PAGE, range(8), fd=3, length=2 * PAGE)
    made.call("read", 5 * PAGE, fd=3, length=5 * PAGE)
    assert made.sums(tmp_path / "t", *NAMES, "unused") == (7, 2, 8, 0, 1)


def test_a_cached_file_is_told_by_its_name_and_is_not_known_without_one(tmp_path):
    made = Story()
    for fd, name in ((3, "/data/a"), (4, None), (5, "/data/a")):
        made.open(fd, name)
        made.call("read", 3 * PAGE, range(8) if fd == 3 else (), fd=fd, length=3 * PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (6, 3, 8, 3 * PAGE)


def test_a_name_that_stood_for_two_files_stands_for_none(tmp_path):
    made = Story()
    for ino, fd in ((12, 3), (13, 4), (0, 5)):
        made.open(fd, "/data/a")
        made.call("read", PAGE, range(2) if ino else (), ino, fd=fd, length=PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (2, 2, 4, PAGE)


def test_an_open_that_failed_gives_its_name_to_no_other(tmp_path):
    made = Story()
    made.opens.append({"ts": made.now, "pid": JOB, "tid": JOB, "event": "open", "path": "/data/a"})
    made.now += 1
    made.call("openat", -13, fd=-100, flags=0)
    made.open(3)  # without the C library
    made.call("read", PAGE, range(2), 13, fd=3, length=PAGE)
    made.open(4, "/data/a")
    made.call("openat", -2, tid=8, fd=-100, flags=0)
    made.call("read", 3 * PAGE, fd=4, length=3 * PAGE)
    # The kernel makes an interrupted call again.
    made.opens.append({**made.opens[0], "ts": made.now})
    made.now += 1
    made.call("openat", -512, fd=-100, flags=0)
    made.open(5)
    made.call("read", PAGE, fd=5, length=PAGE)
    with made.trace(tmp_path / "t") as trace:
        reads(trace)
        found = trace.rows("SELECT ino, accessed, unplaced FROM reads ORDER BY ino")
    assert found == [(12, 4, 0), (13, 1, 0)]


def test_a_call_belongs_to_the_epoch_in_which_it_began(tmp_path):
    made = Story()
    made.open(3)
    border = made.now + 25
    made.call("read", 3 * PAGE, range(4), fd=3, length=3 * PAGE)
    made.call("read", PAGE, fd=3, length=PAGE)
    phases = [
        {"name": "epoch", "pid": JOB, "tid": JOB, "epoch": epoch, "start": start, "end": end}
        for epoch, start, end in ((0, 0, border), (1, border, made.now))
    ]
    tables = {**made.tables, "phases": phases}
    with make_trace(tmp_path / "t", tables, targets=ONE, **LOGGED_NONE) as trace:
        reads(trace)
        names = "epoch, accessed, missed, hit, read, read_ahead"
        found = trace.rows(f"SELECT {names} FROM reads ORDER BY epoch")
    assert found == [(0, 3, 3, 0, 4, 1), (1, 1, 0, 1, 0, 0)]


def test_metadata_that_a_call_reads_too_is_not_its_file(tmp_path):
    made = Story()
    made.open(3)
    made.call("read", PAGE, (0, 1), fd=3, length=PAGE)
    made.events.append({**made.events[0], "ts": 45, "ino": 99, "index": 70_000})
    made.events.sort(key=lambda event: event["ts"])
    with made.trace(tmp_path / "t") as trace:
        reads(trace)
        assert trace.rows("SELECT ino, accessed FROM reads WHERE accessed > 0") == [(12, 1)]


def test_pages_that_a_write_adds_are_written_and_not_read(tmp_path):
    made = Story()
    made.open(3)
    made.call("write", 4 * PAGE, range(4), fd=3, length=4 * PAGE)
    made.call("lseek", 0, fd=3)
    made.call("read", 4 * PAGE, fd=3, length=4 * PAGE)
    assert made.sums(tmp_path / "t", *NAMES, "written") == (4, 0, 0, 0, 4)


def test_a_read_of_more_than_the_cache_holds_counts_in_full(tmp_path):
    made = Story()
    made.open(3)
    made.call("read", 8 * PAGE, range(8), fd=3, length=8 * PAGE)
    evicted = {**made.events[-1], "event": "delete", "tid": 50, "pid": 50, "index": 2}
    made.events.append({**evicted, "ts": made.events[-1]["ts"] + 5})
    assert made.sums(tmp_path / "t", *NAMES) == (8, 8, 8, 0)


def test_reads_of_pipes_are_not_reads_of_files(tmp_path):
    made = Story()
    made.call("read", 9000, fd=6, length=65536)
    made.open(3)
    made.call("read", PAGE, (0,), fd=3, length=PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (1, 1, 1, 0)


def test_tables_and_notes_tell_what_is_not_known(tmp_path, tracer):
    made = Story()
    for fd, name in ((3, "/data/a"), (4, None)):
        made.open(fd, name)
        made.call("read", 3 * PAGE, range(3) if name else (), fd=fd, length=3 * PAGE)
    with made.trace(tmp_path / "a.trace") as trace:
        assert knowledge(trace).unknown == {"job": 0.5}
        (epoch,) = READS_BY_EPOCH.of(trace).to_dict("records")
        assert (epoch["accessed_mib"], epoch["unknown_mib"]) == (
            3 * PAGE / (1 << 20), 3 * PAGE / (1 << 20),
        )  # fmt: skip
        by_file = dict(READS_BY_FILE.of(trace)[["file", "unknown_mib"]].itertuples(index=False))
        assert by_file == {"/data/a": 0, "not known": 3 * PAGE / (1 << 20)}
    told = tracer("report", "a.trace", "--json").json
    assert any("inferred from system calls" in note for note in told["notes"])
    assert any("50.0 % of the data" in note for note in told["notes"])
    answer = tracer("predict", "a.trace", "--memory", "1M", "--json").json
    assert (answer["inferred"], answer["unknown_share"]) == (True, {"job": 0.5})
    said = " ".join(tracer("predict", "a.trace", "--memory", "1M").out.split())
    assert "The accesses are inferred from system calls" in said
    assert "The prediction lacks these reads." in said
    assert tracer("predict", "a.trace", "--memory", "1M", "--html", "a.html").status == 0
    assert "The accesses are inferred" in (tmp_path / "a.html").read_text()


def test_logged_accesses_are_not_inferred(tmp_path, tracer):
    made = Story()
    made.open(3)
    made.call("read", PAGE, (0,), fd=3, length=PAGE)
    made.events.append({**made.events[0], "ts": made.now, "event": "access"})
    clock = {"name": "mono", "start_ns": 0, "end_ns": made.now + 10}
    with make_trace(tmp_path / "a.trace", made.tables, targets=ONE, clock=clock) as trace:
        (epoch,) = plain(READS_BY_EPOCH.of(trace)).to_dict("records")
        assert (epoch["accessed_mib"], epoch["unknown_mib"]) == (PAGE / (1 << 20), None)
    answer = tracer("predict", "a.trace", "--memory", "1M", "--json").json
    assert (answer["inferred"], answer["unknown_share"]) == (False, {})
    told = tracer("report", "a.trace", "--json").json
    assert "inferred" not in json.dumps(told["notes"])


def test_a_recording_without_arguments_of_calls_has_no_accesses(tmp_path):
    made = Story()
    made.call("read", PAGE, (0,))
    assert made.sums(tmp_path / "t", "accessed", "read") == (0, 1)


def test_a_cached_file_that_was_open_before_is_read_on_from_its_position(tmp_path):
    made = Story()
    made.there(3, PAGE // 2, description=1)
    made.call("read", PAGE, fd=3, length=PAGE)
    made.call("read", PAGE // 2, fd=3, length=PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (3, 0, 0, 0)


def test_descriptors_of_one_description_move_its_position_before_they_are_looked_at(tmp_path):
    made = Story()
    made.there(3, 0, description=1)
    made.call("read", 2 * PAGE, fd=4, length=2 * PAGE)
    made.there(4, 2 * PAGE, description=1)
    made.call("read", PAGE // 2, fd=3, length=PAGE // 2)
    made.call("read", PAGE, fd=4, length=PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (5, 0, 0, 0)


@pytest.mark.parametrize(("name", "known"), [("read", 0), ("pread64", 2)])
def test_a_position_that_a_call_may_have_moved_during_the_look_is_not_known(tmp_path, name, known):
    made = Story()
    made.there(3, 0, description=1, dur_ns=15)
    made.call(name, PAGE, fd=3, length=PAGE, offset=0)
    made.call("read", PAGE, fd=3, length=PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (known, 0, 0, (2 - known) * PAGE)


def test_a_position_that_others_may_share_is_not_known_until_a_seek(tmp_path):
    made = Story()
    made.there(3, 0)
    made.call("read", PAGE, fd=3, length=PAGE)
    made.call("lseek", 5 * PAGE, fd=3, offset=5 * PAGE)
    made.call("read", 3 * PAGE, fd=3, length=3 * PAGE)
    assert made.sums(tmp_path / "t", *NAMES) == (3, 0, 0, PAGE)


def test_a_process_that_joins_reads_on_from_its_position_and_from_a_shared_one(tmp_path):
    """It is looked at before the process that shares a position with it."""
    made, late = Story(), {"pid": 8, "tid": 8}
    made.there(3, 0, description=1)
    made.call("read", 2 * PAGE, fd=3, length=2 * PAGE)
    made.there(5, 3 * PAGE, description=2, pid=8)
    made.there(6, 20 * PAGE, description=3, pid=8)
    made.there(3, 3 * PAGE, description=2)
    for more in ({"fd": 3}, {"fd": 5, **late}, {"fd": 6, **late}, {"fd": 3}):
        made.call("read", PAGE, length=PAGE, **more)
    with made.trace(tmp_path / "t") as trace:
        reads(trace)
        places = f"SELECT \"index\" FROM {EVENTS} WHERE event = 'access' ORDER BY ts"
        assert [page for (page,) in trace.rows(places)] == [0, 3, 4, 20, 5]
