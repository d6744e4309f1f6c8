"""The requests that disks served during waits, if the end of a request was not recorded."""

import pytest

from tests.support.findings import GAP, PROCESSES, bio, call, off, phase
from tests.support.findings import JOB as TRAINING
from tests.support.traces import make_trace
from tracer.analysis.explain.explanation import explain

S = 10**9
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": TRAINING}]
OTHER = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres"}


def step(number, begin):
    """The phases and events of a step of 10 s, which waits 7 s for a read of its own, in s."""
    read = bio(begin + 1.1, 9000 + number, 1, TRAINING, "R") | {"comm": "python"}
    moments = (("bio_queue", 1.1), ("issue", 1.5), ("complete", 9))
    return {
        "phases": [phase("step", begin, begin + 10, step=number)],
        "syscalls": [call("read", begin + 1, 8.1)],
        "off_cpu": [off(begin + 2, 7, state="D", waker=0)],
        "block": [read | {"event": name, "ts": int((begin + at) * S)} for name, at in moments],
    }


def in_waits(folder, *gaps):
    """Returns the programs whose requests were served during each wait of two steps."""
    tables = {"processes": [*PROCESSES, OTHER], "loss": [GAP | gap for gap in gaps]}
    for part in (step(0, 100), step(1, 120)):
        for name, rows in part.items():
            tables.setdefault(name, []).extend(rows)
    write = bio(101.5, 800, 256, 60) | {"comm": "postgres"}
    tables["block"] += [write, write | {"event": "issue", "ts": int(101.6 * S)}]
    tables["block"].sort(key=lambda row: row["ts"])
    clock = {"name": "mono", "start_ns": 0, "end_ns": 200 * S}
    with make_trace(folder, tables, targets=TARGETS, clock=clock) as trace:
        slowest = explain(trace, slowest=2).slowest
    waits = [one for step in slowest for one in step.segments if one["kind"] == "disk"]
    waits.sort(key=lambda wait: wait["ts"])
    return [{one["comm"] for one in wait["meanwhile"]} for wait in waits]


BOTH = {"python", "postgres"}


@pytest.mark.parametrize(
    ("gaps", "found"),
    [
        ([], [BOTH, BOTH]),
        ([{"from": 90 * S, "to": 95 * S}], [BOTH, BOTH]),
        ([{"from": 112 * S, "to": 113 * S}], [BOTH, {"python"}]),
        ([{"from": 112 * S, "to": None}], [BOTH, BOTH]),
        ([{"from": 112 * S, "to": 113 * S, "stream": "ftrace-target"}], [BOTH, BOTH]),
    ],
)
def test_a_request_without_an_end_lasts_until_the_next_loss_of_its_stream(tmp_path, gaps, found):
    assert in_waits(tmp_path / "t", *gaps) == found
