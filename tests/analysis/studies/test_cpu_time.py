"""The CPU time of jobs comes from perf, that of the daemon from samples."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.studies.cpu_time import cpu_measures, daemon_cpu_s
from tracer.analysis.studies.extracts import MAKERS

S = 10**9
TARGETS = [
    {"name": "a", "role": "target", "kind": "container", "pid": 7},
    {"name": "b", "role": "target", "kind": "container", "pid": 8},
    {"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": 9},
    {"name": "docker CLI", "role": "daemon", "kind": "pid", "pid": 10},
]


def sample(target, s, value, name="cpu_time"):
    return {"ts": int(s * S), "target": target, "name": name, "value": value, "unit": "s"}


def clock(target, s):
    value = None if s is None else int(s * S)
    return {
        "event": "task-clock", "target": target, "value": value, "unit": "ns", "state": "counted",
    }  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    """Makes a trace of two jobs of 30 s and 50 s, beside the daemon and the command."""

    def made(samples, targets=TARGETS):
        clocks = [clock("a", 30), clock("b", 50), clock("dockerd", None), clock("docker CLI", 7)]
        return make_trace(tmp_path / "t", {"counters": clocks, "samples": samples}, targets=targets)

    return made


def test_the_daemons_time_is_what_it_used_during_the_recording(trace):
    samples = [sample("dockerd", 1, 23.5), sample("dockerd", 9, 23.9), sample("a", 9, 29.0)]
    samples += [sample(None, 1, 100.0), sample(None, 9, 160.0), sample("docker CLI", 2, 5.0)]
    samples += [sample("dockerd", 5, 80.0, "cpu_use")]
    with trace(samples) as found:
        assert daemon_cpu_s(found) == pytest.approx(0.4)
        measures = cpu_measures(found)
        assert measures["cpu_s"] == 40
        assert measures["daemon_cpu_share"] == pytest.approx(0.4 / 80)
        table = MAKERS["counters"](found, None).set_index(["event", "role"])["value"]
        assert table["task-clock", "daemon"] == pytest.approx(0.4 * S)
        assert table["task-clock", "job"] == 40 * S


def test_the_daemons_time_begins_at_0_again_if_it_was_started_again(trace):
    samples = [
        sample("dockerd", s, value) for s, value in ((1, 23.5), (2, 23.9), (3, 0.1), (4, 0.3))
    ]
    with trace(samples) as found:
        assert daemon_cpu_s(found) == pytest.approx(0.4 + 0.2)


@pytest.mark.parametrize(
    "samples", [[], [sample("dockerd", 1, 23.5)], [sample("a", 1, 1.0), sample("a", 2, 2.0)]]
)
def test_it_is_not_known_without_two_samples(trace, samples):
    with trace(samples) as found:
        assert daemon_cpu_s(found) is None
        assert cpu_measures(found) == {"cpu_s": 40, "daemon_cpu_share": None}
        table = MAKERS["counters"](found, None).set_index(["event", "role"])["value"]
        assert table.isna()["task-clock", "daemon"]


def test_a_trace_without_a_daemon_has_no_share(trace):
    with trace([sample("a", 1, 1.0), sample("a", 2, 2.0)], targets=TARGETS[:2]) as found:
        assert cpu_measures(found) == {"cpu_s": 40, "daemon_cpu_share": None}
