"""The critical path: trace, query and expected table."""

import pytest

from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | comm     | ppid
    7   | 7   | target | job    | python   | 1
    8   | 8   | child  | job    | worker   | 7
    30  | 30  | other  | -      | postgres | 1
"""
PHASES = """
    start | end  | pid | tid | name    | epoch | step
    100   | 200  | 7   | 7   | step    | 0     | 0
    100   | 150  | 7   | 7   | fetch   | 0     | 0
    150   | 180  | 7   | 7   | forward | 0     | 0
    200   | 300  | 7   | 7   | step    | 0     | 1
    100   | 140  | 8   | 8   | fetch   | 0     | 0
"""
CALLS = """
    ts  | tid | name            | dur_ns | ret
    101 | 7   | read            | 49     | 1
    90  | 8   | clock_nanosleep | 40     | 0
"""
QUERY = """SELECT step, phase, ts, dur_ns, tid, kind, call, by_comm, certainty FROM critical_path
    ORDER BY step, ts"""
HEADER = "step | phase | ts | dur_ns | tid | kind | call | by_comm | certainty"


def test_a_fetch_goes_on_in_the_worker(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": PHASES,
            "syscalls": CALLS,
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            110 | 35     | 7   | S     | 140     | 8         | false     | 5            | 30
            95  | 35     | 8   | S     | 125     | 0         | true      | 5            | 0
            160 | 5      | 7   | R+    | -       | -         | -         | 5            | 30
            290 | -      | 7   | S     | -       | -         | -         | -            | -
            """,
        },
        QUERY,
        f"""
        {HEADER}
        0 | fetch   | 100 | 10 | 7 | run   | -               | -        | exact
        0 | fetch   | 110 | 15 | 8 | timer | clock_nanosleep | -        | exact
        0 | fetch   | 125 | 5  | 8 | cpu   | clock_nanosleep | -        | exact
        0 | fetch   | 130 | 10 | 8 | run   | -               | -        | exact
        0 | fetch   | 140 | 5  | 7 | cpu   | read            | postgres | inferred
        0 | fetch   | 145 | 5  | 7 | run   | -               | -        | exact
        0 | forward | 150 | 10 | 7 | run   | -               | -        | exact
        0 | forward | 160 | 5  | 7 | cpu   | -               | postgres | inferred
        0 | forward | 165 | 15 | 7 | run   | -               | -        | exact
        0 | step    | 180 | 20 | 7 | run   | -               | -        | exact
        1 | step    | 200 | 90 | 7 | run   | -               | -        | exact
        1 | step    | 290 | 10 | 7 | other | -               | -        | unknown
        """,
    )


def test_the_path_stays_in_a_wait_for_a_thread_of_no_target(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": PHASES,
            "syscalls": CALLS,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 30     | 7   | 7   | S     | 140     | 30        | false     | 0
            """,
        },
        f"SELECT * FROM ({QUERY}) WHERE kind != 'run'",
        f"""
        {HEADER}
        0 | fetch | 110 | 30 | 7 | ipc | read | postgres | exact
        """,
    )


def test_the_path_goes_on_in_any_process_of_a_recording_of_the_whole_machine(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES.replace("| job ", "| -   "),
            "phases": PHASES,
            "syscalls": CALLS,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 30     | 7   | 7   | S     | 140     | 30        | false     | 0
            """,
        },
        f"SELECT * FROM ({QUERY}) WHERE ts BETWEEN 110 AND 139",
        f"""
        {HEADER}
        0 | fetch | 110 | 30 | 30 | run | - | - | exact
        """,
        targets=[{"name": "machine", "role": "target", "kind": "machine", "pid": 0}],
    )


@pytest.mark.parametrize("earlier", ["", "9 | 9 | other | - | cron | 1 | - | 105"])
def test_the_path_lies_in_the_wait_until_the_other_thread_is_created(tmp_path, earlier):
    """The number was nobody's before, or another thread's."""
    check(
        tmp_path,
        {
            "processes": f"""
                pid | tid | role   | target | comm   | ppid | start_ns | end_ns
                7   | 7   | target | job    | python | 1    | -        | -
                9   | 9   | child  | job    | worker | 7    | 130      | -
                {earlier}
            """,
            "phases": "start | end | pid | tid | name | step\n 100 | 200 | 7 | 7 | step | 0",
            "syscalls": "ts | tid | name | dur_ns | ret\n 101 | 7 | read | 49 | 1",
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            130 | 2      | 9   | new   | 130     | 7         | false     | 2            | 0
            110 | 30     | 7   | S     | 140     | 9         | false     | 0            | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        0 | step | 100 | 10 | 7 | run | -    | -      | exact
        0 | step | 110 | 20 | 7 | ipc | read | worker | exact
        0 | step | 130 | 2  | 9 | cpu | -    | -      | exact
        0 | step | 132 | 8  | 9 | run | -    | -      | exact
        0 | step | 140 | 60 | 7 | run | -    | -      | exact
        """,
    )


def test_a_wait_of_unknown_length_is_over_when_its_thread_marks_a_phase(tmp_path):
    """Events were lost during the fetch, and neither thread waits any more."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": PHASES,
            "syscalls": CALLS,
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            110 | -      | 7   | S     | 145     | 8         | false     | -            | -
            120 | -      | 8   | S     | -       | -         | -         | -            | -
            """,
        },
        QUERY,
        f"""
        {HEADER}
        0 | fetch   | 100 | 10  | 7 | run   | -               | -        | exact
        0 | fetch   | 110 | 10  | 8 | run   | -               | -        | exact
        0 | fetch   | 120 | 20  | 8 | timer | clock_nanosleep | -        | exact
        0 | fetch   | 140 | 10  | 8 | run   | -               | -        | exact
        0 | forward | 150 | 30  | 7 | run   | -               | -        | exact
        0 | step    | 180 | 20  | 7 | run   | -               | -        | exact
        1 | step    | 200 | 100 | 7 | run   | -               | -        | exact
        """,
    )


def test_a_step_without_an_end_has_no_path(tmp_path):
    phases = "start | end | pid | tid | name | step\n 100 | - | 7 | 7 | step | 0"
    check(tmp_path, {"processes": PROCESSES, "phases": phases, "off_cpu": ""}, QUERY, HEADER)


def test_a_step_that_the_recording_cuts_has_no_path(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": """
                start | end | pid | tid | name | step
                99    | 110 | 7   | 7   | step | 0
                110   | 200 | 7   | 7   | step | 1
                150   | 201 | 8   | 8   | step | 2
                200   | 300 | 7   | 7   | step | 3
            """,
            "off_cpu": "",
        },
        QUERY,
        f"{HEADER}\n 1 | step | 110 | 90 | 7 | run | - | - | exact",
        clock={"name": "mono", "start_ns": 100, "end_ns": 200},
    )


def test_no_step_and_no_wait(tmp_path):
    check(tmp_path, {"processes": PROCESSES, "phases": "", "off_cpu": ""}, QUERY, HEADER)
