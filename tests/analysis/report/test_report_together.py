"""One report of many traces: what adds up is added up, what does not stands side by side."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.studies import make_study
from tests.support.traces import make_trace
from tracer.analysis.report.gathered import Gathered, gather
from tracer.analysis.report.tables import MERGED, TABLES, all_tables, loss
from tracer.analysis.report.together import SAME, Together, beside, together
from tracer.analysis.scale.mapping import results
from tracer.analysis.scale.sources import Source, find_traces
from tracer.probes.errors import BadTrace
from tracer.store.packing import pack
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

FIXTURE = ROOT / "fixtures" / "lenet.trace"


def call(ts: int, name: str, took: int) -> dict[str, object]:
    return {"ts": ts, "pid": 1, "tid": 1, "nr": 0, "name": name, "dur_ns": took, "ret": 1}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """Four runs of a study, a pack, a real recording, one with losses and one that is empty."""
    folder = tmp_path_factory.mktemp("many")
    make_study(folder / "small.study", places=("host", "4"))
    pack(folder / "small.study/runs/host-0/run.trace", folder / "one.tar.zst")
    make_trace(folder / "empty.trace", {"syscalls": []}).close()
    gap = {
        "stream": "ftrace-target-cpu0",
        "cpu": 0,
        "from": 5,
        "to": 9,
        "count": 23,
        "cause": "full",
    }
    make_trace(
        folder / "lossy.trace", {"syscalls": [call(1, "read", 5)], "loss": [gap, gap]}
    ).close()
    return find_traces([str(folder), str(FIXTURE)])


def report(traces: list[Source], scheduler: str | None = None) -> Together:
    return added_up(traces, results(partial(gather, by=None), traces, scheduler))


def added_up(traces: list[Source], each: Iterable[Gathered]) -> Together:
    return together(zip([one.name for one in traces], each, strict=True))


@pytest.fixture(scope="module")
def each(traces: list[Source]) -> list[Gathered]:
    """The data of each trace."""
    return list(results(partial(gather, by=None), traces))


@pytest.fixture(scope="module")
def here(traces: list[Source], each: list[Gathered]) -> Together:
    return added_up(traces, each)


def test_there_are_traces_of_every_kind(traces: list[Source], here: Together) -> None:
    assert len(traces) == 8
    assert [one.name for one in traces][:2] == ["one.tar.zst", "empty.trace"]
    assert set(here.tables) >= {"syscalls", "block_latency", "phases", "step_times", "loss"}


def test_workers_give_the_tables_that_this_process_gives(
    traces: list[Source], here: Together, workers: str
) -> None:
    there = report(traces, workers)
    assert list(there.tables) == list(here.tables)
    for name, table in here.tables.items():
        pd.testing.assert_frame_equal(there.tables[name], table, check_exact=True)
    assert there.findings == here.findings
    assert there.notes == here.notes
    assert there.of == here.of


def test_tables_are_those_that_one_makes_of_the_parts_by_hand(
    traces: list[Source], here: Together
) -> None:
    merged = [name for name in MERGED if name in here.tables]
    assert len(merged) >= 8
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in merged}
    for source in traces:
        path = Path(source.location)
        if path.suffix == ".zst":  # it is the pack of this one
            path = path.parent / "small.study/runs/host-0/run.trace"
        with Trace(path) as trace:
            for name in merged:
                if all(need in trace.tables for need in TABLES[name].needs):
                    parts[name].append(MERGED[name].parts(trace))
    for name in merged:
        by_hand = MERGED[name].finish(MERGED[name].together(parts[name]))
        pd.testing.assert_frame_equal(here.tables[name], by_hand, check_exact=True)


def test_counts_of_all_are_the_sums_of_each(each: list[Gathered], here: Together) -> None:
    tables_of_each = [one.every_table() for one in each]
    for name, column in (("syscalls", "calls"), ("block_latency", "requests"), ("phases", "count")):
        alone = sum(int(tables[name][column].sum()) for tables in tables_of_each if name in tables)
        assert int(here.tables[name][column].sum()) == alone > 0


def test_a_trace_alone_gives_the_tables_that_it_always_gave(each: list[Gathered]) -> None:
    found = each[-1].every_table()
    with Trace(FIXTURE) as trace:
        alone = all_tables(trace)
    assert list(found) == list(alone)
    for name, table in alone.items():
        pd.testing.assert_frame_equal(found[name], table, check_exact=True)


def test_tables_that_do_not_add_up_have_the_trace_in_the_first_column(
    traces: list[Source], here: Together
) -> None:
    table = here.tables["loss"]
    assert table.columns[0] == "trace"
    assert table["trace"].tolist() == ["lossy.trace", "lossy.trace"]
    (lossy,) = [one for one in traces if one.name == "lossy.trace"]
    with Trace(Path(lossy.location)) as trace:
        alone = loss(trace)
    pd.testing.assert_frame_equal(table.drop(columns="trace"), alone, check_dtype=False)
    assert set(here.tables["counters"]["trace"]) == {
        one.name for one in traces if "small.study" in one.name or one.name == "one.tar.zst"
    }


def test_a_table_that_not_all_have_says_of_which_it_is(here: Together) -> None:
    assert here.of["syscalls"] == ["empty.trace", "lossy.trace", "lenet.trace"]
    said = "the table syscalls covers only empty.trace, lossy.trace, lenet.trace"
    assert said in here.notes
    assert "loss" not in here.of
    assert SAME in here.notes


def test_a_recording_that_is_there_twice_is_said_to_count_twice(each: list[Gathered]) -> None:
    one = each[-1]
    found = together([("a", one), ("b", one)])
    assert "a, b are the same recording, which is counted 2 times" in found.notes
    assert not any("the same recording" in note for note in together([("a", one)]).notes)


def test_a_note_that_every_trace_has_is_said_once() -> None:
    def noted(*notes: str) -> Gathered:
        return Gathered({"loss": {}}, {}, {}, list(notes), [])

    found = together([("a", noted("no power", "a split")), ("b", noted("no power"))])
    assert found.notes == ["no power", "a: a split", SAME]


def test_findings_of_all_come_in_the_order_of_their_weight(here: Together) -> None:
    weights = [found.weight for _, found in here.findings]
    assert weights == sorted(weights, reverse=True)
    assert {name for name, _ in here.findings} > {"lenet.trace"}


CALLS = st.lists(
    st.tuples(st.sampled_from(["read", "write"]), st.integers(0, 1 << 40)), min_size=1, max_size=4
)


@settings(deadline=None, max_examples=50)
@given(st.lists(CALLS, min_size=1, max_size=40))
def test_however_many_traces_are_added_up_the_sums_are_those_of_all(
    many: list[list[tuple[str, int]]],
) -> None:
    """Parts are added up now and then, so that they are not all held: that changes nothing."""
    parts = [
        pd.DataFrame(
            {
                "name": pd.Series([name for name, _ in calls], dtype=object),
                "bucket": range(len(calls)),
                "n": [1] * len(calls),
                "sum_ns": [float(took) for _, took in calls],
                "min_ns": [took for _, took in calls],
                "max_ns": [took for _, took in calls],
                "errors": [0] * len(calls),
            }
        )
        for calls in many
    ]
    named = [
        (str(number), Gathered({"notes": []}, {"syscalls": part}, {}, [], []))
        for number, part in enumerate(parts)
    ]
    table = together(named).tables["syscalls"].set_index("name")
    for name in table.index:
        took = [ns for calls in many for one, ns in calls if one == name]
        assert table.loc[name, "calls"] == len(took)
        assert table.loc[name, "total_s"] == sum(took) / 1e9
        assert table.loc[name, "max_us"] == max(took) / 1e3


def test_frames_with_other_columns_stand_side_by_side() -> None:
    found = beside([("a", pd.DataFrame({"x": [1]})), ("b", pd.DataFrame({"x": [2], "y": ["z"]}))])
    assert found.columns.tolist() == ["trace", "x", "y"]
    assert found["trace"].tolist() == ["a", "b"]
    assert pd.isna(found["y"][0]) and found["y"][1] == "z"
    nothing = beside([("a", pd.DataFrame({"x": []})), ("b", pd.DataFrame({"x": []}))])
    assert (nothing.columns.tolist(), len(nothing)) == (["trace", "x"], 0)


def test_one_damaged_trace_of_many_is_named(tmp_path: Path, workers: str) -> None:
    for name in ("a", "b", "c"):
        make_trace(tmp_path / f"{name}.trace", {"syscalls": [call(1, "read", 5)]}).close()
    pack(tmp_path / "b.trace", tmp_path / "b.tar.zst")
    packed = (tmp_path / "b.tar.zst").read_bytes()
    (tmp_path / "b.tar.zst").write_bytes(packed[: len(packed) // 2])
    for scheduler in (None, workers):
        with pytest.raises(BadTrace, match=r"b\.tar\.zst"):
            report(find_traces([str(tmp_path)]), scheduler)
