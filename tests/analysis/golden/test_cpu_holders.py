"""Waits for a CPU that unrecorded threads had, as tables: who is charged, and how certain that is.

On CPU 0, python (7) and worker (8) are recorded. The others are not, and rcu is a thread of the
kernel. Rows of off_cpu are in the order of their ends.
"""

from functools import partial

import pytest

from tests.support import cpu_waits

PROCESSES = """
    pid | tid | role   | target | comm     | ppid
    7   | 7   | target | job    | python   | 1
    8   | 8   | child  | job    | worker   | 7
    15  | 15  | other  | -      | rcu      | 2
    30  | 30  | other  | -      | postgres | 1
    31  | 31  | other  | -      | nginx    | 1
"""
COLUMNS = "ts | dur_ns | tid | state | cpu | ran_cpu | ran_tid | run_delay_ns | wake_ns | next_tid"
check_waits = partial(cpu_waits.check_waits, processes=PROCESSES, columns=COLUMNS)


@pytest.mark.parametrize(
    ("got", "last", "expected"),
    [
        (30, 30, "100 | 40 | 30 | postgres | inferred"),
        (30, 31, "100 | 20 | 30 | postgres | inferred\n120 | 20 | 31 | nginx | inferred"),
        (30, 15, "100 | 40 | 30 | postgres | inferred"),
        (15, 30, "100 | 40 | 30 | postgres | inferred"),
        (15, 15, "100 | 40 | 15 | rcu      | inferred"),
        (0, 30, "100 | 40 | 30 | postgres | inferred"),
        ("-", 15, "100 | 40 | 15 | rcu      | inferred"),
        (77, 30, "100 | 20 | 77 | - | inferred\n120 | 20 | 30 | postgres | inferred"),
    ],
)
def test_two_unrecorded_threads_share_the_time_between_turns(tmp_path, got, last, expected):
    """Postgres may have left the CPU to others, and got it back."""
    check_waits(
        tmp_path,
        f"""
        50  | 30 | 7 | S | 0 | 0 | 31     | 0  | - | 31
        100 | 40 | 7 | R | 0 | 0 | {last} | 40 | - | {got}
        """,
        expected,
    )


def test_each_has_the_half_of_the_time_between_turns_also_if_the_wait_begins_within(tmp_path):
    """The sleeper is woken at 95. Postgres got the CPU from it at 80."""
    check_waits(
        tmp_path,
        """
        50 | 10 | 7 | S | 0 | 0 | 31 | 0  | -  | 31
        80 | 40 | 7 | S | 0 | 0 | 31 | 25 | 95 | 30
        """,
        """
        95  | 5  | 30 | postgres | inferred
        100 | 20 | 31 | nginx    | inferred
        """,
    )


@pytest.mark.parametrize(
    ("woken", "expected"),
    [
        (110, "110 | 10 | 15 | rcu | inferred"),
        (95, "95 | 5 | 30 | postgres | inferred\n100 | 20 | 15 | rcu | inferred"),
    ],
)
def test_a_thread_of_the_kernel_is_charged_if_the_wait_began_later(tmp_path, woken, expected):
    """Postgres got the CPU from the sleeper at 80, and may have left it before the wait began."""
    check_waits(
        tmp_path,
        f"""
        50 | 10 | 7 | S | 0 | 0 | 31 | 0             | -       | 31
        80 | 40 | 7 | S | 0 | 0 | 15 | {120 - woken} | {woken} | 30
        """,
        expected,
    )


def test_a_turn_that_left_the_cpu_idle_tells_that_the_thread_waited_elsewhere(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 60 | 8 | S | 0 | 0 | 30 | 0  | - | 7
        100 | 40 | 7 | R | 0 | 0 | 31 | 40 | - | 30
        120 | -  | 8 | S | 0 | - | -  | -  | - | 0
        """,
        """
        100 | 20 | -  | -     | inferred
        120 | 20 | 31 | nginx | inferred
        """,
    )


def test_the_time_between_two_turns_of_others_is_inferred_and_their_turns_are_exact(tmp_path):
    """Nginx got the CPU from the worker, and postgres left it to the job."""
    check_waits(
        tmp_path,
        """
        50  | 10 | 7 | S | 0 | 0 | 31 | 0  | - | 31
        50  | 60 | 8 | S | 0 | 0 | 30 | 0  | - | 7
        100 | 40 | 7 | R | 0 | 0 | 30 | 40 | - | 30
        120 | -  | 8 | S | 0 | - | -  | -  | - | 31
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 10 | 8  | worker   | exact
        120 | 10 | 31 | nginx    | inferred
        130 | 10 | 30 | postgres | inferred
        """,
    )
