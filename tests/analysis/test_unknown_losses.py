"""Traces without the table of losses: their manifest counts the gaps, or nobody knows of any."""

import pytest

from tests.support.compared import make_run
from tests.support.page_events import ONE, looped
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.findings.window import Scope, lossy, whole
from tracer.analysis.page.comparison import comparison_page
from tracer.analysis.page.trace import trace_page
from tracer.analysis.report.tables import all_tables
from tracer.store import manifest as manifests
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

LOST = {"events": 5, "windows": 2, "unknown": 0, "others": 0}
NOTHING = dict.fromkeys(LOST, 0)
WRITE = {
    "ts": 1000, "tid": 7, "pid": 7, "event": "bio_queue", "dev": "8:0", "sector": 8, "nr_sector": 8,
    "rwbs": "W",
}  # fmt: skip


def make(folder, loss, **tables):
    """Makes a trace that lacks the table of losses, with these numbers in its manifest."""
    make_trace(folder, {"processes": [], **tables}, loss=loss).close()
    (folder / "loss.parquet").unlink()
    return folder


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (LOST, "5 events lost in 2 gaps"),
        ({"events": 1, "windows": 1}, "1 event lost in 1 gap: numbers"),
        ({**LOST, "events": 0, "unknown": 2}, "An unknown number of events lost in 2 gaps"),
        ({}, "It is not known whether events were lost."),
        (NOTHING, "0 events lost."),
    ],
)
def test_a_report_tells_what_the_manifest_counts(tracer, tmp_path, loss, said):
    make(tmp_path / "t", loss)
    shown = tracer("report", "t").out
    assert said in shown
    assert ("The table of losses is missing" in shown) == bool(loss.get("windows"))
    assert ("0 events lost" in shown) == (loss == NOTHING)
    assert tracer("report", "t", "--json").json["loss"] == loss


def test_a_report_of_many_tells_of_how_many_it_knows(tracer, tmp_path):
    (tmp_path / "runs").mkdir()
    for name, loss in (("a", LOST), ("b", {}), ("c", NOTHING)):
        make(tmp_path / "runs" / f"{name}.trace", loss)
    shown = tracer("report", "runs").out
    assert "Events were lost in 1 of them" in shown
    assert "It is not known whether events were lost in 1 of them." in shown
    assert "0 events lost" not in shown
    lines = [line.split() for line in shown.splitlines() if "complete" in line]
    assert [line[-2:] for line in lines[:3]] == [[n, "complete"] for n in ("5", "-", "0")]


@pytest.mark.parametrize(
    ("loss", "value", "about"),
    [(LOST, "5", "in 2 gaps"), ({}, "-", "not known"), (NOTHING, "0", "events")],
)
def test_a_page_tells_what_the_manifest_counts(tracer, tmp_path, loss, value, about):
    with Trace(make(tmp_path / "t", loss)) as trace:
        html = trace_page(trace, all_tables(trace), [])
    tile = html.split(">Lost<")[1].split("</div>")[0]
    assert f">{value}<" in tile and about in tile
    assert ("The table of losses is missing" in html) == (loss == LOST)
    assert "shaded times" not in html
    said = "not known" if not loss else f"{loss['events']} events in {loss['windows']} gaps"
    assert f"lost        {said}" in tracer("info", "t").out


def test_one_gap_is_not_called_gaps(tracer, tmp_path):
    make(tmp_path / "t", {"events": 5, "windows": 1, "unknown": 0, "others": 1})
    told = tracer("info", tmp_path / "t").out
    assert "5 events in 1 gap; names, stacks or samples: 1 gap\n" in told


@pytest.mark.parametrize(("loss", "known"), [(LOST, False), ({}, False), (NOTHING, True)])
def test_numbers_of_events_are_sure_only_if_nothing_was_lost(tracer, tmp_path, loss, known):
    with Trace(make(tmp_path / "t", loss, block=[WRITE])) as trace:
        for scope in Scope:
            assert lossy(trace, whole(trace), (scope,)) is not known
        trace.empty_if_missing("loss")
        gaps = trace.rows('SELECT stream, "from", "to", count FROM loss ORDER BY stream')
        scopes = sorted(scope.value for scope in Scope)
        assert gaps == ([] if known else [(scope, None, None, None) for scope in scopes])
    query = "SELECT count(*) AS n FROM flushes, loss"
    assert tracer("query", "t", query, "--json").json == [{"n": 0 if known else len(scopes)}]


def of_runs(folder, loss):
    """Makes two runs with these numbers of losses."""
    return [make_run(folder / f"{name}.trace", 1, loss=loss) for name in "ab"]


def test_a_comparison_says_of_which_traces_nobody_knows_what_they_lost(tracer, tmp_path):
    paths = of_runs(tmp_path, {})
    found = compare(paths)
    notes = [note for note in found.notes if "events are missing" in note]
    assert notes == [
        f"it is not known whether events are missing in {name}: {path}"
        for name, path in zip("ab", paths, strict=True)
    ]
    assert set(found.rows["lossy"]) == {None}
    html = comparison_page(found)
    assert "it is not known whether events are missing" in html and "events lost" not in html
    told = tracer("compare", *paths, "--json").json
    assert {one["lost"] for group in told["groups"] for one in group["traces"]} == {"not known"}
    assert {row["lossy"] for row in told["rows"]} == {None}


def test_a_comparison_with_one_trace_that_lost_events_is_lossy(tmp_path):
    first, second = of_runs(tmp_path, {})
    manifest = manifests.read(second)
    manifests.write(second, {**manifest, "loss": LOST})
    assert set(compare([first, second]).rows["lossy"]) == {True}


def test_a_prediction_and_a_simulation_say_that_it_is_not_known(tracer, tmp_path):
    made = looped(pages=64, epochs=2)
    tables = {**made.tables, "block": [WRITE]}
    make_trace(tmp_path / "t", tables, targets=ONE, clock=made.clock, loss={}).close()
    verb = ("predict", "t", "--memory", "1M")
    assert "It is not known whether events were lost." in tracer(*verb).out
    assert tracer(*verb, "--json").json["lossy"] is None
    simulated = tracer("simulate", "t", "--all-writers", "--json").json
    assert "it is not known whether the recording has gaps" in simulated["assumptions"]


def test_a_table_of_events_without_rows_is_left_out(tracer, tmp_path):
    make(tmp_path / "t", NOTHING)
    assert "Events by role" not in tracer("report", "t").out
