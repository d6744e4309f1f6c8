"""All findings: losses, enemies, nothing to tell; each query gives its value; in the report."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.support.findings import (
    CONTAINERS,
    GAP,
    JBD2,
    OF_CONTAINERS,
    PROCESSES,
    TRAIN,
    A,
    B,
    S,
    bio,
    call,
    chain,
    faults,
    merged,
    pause,
    phase,
    request,
    sample,
    start,
)
from tracer.analysis.cli.query import query as query_verb
from tracer.analysis.findings.catalogue import TOPICS, findings
from tracer.analysis.findings.finding import at_most, bound, file_name, name, percent, seconds
from tracer.probes.catalogue import TABLES

pytestmark = pytest.mark.slow

LENET = Path(__file__).parents[3] / "fixtures/lenet.trace"


EVIL = "<script>alert(1)</script>\x1b[2J\n\u202e\"';DROP TABLE x--"


def first_cell(folder, query, capsys):
    """Returns the first cell that `tracer query` prints."""
    capsys.readouterr()
    query_verb(str(folder), query, json=True, csv=False)
    return next(iter(json.loads(capsys.readouterr().out)[0].values()))


@pytest.mark.parametrize("cause", ["never read", "CPU came online during the recording"])
def test_losses_that_no_larger_buffer_prevents_ask_for_none(found, query_again, cause):
    end = {"stream": "ftrace-target", "cpu": 0, "count": 9, "from": 190 * S, "to": None}
    lost = found({"loss": [{**end, "cause": cause}]})["losses"]
    assert "(see the causes: tracer info)" in lost.sentence
    query_again(lost)
    both = [{**end, "cause": cause}, {**end, "cause": "buffer overrun"}]
    assert "(use a larger buffer, -b" in found({"loss": both})["losses"].sentence


def test_losses_are_a_finding_and_mark_what_they_touch(found):
    gaps = [{**GAP, "from": 20 * S, "to": 60 * S}, {**GAP, "from": 50 * S, "to": 70 * S}]
    tables = {
        "processes": PROCESSES,
        "phases": TRAIN,
        "syscalls": [call("fsync", 10, 10)],
        "dirty": [pause(5, 2)],
        "loss": gaps,
    }
    by_topic = found(tables)
    losses = by_topic["losses"]
    assert losses.value == 25 and losses.sentence.startswith("18 events were lost in 2 gaps")
    assert by_topic["stalls"].lossy
    assert "events were lost in this time" in by_topic["stalls"].sentence
    assert not by_topic["sync"].lossy  # of the targets' events none is missing

    after = {**tables, "loss": [{**GAP, "from": 150 * S, "to": 160 * S, "count": None}]}
    by_topic = found(after)
    assert not by_topic["stalls"].lossy
    assert by_topic["losses"].sentence.startswith("an unknown number of events were lost")
    assert by_topic["losses"].certainty == "inferred"


@pytest.mark.parametrize("stream", ["files", "symbols", "kernel_stacks"])
def test_missing_names_are_no_lost_events(found, stream):
    gap = {"stream": stream, "cpu": -1, "from": 0, "to": 200 * S, "cause": "9 without a name"}
    tables = {"processes": PROCESSES, "phases": TRAIN, "syscalls": [call("fsync", 10, 10)]}
    by_topic = found({**tables, "loss": [gap]})
    assert "losses" not in by_topic
    assert not by_topic["sync"].lossy and not by_topic["write waits"].lossy


def test_names_of_an_enemy_are_short_and_printable(found):
    long = "/" + "x" * 500
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [*TRAIN, phase(EVIL, 0, 1)],
            "page_faults": [*faults(60, file=EVIL, ip_file=long, symbol=EVIL)],
            "syscalls": [{**call("read", 1, 50), "name": EVIL}],
            "writeback": [start(n, EVIL) for n in range(30)],
        }
    )
    assert by_topic.keys() >= {"major faults", "page faults", "calls", "write-back reasons"}
    for one in by_topic.values():
        assert len(one.sentence) < 600 and "\x1b" not in one.sentence and "\n" not in one.sentence
        assert EVIL not in one.query


def test_an_empty_trace_has_only_what_can_be_said_of_nothing(found):
    assert found({name: [] for name in TABLES}).keys() <= {"write waits"}
    assert found({}) == {}


@pytest.mark.parametrize("end_ns", [None, 0])
def test_a_recording_without_a_length_has_no_findings(found, end_ns):
    tables = {"processes": PROCESSES, "syscalls": [call("fsync", 1, 1)], "dirty": [pause(1, 1)]}
    assert found(tables, clock={"name": "mono", "start_ns": 0, "end_ns": end_ns}) == {}


def test_numbers_that_cannot_be_do_not_break_it(found):
    most = 1 << 62
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [phase("train", 0, None), phase("train", 9, 3), phase("step", 8, 2)],
            "syscalls": [{**call("fsync", 1, 0), "dur_ns": most}] * 3,
            "dirty": [{**pause(1, 0), "pause_ns": most}] * 3,
            "samples": [
                sample(t, series, value)
                for series in ("pressure_cpu_some_time", "cpu_time", "disk_use", "pswpin")
                for t, value in ((0, float("nan")), (5, float("inf")), (3, 1.0), (3, -1.0))
            ],
            "block": [
                {**bio(1, 0, 1), "sector": (1 << 63) + 5, "nr_sector": 8},
                *request(9, -5, -1, 3),
            ],
        }
    )
    assert by_topic["sync"].value == 100 and by_topic["stalls"].weight == 1


@pytest.fixture(scope="module")
def of_lenet():
    from tracer.store.trace import Trace

    with Trace(LENET) as trace:
        return findings(trace)


def test_each_query_gives_its_finding_s_value_by_the_verb(of_lenet, capsys):
    assert len(of_lenet) >= 8
    for one in of_lenet:
        assert first_cell(LENET, one.query, capsys) == pytest.approx(one.value), one.topic


def test_queries_of_hand_made_traces_give_their_values_too(found, capsys):
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]], "phases": TRAIN, "loss": [GAP]},
        {"syscalls": [call("fsync", 10, 10, A)], "dirty": [pause(5, 2, A)]},
        {"samples": [sample(t, "cpu_time", t) for t in (0, 100)]},
        chain(A, A, 100, 12, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),
    )
    by_topic = found(tables, targets=CONTAINERS, own_cost={"capture_cpu_s": 4.0})
    assert by_topic.keys() >= {"tenants", "writers", "stalls", "sync", "losses", "own cost"}
    for one in by_topic.values():
        assert first_cell(found.folders[0], one.query, capsys) == pytest.approx(one.value), one


def test_findings_come_first_in_the_report(tracer, of_lenet):
    told = tracer("report", LENET, "--json").json
    assert told["findings"] == [
        {**dataclasses.asdict(one), "value": pytest.approx(one.value)} for one in of_lenet
    ]
    assert len(tracer("report", LENET, "--json", "--findings", 2).json["findings"]) == 2
    text = tracer("report", LENET).out
    assert text.index("Findings") < text.index("System calls of the targets")
    assert max(map(len, text.splitlines())) <= 80
    assert "Findings" not in tracer("report", LENET, "--findings", 0).out


def test_the_report_tells_how_many_findings_it_leaves_out(tracer, found):
    """Else its reader takes those that are shown for all of them."""
    steps = [
        phase(name, at, at + length, epoch=at // 50, step=at // 10)
        for at in range(0, 100, 10)
        for name, length in (("step", 10), ("fetch", 6 if at < 50 else 2), ("forward", 3))
    ]
    tables = merged(
        {"processes": PROCESSES, "phases": [*TRAIN, *steps], "loss": [GAP]},
        {"syscalls": [call("fsync", 10, 10)], "dirty": [pause(5, 2)]},
        {
            "samples": [
                sample(t, f"pressure_{of}_some_time", t)
                for t in (0, 100)
                for of in ("cpu", "memory", "io")
            ]
        },
        {"samples": [sample(t, "cpu_time", t) for t in (0, 100)], "page_faults": faults(60)},
        chain(JBD2, A, 200, 14, 1000, 63),
    )
    many = len(found(tables, own_cost={"capture_cpu_s": 4.0}))
    assert many > 10
    (folder,) = found.folders
    said = f"{many - 10} more with --findings {many}. --json has the SQL query of each number."
    assert said in " ".join(tracer("report", folder).out.split())
    every = tracer("report", folder, "--findings", many).out
    assert f"\n{many}. " in every and "more with --findings" not in every
    together = " ".join(tracer("report", folder, folder).out.split())
    assert f"{2 * many - 10} more with --findings {2 * many}." in together


def test_a_topic_is_left_out_where_its_tables_are_not_there():
    for topic in TOPICS:
        assert set(topic.needs) <= {*TABLES, "loss"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (0.04, "less than 0.1 %"),
        (0.4, "0.4 %"),
        (71.4, "71 %"),
        (99.9, "more than 99 %"),
        (100, "100 %"),
    ],
)
def test_percentages_are_short(value, text):
    assert percent(value) == text


def test_an_upper_bound_of_almost_all_is_all():
    assert (at_most(99.7), bound(99.7)) == ("at most 100 %", "100 %")
    assert (at_most(99.4), at_most(0.04), at_most(0)) == (
        "at most 99 %", "less than 0.1 %", "at most 0 %",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (2, "2 s"),
        (0.0314, "31.4 ms"),
        (5e-6, "5 us"),
        (5e-8, "50 ns"),
        (3e4, "30,000 s"),
        (0.9997, "1 s"),
        (999.7, "1,000 s"),
        (999.7e-6, "1 ms"),
        (999.7e-9, "1 us"),
        (0.9984, "998 ms"),
    ],
)
def test_times_are_in_a_unit_that_fits(value, text):
    assert seconds(value) == text


def test_a_path_is_its_file_and_a_name_keeps_its_end():
    assert file_name("/usr/lib/libtorch_cpu.so") == "libtorch_cpu.so"
    assert file_name("[anon]") == "[anon]"
    assert file_name(None) == "an unknown file"
    assert name("a" * 100 + "end").endswith("end") and len(name("a" * 1000)) < 90
    assert name("a\x1b\n") == r"a\x1b\x0a"
