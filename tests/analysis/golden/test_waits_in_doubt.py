"""Waits of which events are missing, and of numbers that several threads had, as tables."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | comm     | ppid
    7   | 7   | target | job    | python   | 1
    7   | 9   | target | job    | pin      | 1
    8   | 8   | child  | job    | worker   | 7
    30  | 30  | other  | -      | postgres | 1
"""
QUERY = "SELECT ts, dur_ns, tid, kind, call, detail, by_comm, certainty FROM waits ORDER BY tid, ts"
HEADER = "ts | dur_ns | tid | kind | call | detail | by_comm | certainty"


def test_a_reclaim_without_an_end_lasts_no_longer_than_its_call_or_fault(tmp_path):
    """Another begin follows; the thread has left the call; it is in user mode, in a later fault."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | tid | name            | dur_ns | ret
                100 | 7   | read            | 100    | 9
                300 | 7   | clock_nanosleep | 100    | 0
                100 | 8   | read            | 200    | 9
                100 | 9   | getpid          | 1      | 7
                200 | 9   | getpid          | 1      | 7
            """,
            "page_faults": """
                ts  | tid | kind  | user | file
                150 | 9   | major | true | /model.bin
                180 | 9   | major | true | /data.bin
            """,
            "reclaim": """
                ts  | tid | event        | nr_reclaimed
                110 | 7   | direct_begin | -
                110 | 8   | memcg_begin  | -
                150 | 8   | memcg_begin  | -
                155 | 9   | direct_begin | -
                160 | 8   | memcg_end    | 32
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                120 | 10     | 7   | 7   | D     | 130     | 0         | true      | 0
                140 | 10     | 7   | 7   | D     | 150     | 0         | true      | 0
                310 | 50     | 7   | 7   | S     | 360     | 0         | true      | 0
                120 | 10     | 8   | 8   | D     | 130     | 0         | true      | 0
                152 | 2      | 8   | 8   | D     | 154     | 0         | true      | 0
                170 | 20     | 8   | 8   | S     | 190     | 7         | false     | 0
                160 | 10     | 7   | 9   | D     | 170     | 0         | true      | 0
                185 | 10     | 7   | 9   | D     | 195     | 0         | true      | 0
                210 | 10     | 7   | 9   | D     | 220     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        120 | 10 | 7 | reclaim | read            | -         | -      | exact
        140 | 10 | 7 | reclaim | read            | -         | -      | exact
        310 | 50 | 7 | timer   | clock_nanosleep | -         | -      | exact
        120 | 10 | 8 | reclaim | read            | -         | -      | exact
        152 | 2  | 8 | reclaim | read            | -         | -      | exact
        170 | 20 | 8 | ipc     | read            | -         | python | exact
        160 | 10 | 9 | reclaim | -               | -         | -      | exact
        185 | 10 | 9 | fault   | -               | /data.bin | -      | exact
        210 | 10 | 9 | fault   | -               | -         | -      | inferred
        """,
    )


def test_after_a_loss_a_reclaim_counts_only_if_its_end_follows(tmp_path):
    """Losses of names, and of the targets' own events, do not matter. Thread 30 makes no calls."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | tid | name | dur_ns | ret
                900  | 7   | read | 600    | 9
                1015 | 8   | read | 85     | 9
                900  | 9   | read | 600    | 9
            """,
            "reclaim": """
                ts   | tid | event        | nr_reclaimed
                950  | 7   | direct_begin | -
                950  | 9   | direct_begin | -
                950  | 30  | direct_begin | -
                1020 | 8   | direct_begin | -
                1040 | 8   | direct_end   | 32
                1200 | 7   | direct_end   | 32
            """,
            "off_cpu": """
                ts   | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                960  | 20     | 7   | 7   | D     | 980     | 0         | true      | 0
                1100 | 40     | 7   | 7   | D     | 1140    | 0         | true      | 0
                1300 | 30     | 7   | 7   | S     | 1330    | 8         | false     | 0
                1030 | 5      | 8   | 8   | D     | 1035    | 0         | true      | 0
                1100 | 40     | 7   | 9   | D     | 1140    | 0         | true      | 0
                960  | 20     | 30  | 30  | D     | 980     | 0         | true      | 0
                1100 | 40     | 30  | 30  | D     | 1140    | 0         | true      | 0
            """,
            "loss": """
                stream         | cpu | from | to   | count | cause
                ftrace-machine | 0   | 1000 | 1010 | 3     | overrun
                ftrace-target  | 0   | 1021 | 1029 | 3     | overrun
                files          | -1  | -    | -    | 3     | not found
            """,
        },
        QUERY,
        f"""
        {HEADER}
        960  | 20 | 7  | reclaim | read | - | -      | exact
        1100 | 40 | 7  | reclaim | read | - | -      | inferred
        1300 | 30 | 7  | ipc     | read | - | worker | exact
        1030 | 5  | 8  | reclaim | read | - | -      | exact
        1100 | 40 | 9  | disk    | read | - | -      | inferred
        960  | 20 | 30 | reclaim | -    | - | -      | exact
        1100 | 40 | 30 | other   | -    | - | -      | unknown
        """,
        targets=[{"name": "machine", "role": "target", "kind": "machine", "pid": 0}],
    )


def test_a_thread_does_not_inherit_the_call_and_the_reclaim_of_its_number(tmp_path):
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role  | target | comm | ppid | start_ns | end_ns
                40  | 40  | child | job    | old  | 7    | -        | 200
                40  | 40  | child | job    | new  | 7    | 210      | -
            """,
            "syscalls": "ts | tid | name | dur_ns\n 100 | 40 | exit_group | -",
            "reclaim": "ts | tid | event\n 110 | 40 | direct_begin",
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                120 | 10     | 40  | 40  | D     | 130     | 0         | true      | 0
                220 | 10     | 40  | 40  | D     | 230     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        120 | 10 | 40 | reclaim | exit_group | - | - | exact
        220 | 10 | 40 | other   | -          | - | - | unknown
        """,
    )


def test_wakers_and_competitors_are_the_threads_that_had_the_number_then(tmp_path):
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role    | target | comm        | ppid | start_ns | end_ns
                7   | 7   | target  | job    | python      | 1    | -        | -
                9   | 9   | other   | -      | cron        | 1    | -        | 105
                9   | 9   | child   | job    | worker      | 7    | 130      | 160
                9   | 9   | other   | -      | sh          | 1    | 170      | -
                51  | 51  | other   | -      | kworker/0:1 | 2    | -        | 310
                51  | 51  | journal | -      | jbd2/vda1-8 | 2    | 320      | -
            """,
            "syscalls": """
                ts  | tid | name  | dur_ns | ret
                101 | 7   | read  | 100    | 9
                295 | 7   | fsync | 60     | 0
            """,
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            110 | 30     | 7   | S     | 140     | 9         | false     | 0            | 0
            150 | 30     | 7   | S     | 155     | 9         | false     | 25           | 9
            185 | 5      | 7   | R     | -       | -         | -         | 5            | 9
            300 | 50     | 7   | D     | 340     | 51        | false     | 10           | 51
            """,
        },
        "SELECT ts, dur_ns, kind, detail, by_comm, by_target, certainty FROM waits ORDER BY ts",
        """
        ts | dur_ns | kind | detail | by_comm | by_target | certainty
        110 | 30 | ipc  | -       | worker      | job | exact
        150 | 5  | ipc  | -       | worker      | job | exact
        155 | 25 | cpu  | -       | sh          | -   | inferred
        185 | 5  | cpu  | -       | sh          | -   | inferred
        300 | 40 | sync | journal | jbd2/vda1-8 | -   | exact
        340 | 10 | cpu  | -       | jbd2/vda1-8 | -   | inferred
        """,
        targets=[{"name": "job", "role": "target", "kind": "pid", "pid": 7}],
    )


def test_a_cpu_of_which_nobody_knows_who_had_it_is_not_an_idle_one(tmp_path):
    """The switch to the thread was not logged; the last thread did not run again."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | tid | name | dur_ns\n 100 | 7 | futex | 290",
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            110 | 40     | 7   | S     | 120     | 9         | false     | 30           | -
            160 | 40     | 7   | S     | 170     | 9         | false     | 30           | 0
            210 | 20     | 7   | R+    | -       | -         | -         | 20           | -
            240 | 20     | 7   | R+    | -       | -         | -         | 20           | 0
            270 | 20     | 7   | R+    | -       | -         | -         | 20           | 30
            300 | -      | 7   | R     | -       | -         | -         | -            | -
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 10 | 7 | lock | futex | - | pin      | exact
        120 | 30 | 7 | cpu  | futex | - | -        | inferred
        160 | 10 | 7 | lock | futex | - | pin      | exact
        170 | 30 | 7 | cpu  | futex | - | -        | exact
        210 | 20 | 7 | cpu  | futex | - | -        | inferred
        240 | 20 | 7 | cpu  | futex | - | -        | exact
        270 | 20 | 7 | cpu  | futex | - | postgres | inferred
        300 | -  | 7 | cpu  | futex | - | -        | inferred
        """,
    )


def test_a_call_is_inferred_if_events_may_be_lost_since_it_was_entered(tmp_path):
    """The return may be lost, and the entry of the call that the thread sleeps in. There is no
    doubt if the return is known, or if only events of the whole machine, as a disk's, are lost."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | pid | tid | name            | dur_ns | ret
                100 | 7   | 7   | futex           | -      | -
                300 | 7   | 7   | futex           | 100    | 0
                500 | 7   | 7   | clock_nanosleep | -      | -
                700 | 7   | 7   | fsync           | 100    | 0
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 10     | 7   | 7   | S     | 120     | 9         | false     | 0
                160 | 10     | 7   | 7   | S     | 170     | 9         | false     | 0
                310 | 10     | 7   | 7   | S     | 320     | 9         | false     | 0
                550 | 10     | 7   | 7   | S     | 560     | 0         | true      | 0
                720 | 10     | 7   | 7   | D     | 730     | 0         | true      | 0
            """,
            "loss": """
                stream         | cpu | from | to  | count | cause
                ftrace-target  | 0   | 130  | 150 | 7     | lost
                ftrace-machine | 0   | 305  | 308 | 7     | lost
                ftrace-target  | 0   | 510  | 520 | 7     | lost
                ftrace-target  | 0   | 705  | 710 | 7     | lost
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 10 | 7 | lock  | futex           | -     | pin | exact
        160 | 10 | 7 | lock  | futex           | -     | pin | inferred
        310 | 10 | 7 | lock  | futex           | -     | pin | exact
        550 | 10 | 7 | timer | clock_nanosleep | -     | -   | inferred
        720 | 10 | 7 | sync  | fsync           | -     | -   | exact
        """,
    )


def test_a_sleep_that_a_thread_ended_is_not_exact_if_the_call_did_not_fail(tmp_path):
    """A thread of a frozen cgroup sleeps until it is thawed. A signal lets the call fail."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | tid | name            | dur_ns | ret
                100 | 7   | clock_nanosleep | 100    | 0
                300 | 7   | clock_nanosleep | 100    | -516
                500 | 7   | clock_nanosleep | 100    | 0
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 80     | 7   | 7   | S     | 190     | 30        | false     | 0
                310 | 80     | 7   | 7   | S     | 390     | 30        | false     | 0
                510 | 80     | 7   | 7   | S     | 590     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 80 | 7 | timer | clock_nanosleep | - | postgres | inferred
        310 | 80 | 7 | timer | clock_nanosleep | - | postgres | exact
        510 | 80 | 7 | timer | clock_nanosleep | - | -        | exact
        """,
    )
