"""Faults of a container's start, of its stages, of the daemon, and of the docker command."""

from tests.support.traces import make_trace
from tracer.analysis.studies.measures import of_trace

_TARGETS = [
    {"name": "one", "role": "target", "kind": "container", "pid": 7},
    {"name": "two", "role": "target", "kind": "container", "pid": 8},
    {"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": 9},
    {"name": "docker CLI", "role": "daemon", "kind": "pid", "pid": 11},
]


def measured(folder, faults, phases=()):
    """Returns the measures of faults, given as (ts, pid)."""
    processes = [
        {"pid": t["pid"], "tid": t["pid"], "role": t["role"], "target": t["name"]} for t in _TARGETS
    ]
    tables = {
        "processes": processes,
        "page_faults": [
            {"ts": ts, "pid": pid, "tid": pid, "kind": "minor", "user": True} for ts, pid in faults
        ],
        "phases": [
            {"pid": pid, "tid": pid, "name": name, "start": start, "end": end}
            for pid, name, start, end in phases
        ],
    }
    with make_trace(folder, tables, targets=_TARGETS) as trace:
        names = ("faults", "stage_faults", "daemon_fault_share")
        found = of_trace(trace, only=names)
        return [found[name] for name in names]


def test_only_faults_within_stages_are_the_same_work(tmp_path):
    """The daemon has a fault at the time of a container's stage; `step` is no stage."""
    faults = [
        (1, 7),
        (15, 7),
        (16, 7),
        (35, 7),
        (5, 8),
        (15, 8),
        (25, 8),
        (15, 9),
        (15, 11),
        (2, 11),
    ]
    phases = [(7, "train", 10, 20), (7, "step", 30, 40), (8, "inference", 20, 30)]
    assert measured(tmp_path / "t", faults, phases) == [7 / 2, 3 / 2, 1 / 7]


def test_without_phases_no_fault_lies_in_a_stage(tmp_path):
    assert measured(tmp_path / "t", [(1, 7), (2, 8), (3, 9)]) == [1, 0, 1 / 2]
