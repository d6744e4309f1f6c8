"""Waits of threads whose cgroup of version 2 is frozen, as tables.

The kernel interrupts the calls of threads that sleep, and these sleep until the cgroup is thawed.
"""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | comm   | ppid
    7   | 7   | target | job    | python | 1
    30  | 30  | other  | -      | runc   | 1
    31  | 31  | other  | -      | cron   | 1
"""
OFF_CPU = "ts | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns"
QUERY = "SELECT ts, dur_ns, kind, call, by_comm, certainty FROM waits ORDER BY ts"
HEADER = "ts | dur_ns | kind | call | by_comm | certainty"


def check_waits(folder, calls, off_cpu, expected, **tables):
    trace = {
        "processes": PROCESSES,
        "syscalls": f"ts | tid | name | dur_ns | ret\n{calls.strip()}",
        "off_cpu": f"{OFF_CPU}\n{off_cpu.strip()}",
    }
    check(folder, trace | tables, QUERY, f"{HEADER}\n{expected.strip()}")


def test_a_thread_whose_call_was_interrupted_sleeps_until_it_is_thawed(tmp_path):
    """Linux makes the call again, by itself or by restart_syscall."""
    check_waits(
        tmp_path,
        """
        100 | 7 | clock_nanosleep | 20 | -514
        180 | 7 | clock_nanosleep | 5  | 0
        200 | 7 | poll            | 20 | -516
        280 | 7 | restart_syscall | 5  | 0
        300 | 7 | epoll_wait      | 20 | -4
        """,
        """
        105 | 13 | 7 | 7 | S | 118 | 30 | false | 0
        122 | 50 | 7 | 7 | S | 170 | 30 | false | 2
        205 | 13 | 7 | 7 | S | 218 | 30 | false | 0
        222 | 50 | 7 | 7 | S | 272 | 30 | -     | 0
        305 | 13 | 7 | 7 | S | 318 | 30 | false | 0
        322 | -  | 7 | 7 | S | -   | -  | -     | -
        """,
        """
        105 | 13 | timer  | clock_nanosleep | runc | exact
        122 | 48 | frozen | -               | runc | inferred
        170 | 2  | cpu    | -               | -    | inferred
        205 | 13 | ipc    | poll            | runc | inferred
        222 | 50 | frozen | -               | runc | inferred
        305 | 13 | ipc    | epoll_wait      | runc | inferred
        322 | -  | frozen | -               | -    | inferred
        """,
    )


def test_whoever_interrupts_a_call_need_not_be_what_it_waits_for(tmp_path):
    """Cron sends a signal. A wait that cron itself ends is exact."""
    check_waits(
        tmp_path,
        """
        100 | 7 | futex | 20 | -512
        200 | 7 | wait4 | 20 | -512
        300 | 7 | read  | 20 | -512
        400 | 7 | futex | 20 | 0
        500 | 7 | read  | 20 | 3
        """,
        """
        105 | 13 | 7 | 7 | S | 118 | 31 | false | 0
        205 | 13 | 7 | 7 | S | 218 | 31 | false | 0
        305 | 13 | 7 | 7 | S | 318 | 31 | false | 0
        405 | 13 | 7 | 7 | S | 418 | 31 | false | 0
        505 | 13 | 7 | 7 | S | 518 | 31 | false | 0
        """,
        """
        105 | 13 | lock  | futex | cron | inferred
        205 | 13 | child | wait4 | cron | inferred
        305 | 13 | ipc   | read  | cron | inferred
        405 | 13 | lock  | futex | cron | exact
        505 | 13 | ipc   | read  | cron | exact
        """,
    )


def test_other_sleeps_outside_of_calls_are_no_freezes(tmp_path):
    """A call that was not interrupted; a stop by a signal; an interrupt; a lost call."""
    check_waits(
        tmp_path,
        """
        100 | 7 | read  | 20 | 3
        200 | 7 | read  | 20 | -512
        300 | 7 | futex | 20 | -512
        400 | 7 | futex | 20 | -512
        """,
        """
        130 | 40 | 7 | 7 | S | 170 | 30 | false | 0
        230 | 40 | 7 | 7 | T | 270 | 30 | false | 0
        330 | 40 | 7 | 7 | S | 370 | 0  | true  | 0
        440 | 40 | 7 | 7 | S | 480 | 30 | false | 0
        """,
        """
        130 | 40 | other | - | runc | unknown
        230 | 40 | other | - | runc | unknown
        330 | 40 | other | - | -    | unknown
        440 | 40 | other | - | runc | unknown
        """,
        loss="""
            stream        | cpu | from | to  | count | cause
            ftrace-target | 0   | 425  | 430 | 3     | overrun
        """,
    )
