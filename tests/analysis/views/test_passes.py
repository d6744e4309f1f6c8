"""Ends of the flusher's passes: null, and not the end of another pass, if events were lost."""

import json

import pytest

from tests.oracles.drawing import rows_of_view
from tests.support import perfetto
from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export
from tracer.analysis.views.writing.passes import PASSES


def work(ts, event, reason="periodic", bdi="8:0", cgroup=1):
    row = {"ts": ts, "tid": 9, "pid": 9, "event": event, "reason": reason, "bdi": bdi}
    return {**row, "cgroup_ino": cgroup, "nr_pages": 5}


def lost(since, until, stream="machine.cpu0"):
    return {"stream": stream, "cpu": 0, "from": since, "to": until, "cause": "buffer overrun"}


WHOLE = [work(10, "start"), work(20, "written")]
TORN = [work(1000, "start"), work(900_000_000, "written", "background")]
"""The end of the first pass and the start of the second are lost."""
LOSS = [lost(2000, 899_000_000)]


def ends(rows, losses=()):
    return [row["end"] for row in rows_of_view(PASSES, {"writeback": rows, "loss": list(losses)})]


@pytest.mark.parametrize(
    "losses, end",
    [
        ([], 20),
        ([lost(1, 9)], 20),
        ([lost(21, 30)], 20),
        ([lost(12, 13)], None),
        ([lost(1, 12)], None),
        ([lost(15, None)], None),
        ([lost(None, 15)], None),
        ([lost(1, 15), lost(3, 4)], None),
        ([lost(12, 13, "target.cpu0")], 20),
    ],
)
def test_the_end_of_a_pass_is_not_known_if_events_were_lost_before_it(losses, end):
    assert ends(WHOLE, losses) == [end]


@pytest.mark.parametrize("other", [{"reason": "sync"}, {"bdi": "7:0"}, {"cgroup": 2}])
def test_the_end_of_another_work_is_not_that_of_a_pass(other):
    assert ends([work(10, "start"), work(20, "written", **other)]) == [None]
    assert ends([work(10, "start", **other), work(20, "written", **other)]) == [20]


def test_a_work_without_a_reason_has_an_end():
    assert ends([work(10, "start", None, None, None), work(20, "written", None, None, None)]) == [
        20
    ]


@pytest.mark.parametrize("queued, losses, wakes", [
    (15, [], 1), (15, [lost(6, 8)], 1), (5, [], 1), (5, [lost(6, 8)], 2), (5, [lost(1, 5)], 2),
])  # fmt: skip
def test_a_wake_does_not_go_on_for_work_that_lost_events_may_have_executed(queued, losses, wakes):
    """It executes a work at 60 that was queued at 15 or 5; the one at 5 may be another one."""
    rows = [work(10, "start"), work(20, "written"), work(40, "pages_written")]
    rows += [work(50, "queue"), work(60, "exec"), work(70, "start"), work(queued, "queue")]
    rows.sort(key=lambda row: row["ts"])
    found = rows_of_view(PASSES, {"writeback": rows, "loss": losses})
    assert [row["wake"] for row in found] == [1, wakes]


@pytest.mark.parametrize("losses", [[], LOSS])
def test_no_slice_of_an_export_lies_across_lost_passes(tmp_path, losses):
    tables = {"writeback": WHOLE + TORN, "loss": losses}
    with make_trace(tmp_path / "t", tables) as trace:
        export(trace, "perfetto", tmp_path / "p")
        export(trace, "chrome", tmp_path / "c")
    found = perfetto.read(tmp_path / "p")
    tracks = found.named("write-back: periodic")
    assert [(s.start, s.end) for s in found.on(*tracks)] == [(10, 20)]
    (cut,) = found.instants
    assert (cut.name, cut.start, cut.notes["tid"]) == ("periodic", 1000, 9)
    assert cut.track in tracks
    drawn = [e for e in json.loads((tmp_path / "c").read_text())["traceEvents"]
             if e["name"] == "periodic"]  # fmt: skip
    assert [(e["ph"], e["ts"], e.get("dur")) for e in drawn] == [
        ("X", 0.01, 0.01),
        ("i", 1.0, None),
    ]
