"""JSON of a trace that somebody else made: refused before it costs much, whatever it holds."""

import json
import os

import pytest

from tests.support.budget import run_within
from tests.support.pages import Page, enter, leave, raw_trace
from tests.support.traces import make_trace
from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap
from tracer.session import sampler
from tracer.session.marks import Marks
from tracer.store import loss
from tracer.store import manifest as manifests
from tracer.store.checked import json_lines, parts
from tracer.store.listed import Lines
from tracer.store.lists import SampleFacts
from tracer.store.trace import Trace
from tracer.targets import Target

pytestmark = pytest.mark.slow

BYTES, SECONDS = 1 << 30, 10
MANY = 2_000_000
MOST = (1 << 63) - 1


def refused(folder):
    with pytest.raises(BadTrace) as error:
        Trace(folder)
    said = str(error.value)
    assert "\n" not in said and len(said) < 1000
    return said


KEYS = {
    "numbers": lambda: b'"probes":[' + b"0," * MANY + b"0]",
    "lists": lambda: b'"probes":[' + b"[]," * MANY + b"[]]",
    "objects": lambda: b'"mounts":[' + b"{}," * MANY + b"{}]",
    "names": lambda: (
        b'"syscall_names":{' + b"".join(b'"%x":0,' % n for n in range(MANY)) + b'"x":0}'
    ),
    "a number": lambda: b'"perf":{"pids":[' + b"9" * 4000 + b"]}",
    "deep and unknown": lambda: b'"nobody":' + b"[" * MANY + b"]" * MANY,
    "deep": lambda: b'"probes":' + b"[" * MANY + b"]" * MANY,
}
"""Made when they are needed: each process of these tests imports this file."""


@pytest.mark.parametrize("key", KEYS)
def test_a_manifest_of_a_few_megabytes_costs_no_gigabyte(tmp_path, key):
    make_trace(tmp_path / "t", {}).close()
    path = tmp_path / "t/manifest.json"
    path.write_bytes(b"{" + KEYS[key]() + b"," + path.read_bytes()[1:])
    assert "damaged" in run_within(BYTES, refused, tmp_path / "t", cpu_s=SECONDS)


def test_a_manifest_is_read_whatever_the_arguments_of_a_command_are(tmp_path):
    make_trace(tmp_path / "t", {}).close()
    manifest = manifests.read(tmp_path / "t")
    manifest["command"] = ["sh", ",[{" * 300_000]
    manifests.write(tmp_path / "t", manifest)
    assert manifests.read(tmp_path / "t") == manifest


@pytest.mark.parametrize("unit", [b'\\"', b'"",', b'",'], ids=["escaped", "empty", "open"])
def test_text_that_is_no_json_is_counted_in_one_pass(unit):
    run_within(BYTES, parts_of, unit, cpu_s=SECONDS)


def parts_of(unit):
    return parts(b'"' + unit * (8 * MANY))


@pytest.mark.parametrize(
    "name",
    ["threads.json", "members.jsonl", "files.json", "descriptors.jsonl", "new_cpus.jsonl"],
)
def test_a_list_of_a_few_megabytes_costs_no_gigabyte(tmp_path, name):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    (tmp_path / "t/raw" / name).write_bytes(b"[" + b"0," * (5 * MANY) + b"0]\n")
    assert name in run_within(BYTES, refused, tmp_path / "t", cpu_s=SECONDS)


def test_a_summary_is_read_line_by_line(tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0)]}, summed_up=["syscalls"])
    row = json.dumps([1, 0, 7, 1, 0, 1, 0])
    line = f'{{"start":0,"end":1,"sums":[{",".join([row] * 10_000)}],"slots":[],"uncounted":0}}\n'
    with (tmp_path / "t/raw/summary.jsonl").open("w") as file:
        for _ in range(60):
            file.write(line)
    assert run_within(400 << 20, rows_of_summaries, tmp_path / "t", cpu_s=30) == 600_000


def rows_of_summaries(folder):
    with Trace(folder) as trace:
        return trace.manifest["tables"]["summaries"]["rows"]


def _fifo(path):
    os.mkfifo(path)


def _folder(path):
    path.mkdir()


def _device(path):
    path.symlink_to("/dev/zero")


def _sparse(path):
    with path.open("wb") as file:
        file.truncate(6 << 30)


@pytest.mark.parametrize("make", [_fifo, _folder, _device, _sparse])
@pytest.mark.parametrize(
    "name",
    ["manifest.json", "raw/threads.json", "raw/members.jsonl", "raw/samples.jsonl",
     "raw/marks/names.jsonl"],
)  # fmt: skip
def test_a_file_that_is_not_json_is_refused_at_once(tmp_path, name, make):
    raw_trace(tmp_path / "t", {0: [Page(0)]}, samples={"hz": 1.0})
    (tmp_path / "t/raw/marks").mkdir()
    path = tmp_path / "t" / name
    path.unlink(missing_ok=True)
    make(path)
    assert path.name in run_within(BYTES, refused, tmp_path / "t", cpu_s=SECONDS)


class TestLosses:
    def test_counters_of_64_bits_make_a_trace_that_can_be_read(self, tmp_path):
        pages = {cpu: [Page(0).event(1, enter(7, 39)).event(2, leave(7, 39))] for cpu in (0, 1)}
        stats = {f"target-cpu{cpu}": {"overrun": MOST, "dropped events": MOST} for cpu in (0, 1)}
        made = raw_trace(tmp_path / "t", pages, state="captured")
        made["capture"]["stats"] = stats
        (tmp_path / "t/manifest.json").write_text(json.dumps(made))
        Trace(tmp_path / "t").close()
        with Trace(tmp_path / "t") as trace:
            assert trace.manifest["loss"] == {"events": 0, "windows": 4, "unknown": 4, "others": 0}
            assert trace.sql('SELECT count("count") AS n FROM loss')["n"].tolist() == [0]

    def test_a_gap_with_impossible_numbers_is_unknown(self):
        gaps = [Gap("x", 1 << 20, -(1 << 70), 1 << 64, 1 << 64, "full")] * 2
        row, _ = loss.rows(gaps).to_pylist()
        assert row == {
            "stream": "x",
            "cpu": -1,
            "from": None,
            "to": None,
            "count": None,
            "cause": "full",
        }
        assert loss.summary(gaps) == {"events": 0, "windows": 2, "unknown": 2, "others": 0}


class TestNamesThatAreNoUtf8:
    def test_a_container_s_file_of_marks(self, tmp_path):
        raw_trace(tmp_path / "t", {0: [Page(0)]})
        marks = tmp_path / "t/raw/marks"
        marks.mkdir()
        recorder = Marks(marks, tmp_path / "live")
        recorder._names = Lines(marks, "names.jsonl")
        recorder._write_name("\udcff-1", 5, 7, [(5, 7)])
        recorder.collect()
        Trace(tmp_path / "t").close()

    def test_an_instance_of_a_sample(self, tmp_path):
        path = tmp_path / "samples.jsonl"
        path.write_bytes(sampler._line(0, [("rss", "\udcff", 1.0)]))
        ((_, _, readings),) = json_lines(path, SampleFacts)
        assert readings == [("rss", "\\xff", 1.0)]

    def test_a_target(self):
        target = Target("d\udcff", "command", command=["./\udcff"])
        assert target.describe()["name"] == "d\\xff"
        assert target.describe()["command"] == ["./\\xff"]
