"""Exported tables of a window of time: what lies in it in part, and what did not end."""

import pandas as pd
import pytest

from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export


def call(ts, name, dur, tid=7):
    return {"ts": ts, "pid": 7, "tid": tid, "nr": 1, "name": name, "dur_ns": dur, "ret": dur}


def test_a_window_has_all_that_lies_in_it_in_part(tmp_path):
    common = {"dev": "254:0", "sector": 8, "nr_sector": 8, "rwbs": "R", "tid": 7}
    moments = {"bio_queue": 10, "issue": 20, "complete": 90}
    tables = {
        "block": [{**common, "event": event, "ts": ts} for event, ts in moments.items()],
        "off_cpu": [{"ts": 10, "dur_ns": 80, "tid": 7, "pid": 7}],
        "phases": [{"name": "step", "start": 10, "end": 90, "pid": 7, "tid": 7}],
    }
    names, found = ("requests", "off_cpu", "steps", "phases"), []
    with make_trace(tmp_path / "t", tables) as trace:
        for at in (5, 15, 50, 95):
            window = {"start_s": at * 1e-9, "end_s": at * 1e-9}
            said = export(trace, "csv", tmp_path / f"{at}", **window)
            found.append([said[name] for name in names])
    assert found == [[0] * 4, [1] * 4, [1] * 4, [0] * 4]


def test_a_call_that_did_not_end_lies_in_all_times_until_its_thread_ends(tmp_path):
    """The return of futex was lost. Thread 9 ends at 40; 10 ends at 33, then another has it."""
    calls = [
        call(10, "read", None), call(20, "futex", None, tid=8),
        call(30, "exit_group", None, tid=9), call(32, "exit", None, tid=10),
        call(60, "poll", 5, tid=8), call(80, "write", 5, tid=10),
    ]  # fmt: skip
    lives = [(7, 0, None), (8, 0, None), (9, 0, 40), (10, 0, 33), (10, 70, None)]
    tables = {
        "processes": [
            {"pid": 7, "tid": tid, "start_ns": since, "end_ns": until}
            for tid, since, until in lives
        ],
        "syscalls": calls,
        "off_cpu": [{"ts": 12, "dur_ns": None, "pid": 7, "tid": 7}],
    }
    found = {}
    with make_trace(tmp_path / "t", tables) as trace:
        for at in (5, 15, 20, 35, 50, 62, 90):
            window = {"start_s": at * 1e-9, "end_s": at * 1e-9}
            said = export(trace, "csv", tmp_path / f"{at}", **window)
            names = pd.read_csv(tmp_path / f"{at}/syscalls.csv")["name"].tolist()
            found[at] = names, said["off_cpu"]
    assert found == {
        5: ([], 0), 15: (["read"], 1), 20: (["read", "futex"], 1),
        35: (["read", "exit_group"], 1), 50: (["read"], 1), 62: (["read", "poll"], 1),
        90: (["read"], 1),
    }  # fmt: skip


def test_a_call_that_did_not_end_lies_in_all_later_times_if_no_thread_is_known(tmp_path):
    with make_trace(tmp_path / "t", {"syscalls": [call(10, "read", None)]}) as trace:
        found = [
            export(trace, "csv", tmp_path / f"{at}", start_s=at * 1e-9)["syscalls"]
            for at in (5, 900)
        ]
    assert found == [1, 1]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_phase_without_an_end_lies_in_all_times_until_its_thread_ends(tmp_path, format):
    """Thread 7 is killed at 40. A step lasts until its thread's next one, if it has no end."""

    def phase(name, tid, start, end=None, step=None):
        return {"name": name, "pid": tid, "tid": tid, "start": start, "end": end, "step": step}

    tables = {
        "processes": [
            {"pid": tid, "tid": tid, "start_ns": 0, "end_ns": until}
            for tid, until in ((7, 40), (8, None))
        ],
        "phases": [
            phase("train", 7, 5), phase("train", 8, 6), phase("step", 7, 10, 20, step=0),
            phase("step", 8, 12, step=0), phase("step", 7, 30, step=1),
            phase("step", 8, 52, step=1),
        ],
    }  # fmt: skip
    found = {}
    with make_trace(tmp_path / "t", tables) as trace:
        assert export(trace, format, tmp_path / "whole")["phases"] == 6
        for at in (4, 8, 15, 25, 35, 45, 60):
            window = {"start_s": at * 1e-9, "end_s": at * 1e-9}
            said = export(trace, format, tmp_path / f"{at}", **window)
            found[at] = said["phases"], said["steps"]
            read = {"csv": pd.read_csv, "parquet": pd.read_parquet}[format]
            for name in ("phases", "steps"):
                part, whole = (
                    read(tmp_path / one / f"{name}.{format}") for one in (f"{at}", "whole")
                )
                assert (list(part), len(part)) == (list(whole), said[name])
    assert found == {
        4: (0, 0), 8: (2, 0), 15: (4, 2), 25: (3, 1), 35: (4, 2), 45: (2, 1), 60: (3, 1),
    }  # fmt: skip
