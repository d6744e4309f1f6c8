"""User mistakes: one clear line with the mend, the right exit code, nothing overwritten."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.conftest import ROOT, tracer_command
from tests.support.pages import Page, enter, leave, raw_trace
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.policies.catalogue import POLICIES
from tracer.analysis.flushlayer.timed import destage
from tracer.probes.catalogue import PROBES
from tracer.probes.sampler.catalogue import COUNTERS, SERIES

FIXTURE = ROOT / "fixtures" / "lenet.trace"
READERS = [("info",), ("report",), ("simulate",), ("query", "SELECT 1")]


def run_reader(tracer, reader, trace, **options):
    verb, *rest = reader
    return tracer(verb, trace, *rest, **options)


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


def test_help_lists_the_verbs_and_imports_nothing_heavy(tracer):
    source = (
        "import sys; sys.argv = ['tracer', '--help']\n"
        "from tracer.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pandas', 'plotly', 'numba', 'torch', 'numpy', 'pyarrow', 'duckdb'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"
    for verb in ("doctor", "record", "list", "info", "report", "simulate", "query", "clean"):
        assert f" {verb} " in ran.stdout


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        (("repotr", "x.trace"), "'report'"),
        (("simualte",), "'simulate'"),
        (("study", "rnu"), "'run'"),
        (("report", "--jsno", "x.trace"), "--json"),
        (("simulate", "x.trace", "--capactiy", "4K"), "--capacity"),
    ],
)
def test_a_mistyped_verb_or_option_gets_the_one_that_was_meant(tracer, mistyped, meant):
    said = " ".join(tracer(*mistyped, status=2).err.split())
    assert re.search(rf"(Did you mean|Possible options:) {meant}", said), said


def test_a_verb_like_no_other_gets_no_suggestion(tracer):
    said = tracer("zzz", status=2).err
    assert "No such command 'zzz'; give doctor, " in said and "Did you mean" not in said


@pytest.mark.parametrize(
    "verb",
    [
        "doctor",
        "record",
        "list",
        "info",
        "report",
        "explain",
        "compare",
        "predict",
        "simulate",
        "calibrate",
        "query",
        "import",
        "export",
        "pack",
        "unpack",
        "workload",
        "study",
        "clean",
    ],
)
def test_every_verb_has_help_within_80_columns(tracer, verb):
    ran = tracer(verb, "--help", env={**os.environ, "COLUMNS": "80", "TERM": "dumb"})
    assert "Usage: " in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "<bool>" not in ran.out
    assert not re.search(r"\{[a-z]", ran.out)


def test_help_names_every_policy_and_every_device(tracer):
    shown = tracer("simulate", "--help", env={**os.environ, "COLUMNS": "200", "TERM": "dumb"}).out
    for name in (*POLICIES, *devices.names("nvm"), *devices.names("disk"), *destage.names()):
        assert name in shown


def test_options_that_a_sweep_s_file_sets_are_refused(tracer):
    ran = tracer("simulate", "x.trace", "--config", "x.toml", "--disk", "hdd-7200", status=2)
    assert ran.err == "tracer: --config sets what --disk sets, too; leave out --disk\n"


def test_the_list_names_every_probe_and_every_series(tracer):
    listed = json.loads(tracer("list", "--json").out)
    assert set(PROBES) <= listed.keys()
    events = [event for probe in PROBES for event in listed[probe]["events"].items()]
    of_perf = {there for name, there in events if name.startswith("perf:")}
    assert len(of_perf) == 1, "events of perf are there, or are not"
    samples = listed["samples"]
    assert samples["series"].keys() == SERIES.keys() | COUNTERS.keys()
    assert samples["series"]["read_iops"]["unit"] == "requests/s"
    shown = tracer("list").out
    for name in (*PROBES, *samples["series"], *samples["not_available"]):
        assert name in shown
    assert max(map(len, shown.splitlines()[-30:])) <= 80


@pytest.mark.parametrize("reader", READERS, ids=[r[0] for r in READERS])
class TestReaders:
    def test_a_missing_trace(self, tracer, reader):
        ran = run_reader(tracer, reader, "gone.trace", status=6)
        assert "there is no trace gone.trace" in one_line(ran.err)

    def test_a_file(self, tracer, reader, tmp_path):
        (tmp_path / "file").write_text("x")
        assert "is a file" in one_line(run_reader(tracer, reader, "file", status=6).err)

    def test_a_directory_that_is_no_trace(self, tracer, reader, tmp_path):
        (tmp_path / "empty").mkdir()
        said = one_line(run_reader(tracer, reader, "empty", status=6).err)
        assert "is not a trace" in said
        assert list((tmp_path / "empty").iterdir()) == []

    def test_a_newer_schema(self, tracer, reader, tmp_path):
        raw_trace(tmp_path / "new", {0: [Page(0)]}, schema=2)
        ran = run_reader(tracer, reader, "new", status=6)
        assert "schema 2" in one_line(ran.err)
        assert "upgrade" in ran.err

    def test_a_truncated_table(self, tracer, reader, tmp_path):
        shutil.copytree(FIXTURE, tmp_path / "t")
        table = tmp_path / "t/events/block.parquet"
        table.write_bytes(table.read_bytes()[:1000])
        ran = run_reader(tracer, reader, "t", status=6)
        assert "block.parquet is damaged" in one_line(ran.err)

    def test_a_truncated_manifest(self, tracer, reader, tmp_path):
        shutil.copytree(FIXTURE, tmp_path / "t")
        manifest = tmp_path / "t/manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:1000])
        ran = run_reader(tracer, reader, "t", status=6)
        assert "manifest.json is damaged" in one_line(ran.err)

    def test_a_truncated_raw_file_is_read_up_to_there(self, tracer, reader, tmp_path):
        shutil.copytree(FIXTURE, tmp_path / "t")
        shutil.rmtree(tmp_path / "t/events")
        raw = tmp_path / "t/raw/ftrace-target-cpu0.raw"
        raw.write_bytes(raw.read_bytes()[:10000])
        run_reader(tracer, reader, "t", status=0)
        loss = tracer("query", "t", "SELECT * FROM loss", "--json").json
        assert [(row["stream"], row["cause"]) for row in loss] == [
            ("ftrace-target-cpu0", "torn end")
        ]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "no target is given"),
        (("-p", "0"), 2, "process ids"),
        (("-p", "-3"), 2, "process ids"),
        (("-p", "x"), 2, "process ids"),
        (("-p", "1,,2"), 2, "process ids"),
        (("-p", "2147483647"), 4, "no process 2147483647"),
        (("-e", "magic", "--", "true"), 2, "no probe 'magic'; see: tracer list"),
        (("-e", "shed", "--", "true"), 2, "no probe 'shed'; did you mean sched?"),
        (("-e", ",", "--", "true"), 2, "names no probe"),
        (("-d", "0", "--", "true"), 2, "duration"),
        (("-d", "nan", "--", "true"), 2, "duration"),
        (("-d", "inf", "--", "true"), 2, "give seconds above 0 and below 1000000000"),
        (("--linger", "1e9", "--", "true"), 2, "give seconds, 0 or more and below 1000000000"),
        (("-b", "lots", "--", "true"), 2, "not a size"),
        (("-b", "1", "--", "true"), 2, "out of range"),
        (("--max-size", "0", "--", "true"), 2, "leaves no room"),
        (("--max-size", "64", "--", "true"), 2, "--max-size 64 (64 bytes) leaves no room"),
        (("--", "no-such-program"), 2, "no program 'no-such-program'"),
        (("--", "/etc"), 2, "no program"),
        (("-o", "missing/x.trace", "--", "true"), 2, "no folder"),
    ],
)
@pytest.mark.kernel
def test_record_refuses(tracer, tmp_path, arguments, status, said):
    ran = tracer("record", *arguments, status=status)
    assert said in one_line(ran.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kernel
@pytest.mark.parametrize("make", ["file", "folder", "link", "website"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_record_overwrites_nothing_that_is_no_trace(tracer, tmp_path, make, force):
    output = tmp_path / "x.trace"
    if make == "file":
        output.write_text("precious")
    elif make == "folder":
        output.mkdir()
        (output / "precious").write_text("precious")
    elif make == "website":  # that has a manifest.json, too
        output.mkdir()
        (output / "manifest.json").write_text("{}")
        (output / "precious").write_text("precious")
    else:
        (tmp_path / "elsewhere").mkdir()
        output.symlink_to(tmp_path / "elsewhere")
    ran = tracer("record", "-o", "x.trace", *force, "--", "true", status=2)
    assert "exists and is not a trace" in one_line(ran.err)
    if make == "file":
        assert output.read_text() == "precious"
    elif make in ("folder", "website"):
        assert (output / "precious").read_text() == "precious"
    else:
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_hostile_name_cannot_speak_to_the_terminal(tracer, tmp_path):
    page = Page(0).event(1, enter(7, 1)).event(2, leave(7, 1))
    hostile = "\x1b[31m[red]<script>alert(1)</script>\n\x07"
    raw_trace(
        tmp_path / "t",
        {0: [page]},
        targets=[
            {"name": hostile, "role": "target", "kind": "pid", "pid": 7, "command": [hostile]}
        ],
        syscall_names={"1": hostile},
    )
    for verb in ("info", "report", "simulate"):
        if verb != "simulate":
            ran = tracer(verb, "t")
            assert "\x1b" not in ran.out
            assert "\x07" not in ran.out
            assert "[red]" in ran.out
    assert tracer("query", "t", "SELECT name FROM syscalls").out.count("\x1b") == 0
    (row,) = tracer("query", "t", "SELECT name FROM syscalls", "--json").json
    assert row["name"] == hostile


class TestSimulate:
    KEYS = (
        "model",
        "requests",
        "unique_pages",
        "disk_writes",
        "capacity_pages",
        "improvement",
        "improvement_with_drain",
        "assumptions",
    )

    def test_json_has_the_contracts_keys(self, tracer):
        found = tracer("simulate", FIXTURE, "--json").json
        assert found.keys() >= set(self.KEYS)
        assert found["requests"] > 0

    def test_a_capacity_in_bytes_pages_or_as_a_share(self, tracer):
        for option, value, pages in (
            ("--capacity", "1M", 256),
            ("--capacity-pages", "17", 17),
            ("--capacity-share", "1", None),
        ):
            found = tracer("simulate", FIXTURE, option, value, "--json").json
            assert found["capacity_pages"] == (pages or found["unique_pages"])

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--model", "magic"), "no model"),
            (("--policy", "magic"), "no policy"),
            (("--medium", "hdd-paper"), "no nvm"),
            (("--disk", "tape"), "no disk"),
            (("--capacity", "-1"), "not a size"),
            (("--capacity-pages", "-1"), "cannot be"),
            (("--capacity-share", "nan"), "cannot be"),
            (("--capacity-share", "0.1", "--capacity", "1M"), "more than once"),
        ],
    )
    def test_impossible_arguments_are_refused_in_one_line(self, tracer, arguments, said):
        assert said in one_line(tracer("simulate", FIXTURE, *arguments, status=2).err)

    @pytest.mark.parametrize(
        ("size", "in_bytes"), [("64", "64"), ("0.25", "0.25"), ("3.5K", "3584"), ("4095", "4095")]
    )
    def test_a_capacity_below_one_page_is_refused_with_the_mends(self, tracer, size, in_bytes):
        error = one_line(tracer("simulate", FIXTURE, "--capacity", size, status=2).err)
        assert error == (
            f"tracer: --capacity {size} means {in_bytes} bytes, less than one page of 4096 bytes;"
            " give e.g. --capacity 64K, --capacity-pages 64 or --capacity-share 0.25\n"
        )

    @pytest.mark.parametrize(("size", "pages"), [("0", 0), ("0K", 0), ("4096", 1), ("4K", 1)])
    def test_a_capacity_of_no_page_or_one_is_taken(self, tracer, size, pages):
        found = tracer("simulate", FIXTURE, "--capacity", size, "--json").json
        assert found["capacity_pages"] == pages


@pytest.mark.slow
class TestCalibrate:
    QUICK = ("--size", "1M", "--seconds", "0.1", "--depth", "4")

    def test_a_measured_medium_can_be_simulated(self, tracer, tmp_path):
        asked = ("--name", "mine", "--kind", "nvm", *self.QUICK)
        tracer("calibrate", "new", *asked, "-o", "mine.toml")
        assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
        found = tracer(
            "simulate", FIXTURE, "--medium", "mine", "--devices", "mine.toml", "--json"
        ).json
        assert found["medium"] == "mine"
        assert "flush_latency = " in tracer("calibrate", "new", *asked).out

    def test_ctrl_c_leaves_neither_a_file_nor_a_fio(self, tmp_path):
        target = tmp_path / "new"
        measuring = subprocess.Popen(
            tracer_command("calibrate", target, "--name", "mine", "--kind", "ssd", "--size", "1M"),
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while not target.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert target.exists()
        measuring.send_signal(signal.SIGINT)
        assert measuring.wait(60) == 130
        assert list(tmp_path.iterdir()) == []
        running = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
        assert not [line for line in running if f"--filename={target}" in line]

    @pytest.mark.parametrize(
        ("target", "arguments", "said"),
        [
            ("new", ("--kind", "tape"), "there is no device kind 'tape'"),
            ("new", ("--kind", "ssd", "--size", "lots"), "not a size"),
            ("new", ("--kind", "ssd", "--seconds", "nan"), "nan s cannot be"),
            ("new", ("--kind", "ssd", "-o", "full"), "full exists"),
            ("full", ("--kind", "ssd"), "full may hold data"),
            (".", ("--kind", "ssd"), "neither a file nor a block device"),
        ],
    )
    def test_impossible_arguments_are_refused_in_one_line(
        self, tracer, tmp_path, target, arguments, said
    ):
        (tmp_path / "full").write_text("data")
        ran = tracer("calibrate", target, "--name", "mine", *arguments, status=2)
        assert said in one_line(ran.err)
        assert [path.name for path in tmp_path.iterdir()] == ["full"]
        assert (tmp_path / "full").read_text() == "data"


def test_output_to_a_pipe_that_closes_ends_quietly():
    command = tracer_command("query", FIXTURE, "SELECT * FROM syscalls", "--csv")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert error == b""


def rounded(value):
    """The same with floats to 12 digits: the last ones hang on the order of a parallel sum."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_the_fixture_is_what_its_decoder_makes_of_it_today(tracer, tmp_path):
    """The committed tables equal those that today's decoder makes from the raw streams."""
    shutil.copytree(FIXTURE, tmp_path / "t")
    shutil.rmtree(tmp_path / "t/events")
    today = tracer("report", "t", "--json").json["tables"]
    committed = tracer("report", FIXTURE, "--json").json["tables"]
    assert rounded(today) == rounded(committed)
    assert json.loads((tmp_path / "t/manifest.json").read_text())["tables"].keys() == (
        json.loads((FIXTURE / "manifest.json").read_text())["tables"].keys()
    )
