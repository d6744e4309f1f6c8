"""perf's files in a trace become tables or are reported as missing; their content is not
trusted."""

import pyarrow.parquet as pq
import pytest

from tests.support import request_format
from tests.support.pages import Page, raw_trace
from tests.support.perf_stream import DUMMY, KERNEL, PerfStream
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

INSERT = "block:block_rq_insert"
KALLSYMS = "ffffffff81000100 T submit_bio\nffffffff81000200 D data\n"


def stream():
    made = PerfStream().event(INSERT, 7, 8).event("dummy:HG", 9, sample_type=DUMMY)
    return made.comm(0, 100, b"dd")


def killed(folder, files, *, kallsyms=KALLSYMS, **perf):
    """A trace as a killed recorder leaves it, with these files of perf in it."""
    perf = {"version": "6.1", "pids": [51], **perf}
    raw_trace(folder, {0: [Page(0)]}, perf=perf, recorder={"pid": 50, "boot_id": "another"})
    for name, content in files.items():
        data = content.data if isinstance(content, PerfStream) else content.encode()
        (folder / "raw" / name).write_bytes(data)
    if kallsyms is not None:
        (folder / "raw/kallsyms").write_text(kallsyms)
    return folder


def graphs(folder):
    """Rows of the table call_graphs, and the gaps in what perf recorded."""
    with Trace(folder) as trace:
        found = trace.connection.execute(
            "SELECT event, comm, pid, stack, count FROM call_graphs ORDER BY ALL"
        ).fetchall()
        gaps = "SELECT stream, cause FROM loss WHERE stream != 'target-cpu0' ORDER BY ALL"
        return found, trace.connection.execute(gaps).fetchall()


def test_streams_of_several_perfs_are_one_table(tmp_path):
    clock = PerfStream().event("cpu-clock", 5, sample_type=DUMMY | 1 << 8)
    chain = [KERNEL, 0xFFFFFFFF81000110]
    made = stream().sample(1, chain).sample(2, chain).sample(3, chain, pid=50).sample(4, [], pid=51)
    folder = killed(
        tmp_path / "t",
        {"a.perf.data": made, "b.perf.data": clock.sample(1, chain, identity=5)},
        callgraphs=[
            {"file": "a.perf.data", "events": [INSERT]},
            {"file": "b.perf.data", "events": ["cpu-clock"]},
        ],
    )
    assert graphs(folder) == (
        [(INSERT, "dd", 100, "submit_bio_[k]", 2), ("cpu-clock", None, 100, "submit_bio_[k]", 1)],
        [],
    )


def test_device_and_operation_by_the_format_that_the_trace_holds(tmp_path):
    made = PerfStream().event(INSERT, 7, config=request_format.NUMBER)
    for minor, rwbs in ((0, b"WS"), (0, b"WS"), (1, b"R")):
        made.sample(1, [KERNEL, 0xFFFFFFFF81000110], raw=request_format.raw(7, minor, rwbs))
    rows = "SELECT dev, operation, count FROM call_graphs ORDER BY ALL"
    for name, formats, expected in (
        (
            "new",
            {"formats": {INSERT: request_format.TEXT}},
            [("7:0", "write", 2), ("7:1", "read", 1)],
        ),
        ("old", {}, [(None, None, 3)]),
    ):
        entry = {"file": "a.perf.data", "events": [INSERT], **formats}
        with Trace(killed(tmp_path / name, {"a.perf.data": made}, callgraphs=[entry])) as trace:
            assert trace.connection.execute(rows).fetchall() == expected
    entry = {"file": "a.perf.data", "events": [INSERT], "formats": {INSERT: "no format"}}
    with pytest.raises(BadTrace, match=f"format of event {INSERT} has no usable ID"):
        Trace(killed(tmp_path / "bad", {"a.perf.data": made}, callgraphs=[entry]))


def test_a_table_of_before_the_columns_were_there(tmp_path):
    made = stream().sample(1, [KERNEL, 0xFFFFFFFF81000110])
    entry = {"file": "a.perf.data", "events": [INSERT]}
    folder = killed(tmp_path / "t", {"a.perf.data": made}, callgraphs=[entry])
    Trace(folder).close()
    path = folder / "events/call_graphs.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["dev", "operation"]), path)
    with Trace(folder) as trace:
        rows = trace.connection.execute("SELECT dev, operation, count FROM call_graphs").fetchall()
        assert rows == [(None, None, 1)]


def test_killed_before_perf_was_there(tmp_path):
    folder = killed(
        tmp_path / "t",
        {},
        kallsyms=None,
        callgraphs=[{"file": "a.perf.data", "events": [INSERT]}],
        counters=[{"target": "job", "file": "c.csv", "missing": ["mem-loads"]}],
    )
    assert graphs(folder) == ([], [])
    with Trace(folder) as trace:
        assert trace.sql("SELECT * FROM counters").empty


def test_without_the_kernels_symbols_frames_are_unknown(tmp_path):
    made = stream().sample(1, [KERNEL, 0xFFFFFFFF81000110])
    folder = killed(
        tmp_path / "t",
        {"a.perf.data": made},
        kallsyms="",
        callgraphs=[{"file": "a.perf.data", "events": [INSERT]}],
    )
    assert graphs(folder)[0] == [(INSERT, "dd", 100, "[unknown]_[k]", 1)]


def test_a_perf_that_failed_is_a_gap(tmp_path):
    made = stream().sample(1, [])
    made.data = made.data[:-3]
    folder = killed(
        tmp_path / "t",
        {"callgraph-0.perf.data": made, "counters-0.csv": "7;;cycles;10;100.00;;\n"},
        callgraphs=[{"file": "callgraph-0.perf.data", "events": [INSERT]}],
        counters=[{"target": "job", "file": "counters-0.csv", "missing": []}],
        failures={"callgraph-0.perf.data": "killed", "counters-0.csv": "no memory"},
    )
    found, gaps = graphs(folder)
    assert found == []
    assert gaps == [
        ("callgraph", "perf failed: killed"),
        ("callgraph", "torn perf data"),
        ("counters", "perf failed: no memory"),
    ]
    with Trace(folder) as trace:
        assert trace.manifest["loss"] == {"events": 0, "windows": 4, "unknown": 4, "others": 0}
        assert trace.sql("SELECT target, value FROM counters").values.tolist() == [["job", 7]]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "", ".", "..", "a/b", "a\0b"])
def test_a_file_outside_of_the_trace_is_never_read(tmp_path, name):
    (tmp_path / "secret").write_text("7;;cycles;10;100.00;;\n")
    for perf in (
        {"callgraphs": [{"file": name, "events": [INSERT]}]},
        {"counters": [{"target": "job", "file": name, "missing": []}]},
    ):
        folder = killed(tmp_path / "-".join(perf), {}, **perf)
        with pytest.raises(BadTrace, match="invalid name"):
            Trace(folder)


@pytest.mark.parametrize("which", ["a.perf.data", "c.csv", "kallsyms"])
def test_links_in_place_of_files_are_refused(tmp_path, which):
    (tmp_path / "secret").write_text("7;;cycles;10;100.00;;\n")
    folder = killed(
        tmp_path / "t",
        {"a.perf.data": stream(), "c.csv": ""},
        callgraphs=[{"file": "a.perf.data", "events": [INSERT]}],
        counters=[{"target": "job", "file": "c.csv", "missing": []}],
    )
    (folder / "raw" / which).unlink()
    (folder / "raw" / which).symlink_to(tmp_path / "secret")
    with pytest.raises(BadTrace, match="cannot be read"):
        Trace(folder)


@pytest.mark.parametrize(
    "perf",
    [
        {"callgraphs": "x"},
        {"callgraphs": [{"file": 1, "events": []}]},
        {"callgraphs": [{"file": "a", "events": [], "formats": {"a:b": 1}}]},
        {"counters": [{"target": "job"}]},
        {"pids": ["x"]},
        {"failures": {"a": 1}},
    ],
)
def test_a_manifest_that_does_not_fit(tmp_path, perf):
    with pytest.raises(BadTrace, match=r"manifest.json is damaged: perf"):
        Trace(killed(tmp_path / "t", {}, **perf))


def daemon_and_two_containers(folder, strangers=()):
    """A trace of a daemon, of a container that began, and of one that was there before."""
    files = {"d.csv": "700;;page-faults;10;100.00;;\n70;;cs;10;100.00;;\n"}
    clock = "{};msec;task-clock;10;100.00;;\n"
    files |= {"a.csv": "101;;page-faults;10;100.00;;\n<not counted>;;cs;0;0.00;;\n"}
    files |= {"b.csv": "13;;page-faults;10;100.00;;\n3;;cs;10;100.00;;\n"}
    for name, ms in (("d", 170.5), ("a", 99.5), ("b", 10)):
        files[f"{name}.csv"] += clock.format(ms)
    counters = [{"target": name, "file": f"{name}.csv", "missing": []} for name in "dab"]
    counters[1]["arrived"] = True
    names = {"a": "a" * 64, "b": "b" * 64}
    targets = [{"name": "d", "role": "daemon", "kind": "daemon", "pid": 7, "command": []}]
    targets += [
        {"name": name, "role": "target", "kind": "container", "pid": 0, "container": identity}
        for name, identity in names.items()
    ]
    containers = [{"id": names["a"], "name": "a", "image": "", "pid": 0, "arrived": True}]
    containers += [{"id": names["b"], "name": "b", "image": "", "pid": 9}, *strangers]
    perf = {"version": "6.1", "pids": [51], "counters": counters}
    recorder = {"pid": 50, "boot_id": "another"}
    pages = {0: [Page(0)]}
    raw_trace(folder, pages, perf=perf, recorder=recorder, targets=targets, containers=containers)
    for name, text in files.items():
        (folder / "raw" / name).write_text(text)
    with Trace(folder) as trace:
        return trace.connection.execute(
            "SELECT event, value, state FROM counters WHERE target = 'd' ORDER BY 1"
        ).fetchall()


def test_a_daemon_does_not_count_for_the_containers_that_it_began(tmp_path):
    """perf counts what a daemon's processes make; `cs` of the container is not known."""
    assert daemon_and_two_containers(tmp_path / "t") == [
        ("cs", None, "not counted"),
        ("page-faults", 700 - 101, "counted"),
        ("task-clock", None, "not counted"),  # two kinds of clock
    ]


def test_a_daemons_counts_are_unknown_if_a_container_began_that_nobody_counted(tmp_path):
    stranger = {"id": "c" * 64, "name": "c", "image": "", "pid": 0, "arrived": True}
    assert daemon_and_two_containers(tmp_path / "t", [stranger]) == [
        ("cs", None, "not counted"),
        ("page-faults", None, "not counted"),
        ("task-clock", None, "not counted"),
    ]
