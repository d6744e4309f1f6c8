"""The findings about waits for a GPU, in small traces with a known answer."""

import pytest

from tests.support.findings import GAP, JOB, PROCESSES, TRAIN, S, call, phase
from tests.support.traces import make_trace
from tracer.analysis.report.step_times import STEP_TIMES, step_times

STEP = [
    *TRAIN,
    phase("step", 10, 20, step=0),
    phase("forward", 12, 16, step=0),
]


def gpu(ts, dur, name="cuStreamSynchronize"):
    """A wait for the GPU, in s."""
    row = {"pid": JOB, "tid": JOB}
    return [
        {**row, "ts": int(ts * S), "event": name},
        {**row, "ts": int((ts + dur) * S), "event": f"{name}_end"},
    ]


def test_a_phase_of_the_script_within_a_part_is_no_overhead(found, query_again):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [*STEP, phase("metrics", 13, 15, step=0)],
            "gpu_calls": gpu(13.5, 1) + gpu(18, 1.5),
        }
    )
    overhead = by_topic["overhead"]
    assert round(overhead.value, 6) == 60
    assert overhead.sentence.endswith("; in 25 % of this time, it waits for the GPU")
    assert round(by_topic["waits for the GPU"].value, 6) == 25
    query_again(overhead, by_topic["waits for the GPU"])


def test_a_wait_counts_in_each_step_around_it(found):
    """A step lies in another one, which waits after it, too."""
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [*STEP, phase("step", 16, 18, step=1)],
            "gpu_calls": gpu(16.5, 1) + gpu(18.5, 1),
        }
    )
    assert round(by_topic["waits for the GPU"].value, 6) == 25
    assert "(1.5 s each)" in by_topic["waits for the GPU"].sentence


def test_the_number_of_calls_apart_from_waits_is_given_again(found, query_again):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": STEP,
            "gpu_calls": gpu(13.5, 1),
            "syscalls": [call("ioctl", 13.6, 0.5), call("read", 15, 1)],
        }
    )
    calls = by_topic["calls"]
    assert round(calls.value, 6) == 1
    assert "(1 call), apart from waits for the GPU, 1.0 % in read" in calls.sentence
    query_again(calls)


@pytest.mark.parametrize("stream", ["ftrace-uprobes-cpu0", "ftrace-machine-cpu0", "files"])
def test_lost_events_of_the_driver_make_the_shares_incomplete(found, stream):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": STEP,
            "gpu_calls": gpu(13.5, 1) + gpu(18, 1),
            "loss": [{**GAP, "stream": stream, "from": 19 * S, "to": 19 * S + 9}],
        }
    )
    for topic in ("overhead", "waits for the GPU"):
        assert by_topic[topic].lossy == (stream == "ftrace-uprobes-cpu0"), topic


def test_the_share_in_the_table_of_steps_is_of_the_steps_whose_wait_is_known(tmp_path):
    """Each of ten steps of 10 s waits for 5 s; events of the driver are lost in the last five."""
    tables = {
        "processes": PROCESSES,
        "phases": [*TRAIN, *(phase("step", 10 * n, 10 * n + 10, step=n) for n in range(10))],
        "gpu_calls": [row for n in range(10) for row in gpu(10 * n + 2, 5)],
        "loss": [{**GAP, "stream": "ftrace-uprobes-cpu0", "from": 50 * S, "to": 100 * S}],
    }
    clock = {"name": "mono", "start_ns": 0, "end_ns": 200 * S}
    with make_trace(tmp_path / "t", tables, clock=clock) as trace:
        found = step_times(trace).set_index("part")
        both = STEP_TIMES.together([STEP_TIMES.parts(trace)] * 2)
        twice = STEP_TIMES.finish(both).set_index("part")
    for times, steps in ((found, 5), (twice, 10)):
        assert times.loc["wait for GPU", "steps"] == steps
        assert times.loc["wait for GPU", "share"] == pytest.approx(0.5)
        assert times.loc["end to end", "share"] == 1
    assert not [part for part in found.index if "known" in part]
