"""Waits for a GPU: trace, query and expected table."""

import pytest

from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | comm   | ppid
    7   | 7   | target | job    | python | 1
"""
CALLS = "SELECT ts, dur_ns, call FROM gpu_waits ORDER BY ts, call"
NESTED = """
    ts  | pid | tid | event
    110 | 7   | 7   | cuMemcpyDtoH_v2
    110 | 7   | 7   | cuStreamSynchronize
    120 | 7   | 7   | cuStreamSynchronize_end
    120 | 7   | 7   | cuEventSynchronize
    120 | 7   | 7   | cuEventSynchronize_end
    130 | 7   | 7   | cuMemcpyDtoH_v2
    140 | 7   | 7   | cuMemcpyDtoH_v2_end
    150 | 7   | 7   | cuMemcpyDtoH_v2_end
    150 | 7   | 7   | cuStreamSynchronize
    150 | 7   | 7   | cuStreamSynchronize_end
"""
HANGS = """
    ts  | pid | tid | event
    110 | 7   | 7   | cuStreamSynchronize
    115 | 7   | 7   | cuStreamSynchronize_end
    120 | 7   | 7   | cuCtxSynchronize
"""


def test_a_call_within_another_one_is_part_of_it(tmp_path):
    check(
        tmp_path,
        {"processes": PROCESSES, "gpu_calls": NESTED},
        CALLS,
        """
        ts  | dur_ns | call
        110 | 40     | cuMemcpyDtoH_v2
        150 | 0      | cuStreamSynchronize
        """,
    )


def test_the_path_is_in_the_outermost_call(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": "start | end | pid | tid | name | step\n 100 | 200 | 7 | 7 | step | 0",
            "gpu_calls": NESTED,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | run_delay_ns
                125 | 20     | 7   | 7   | S     | 145     | 0
            """,
        },
        "SELECT ts, dur_ns, kind, detail FROM critical_path ORDER BY ts",
        """
        ts  | dur_ns | kind | detail
        100 | 10     | run  | -
        110 | 15     | gpu  | cuMemcpyDtoH_v2
        125 | 20     | gpu  | cuMemcpyDtoH_v2
        145 | 5      | gpu  | cuMemcpyDtoH_v2
        150 | 50     | run  | -
        """,
    )


@pytest.mark.parametrize(("lost", "kind"), [("", "gpu"), ("uprobes", "lock"), ("target", "gpu")])
def test_a_thread_that_sleeps_until_the_end_waits_for_the_gpu(tmp_path, lost, kind):
    """If events of the driver were lost, the call may have returned."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "gpu_calls": HANGS,
            "syscalls": "ts | tid | name | dur_ns\n 130 | 7 | futex | -",
            "off_cpu": "ts | dur_ns | pid | tid | state\n 130 | - | 7 | 7 | S",
            "loss": f"stream | from | to\n ftrace-{lost}-cpu0 | 122 | 125" if lost else "",
        },
        "SELECT ts, dur_ns, kind FROM waits",
        f"ts | dur_ns | kind\n 130 | - | {kind}",
    )


def test_a_wait_in_which_events_were_lost_hides_no_call(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "gpu_calls": """
                ts  | pid | tid | event
                110 | 7   | 7   | cuStreamSynchronize
                130 | 7   | 7   | cuStreamSynchronize
                140 | 7   | 7   | cuStreamSynchronize_end
                170 | 7   | 7   | cuStreamSynchronize_end
            """,
            "loss": "stream | from | to\n ftrace-uprobes-cpu1 | 115 | 125",
        },
        CALLS,
        """
        ts  | dur_ns | call
        110 | -      | cuStreamSynchronize
        130 | 10     | cuStreamSynchronize
        """,
    )


def test_a_return_belongs_to_the_thread_that_entered(tmp_path):
    """The number is another thread's of the process by then."""
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role   | target | comm   | ppid | start_ns | end_ns
                7   | 8   | target | job    | old    | 1    | -        | 120
                7   | 8   | target | job    | new    | 1    | 130      | -
            """,
            "gpu_calls": """
                ts  | pid | tid | event
                110 | 7   | 8   | cuStreamSynchronize
                140 | 7   | 8   | cuStreamSynchronize_end
                150 | 7   | 8   | cuStreamSynchronize
                160 | 7   | 8   | cuStreamSynchronize_end
            """,
        },
        "SELECT ts, dur_ns, comm FROM gpu_waits ORDER BY ts",
        """
        ts  | dur_ns | comm
        110 | -      | old
        150 | 10     | new
        """,
    )


@pytest.mark.parametrize(("unknown", "waited"), [(False, "15"), (True, "-")])
def test_a_step_waits_from_its_fetch_to_its_end_also_in_a_step_within_it(tmp_path, unknown, waited):
    """Nobody knows how long it waits if the return of one call was not recorded."""
    more = "190 | 7 | 7 | cuEventSynchronize\n 192 | 7 | 7 | cuMemcpyDtoH_v2_end" if unknown else ""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": """
                start | end | pid | tid | name  | step
                90    | 100 | 7   | 7   | fetch | -
                100   | 200 | 7   | 7   | step  | 0
                170   | 180 | 7   | 7   | step  | 1
            """,
            "gpu_calls": f"""
                ts  | pid | tid | event
                92  | 7   | 7   | cuStreamSynchronize
                95  | 7   | 7   | cuStreamSynchronize_end
                150 | 7   | 7   | cuMemcpyDtoH_v2
                160 | 7   | 7   | cuMemcpyDtoH_v2_end
                172 | 7   | 7   | cuStreamSynchronize
                174 | 7   | 7   | cuStreamSynchronize_end
                {more}
            """,
        },
        "SELECT step, start, total_ns, gpu_wait_ns FROM steps ORDER BY step",
        f"""
        step | start | total_ns | gpu_wait_ns
        0    | 90    | 110      | {waited}
        1    | 170   | 10       | 2
        """,
    )
