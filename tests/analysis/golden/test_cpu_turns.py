"""Waits for a CPU that several threads had, as tables: the turns on it tell who had it when.

On CPU 0, python (7) waits for pin (9) and worker (8), which are recorded, and for postgres (30) and
nginx (31), which are not. Rows of off_cpu are in the order of their ends.
"""

from functools import partial

import pytest

from tests.support import cpu_waits
from tests.support.cpu_waits import TARGETS
from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | comm     | ppid | start_ns | end_ns
    7   | 7   | target | job    | python   | 1    | -        | -
    7   | 9   | target | job    | pin      | 1    | -        | -
    8   | 8   | child  | job    | worker   | 7    | -        | -
    30  | 30  | other  | -      | postgres | 1    | -        | -
    31  | 31  | other  | -      | nginx    | 1    | -        | -
    40  | 40  | child  | job    | old      | 7    | -        | 108
    40  | 40  | child  | job    | new      | 7    | 112      | -
"""
COLUMNS = "ts | dur_ns | tid | state | cpu | ran_cpu | ran_tid | run_delay_ns"
check_waits = partial(cpu_waits.check_waits, processes=PROCESSES, columns=COLUMNS)


def test_two_threads_that_alternate_are_each_charged_their_turns(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 50 | 8 | S | 0 | 0 | 7 | 0
        60  | 50 | 9 | S | 0 | 0 | 8 | 0
        110 | 20 | 8 | R | 0 | 0 | 9 | 20
        100 | 35 | 7 | R | 0 | 0 | 8 | 35
        130 | -  | 9 | S | 0 | - | - | -
        135 | -  | 8 | S | 0 | - | - | -
        """,
        """
        100 | 10 | 8 | worker | exact
        110 | 20 | 9 | pin    | exact
        130 | 5  | 8 | worker | exact
        """,
    )


def test_only_the_time_since_the_wake_up_counts(tmp_path):
    """The worker has the CPU from 60 on, pin from 110 on, and the sleeper is woken at 105."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "off_cpu": """
            ts  | dur_ns | tid | state | cpu | ran_cpu | ran_tid | run_delay_ns | wake_ns
            50  | 10     | 8   | S     | 0   | 0       | 7       | 0            | -
            60  | 50     | 9   | S     | 0   | 0       | 8       | 0            | -
            60  | 60     | 7   | S     | 0   | 0       | 9       | 15           | 105
            110 | -      | 8   | S     | 0   | -       | -       | -            | -
            120 | -      | 9   | S     | 0   | -       | -       | -            | -
            """,
        },
        "SELECT ts, dur_ns, kind, by_comm, certainty FROM waits WHERE tid = 7 ORDER BY ts",
        """
        ts | dur_ns | kind | by_comm | certainty
        60  | 45 | other | -      | unknown
        105 | 5  | cpu   | worker | exact
        110 | 10 | cpu   | pin    | exact
        """,
        targets=TARGETS,
    )


def test_threads_that_are_not_recorded_are_charged_the_time_before_the_next_turn(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 60 | 8 | S | 0 | 0 | 30 | 0
        100 | 40 | 7 | R | 0 | 0 | 31 | 40
        120 | -  | 8 | S | 0 | - | -  | -
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 10 | 8  | worker   | exact
        120 | 20 | 31 | nginx    | inferred
        """,
    )


@pytest.mark.parametrize("state", ["R", "new"])
@pytest.mark.parametrize(("left", "ran"), [(0, 1), (1, 0), ("-", 0)])
def test_a_wait_that_ends_on_another_cpu_has_the_turns_there_inferred(tmp_path, state, left, ran):
    """Nobody knows when the thread came there. Nginx cannot have had the CPU before 120."""
    check_waits(
        tmp_path,
        f"""
        50  | 60 | 8 | S       | {ran}  | {ran} | 30 | 0
        100 | 40 | 7 | {state} | {left} | {ran} | 31 | 40
        120 | -  | 8 | S       | {ran}  | -     | -  | -
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 10 | 8  | worker   | inferred
        120 | 20 | 31 | nginx    | inferred
        """,
    )


def test_a_new_thread_waits_for_the_cpu_that_it_was_put_on(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 60 | 8 | S   | 0 | 0 | 30 | 0
        100 | 40 | 7 | new | 0 | 0 | 31 | 40
        120 | -  | 8 | S   | 0 | - | -  | -
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 10 | 8  | worker   | exact
        120 | 20 | 31 | nginx    | inferred
        """,
    )


def test_a_wait_on_another_cpu_that_one_thread_had_is_inferred_too(tmp_path):
    check_waits(tmp_path, "100 | 40 | 7 | R | 1 | 0 | 31 | 40", "100 | 40 | 31 | nginx | inferred")


def test_a_thread_that_was_moved_was_not_there_before_the_cpu_was_idle(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 55 | 9 | S | 0 | 0 | 30 | 0
        50  | 70 | 8 | S | 0 | 0 | 0  | 0
        100 | 40 | 7 | R | 1 | 0 | 8  | 40
        115 | -  | 9 | S | 0 | - | -  | -
        140 | -  | 8 | S | 0 | - | -  | -
        """,
        """
        100 | 20 | - | -      | inferred
        120 | 20 | 8 | worker | inferred
        """,
    )


def test_a_turn_that_began_on_an_idle_cpu_tells_that_the_thread_waited_elsewhere(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 55 | 9 | S | 0 | 0 | 30 | 0
        50  | 70 | 8 | S | 0 | 0 | 0  | 0
        100 | 40 | 7 | R | 0 | 0 | 8  | 40
        115 | -  | 9 | S | 0 | - | -  | -
        140 | -  | 8 | S | 0 | - | -  | -
        """,
        """
        100 | 20 | - | -      | inferred
        120 | 20 | 8 | worker | exact
        """,
    )


def test_a_thread_that_came_late_to_an_idle_cpu_waited_for_nobody(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 60 | 8 | S | 0 | 0 | 30 | 0
        100 | 40 | 7 | R | 0 | 0 | 0  | 40
        120 | -  | 8 | S | 0 | - | -  | -
        """,
        "100 | 40 | - | - | exact",
    )


def test_turns_of_other_cpus_and_of_a_thread_that_changed_its_cpu_do_not_count(tmp_path):
    """The worker's second turn began on CPU 0 and ended on CPU 1, so its end was not logged."""
    check_waits(
        tmp_path,
        """
        50  | 55 | 9 | S | 1 | 1 | 30 | 0
        50  | 60 | 8 | S | 0 | 0 | 30 | 0
        100 | 40 | 7 | R | 0 | 0 | 31 | 40
        115 | -  | 9 | S | 1 | - | -  | -
        120 | -  | 8 | S | 1 | - | -  | -
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 30 | 31 | nginx    | inferred
        """,
    )


def test_turns_of_no_length_are_charged_nothing(tmp_path):
    """At 100 the worker gives the CPU to pin at once, and at 120 it has it again for no time."""
    check_waits(
        tmp_path,
        """
        50  | 50 | 8 | S | 0 | 0 | 7 | 0
        60  | 40 | 9 | S | 0 | 0 | 8 | 0
        100 | 20 | 8 | R | 0 | 0 | 9 | 20
        100 | 20 | 7 | R | 0 | 0 | 8 | 20
        120 | -  | 9 | S | 0 | - | - | -
        120 | -  | 8 | S | 0 | - | - | -
        """,
        "100 | 20 | 9 | pin | exact",
    )


LOSS = """
    stream | cpu | from | to | count | cause
    {}     | 0   | 100  | 110 | 3    | overrun
"""


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("ftrace-target", "200 | 40 | 30 | postgres | inferred"),
        ("ftrace-machine", "200 | 10 | 8 | worker | exact\n210 | 30 | 30 | postgres | inferred"),
        ("files", "200 | 10 | 8 | worker | exact\n210 | 30 | 30 | postgres | inferred"),
    ],
)
def test_after_lost_events_a_thread_need_not_have_the_cpu_any_more(tmp_path, stream, expected):
    """The worker began its turn at 90. Events of a target may have told that it ended."""
    check_waits(
        tmp_path,
        """
        50  | 40 | 8 | S | 0 | 0 | 7  | 0
        200 | 40 | 7 | R | 0 | 0 | 30 | 40
        210 | -  | 8 | S | 0 | - | -  | -
        """,
        expected,
        loss=LOSS.format(stream),
    )


def test_nobody_knows_who_had_the_cpu_before_a_switch_that_was_not_logged(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 70 | 8 | S | 0 | 0 | -  | 0
        100 | 40 | 7 | R | 0 | 0 | 30 | 40
        130 | -  | 8 | S | 0 | - | -  | -
        """,
        """
        100 | 20 | -  | -        | inferred
        120 | 10 | 8  | worker   | exact
        130 | 10 | 30 | postgres | inferred
        """,
    )


def test_a_wait_whose_own_switch_was_not_logged_has_the_turns_that_were(tmp_path):
    check_waits(
        tmp_path,
        """
        50  | 60 | 8 | S | 0 | 0 | 30 | 0
        100 | 40 | 7 | R | 0 | 0 | -  | 40
        120 | -  | 8 | S | 0 | - | -  | -
        """,
        """
        100 | 10 | 30 | postgres | inferred
        110 | 10 | 8  | worker   | exact
        120 | 20 | -  | -        | inferred
        """,
    )


def test_a_turn_ends_before_that_of_another_recorded_thread(tmp_path):
    """The worker's switch from the CPU was not logged: pin has it before the worker leaves it."""
    check_waits(
        tmp_path,
        """
        50  | 55 | 8 | S | 0 | 0 | 30 | 0
        50  | 60 | 9 | S | 0 | 0 | 31 | 0
        100 | 40 | 7 | R | 0 | 0 | 9  | 40
        130 | -  | 8 | S | 0 | - | -  | -
        140 | -  | 9 | S | 0 | - | -  | -
        """,
        """
        100 | 5  | 30 | postgres | inferred
        105 | 5  | 31 | nginx    | inferred
        110 | 30 | 9  | pin      | exact
        """,
    )


def test_threads_that_had_one_number_are_told_apart(tmp_path):
    """The old thread 40 exits at 108; the new one is made at 112, and has the CPU from 115 on."""
    check_waits(
        tmp_path,
        """
        50  | 50 | 40 | S   | 0 | 0 | 7  | 0
        112 | 3  | 40 | new | - | 0 | 30 | 3
        100 | 20 | 7  | R   | 0 | 0 | 40 | 20
        120 | -  | 40 | S   | 0 | - | -  | -
        """,
        """
        100 | 8 | 40 | old      | exact
        108 | 7 | 30 | postgres | inferred
        115 | 5 | 40 | new      | exact
        """,
    )


def test_a_thread_that_exits_has_the_cpu_until_its_last_switch_if_that_tells_so(tmp_path):
    """The old thread exits at 108, before it leaves the CPU."""
    check_waits(
        tmp_path,
        """
        50  | 45 | 9  | S | 0 | 0 | 30 | 0
        50  | 55 | 40 | S | 0 | 0 | 9  | 0
        100 | 10 | 7  | R | 0 | 0 | 40 | 10
        105 | -  | 9  | S | 0 | - | -  | -
        """,
        """
        100 | 5 | 9  | pin | exact
        105 | 5 | 40 | old | exact
        """,
    )
