"""Stalls: trace, query and expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | comm
    7   | 7   | target  | job    | python
    8   | 8   | child   | job    | worker
    50  | 50  | flusher | -      | kworker/u8:1
"""
PHASES = """
    start | end | pid | tid | name       | epoch | step
    100   | 900 | 7   | 7   | step       | 0     | 3
    400   | 800 | 7   | 7   | checkpoint | 0     | 3
"""
QUERY = "SELECT ts, dur_ns, tid, kind, call, certainty, phase, step FROM stalls ORDER BY ts"


def test_each_kind_of_wait_by_its_evidence(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": PHASES,
            "syscalls": """
                ts  | pid | tid | nr | name   | dur_ns | ret
                110 | 7   | 7   | 0  | read   | 50     | 1
                200 | 7   | 7   | 0  | read   | 5      | 1
                300 | 8   | 8   | 0  | openat | 60     | 3
                410 | 7   | 7   | 1  | write  | 30     | 9
                450 | 7   | 7   | 74 | fsync  | 90     | 0
                560 | 7   | 7   | 1  | write  | 20     | 9
                700 | 7   | 7   | 0  | pread64| 10     | 9
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs
                120 | 7   | 7   | bio_queue | 254:0 | 8      | 8         | R
                125 | 7   | 7   | bio_queue | 254:0 | 16     | 8         | RA
                310 | 8   | 8   | bio_queue | 254:0 | 800    | 8         | RM
                460 | 7   | 7   | bio_queue | 254:0 | 8000   | 8         | WS
            """,
            "file_writes": """
                ts  | pid | tid | event        | dev   | ino
                455 | 7   | 7   | fsync_start  | 254:0 | 11
                565 | 7   | 7   | fsync_start  | 254:0 | 11
                705 | 7   | 7   | direct_start | 254:0 | 12
            """,
            "dirty": """
                ts  | pid | tid | event               | dev   | ino | pause_ns
                430 | 7   | 7   | balance_dirty_pages | 254:0 | -   | 4000000
                431 | 7   | 7   | balance_dirty_pages | 254:0 | -   | 0
                432 | 50  | 50  | balance_dirty_pages | 254:0 | -   | 9000000
            """,
            "page_faults": """
                ts  | pid | tid | kind  | user
                850 | 7   | 7   | major | true
                851 | 7   | 7   | minor | true
            """,
        },
        QUERY,
        """
        ts  | dur_ns  | tid | kind        | call    | certainty   | phase      | step
        110 | 50      | 7   | read        | read    | upper bound | step       | 3
        300 | 60      | 8   | read        | openat  | upper bound | step       | 3
        430 | 4000000 | 7   | throttle    | -       | exact       | checkpoint | 3
        450 | 90      | 7   | sync        | fsync   | upper bound | checkpoint | 3
        560 | 20      | 7   | sync        | write   | upper bound | checkpoint | 3
        700 | 10      | 7   | direct      | pread64 | upper bound | checkpoint | 3
        850 | -       | 7   | major_fault | -       | unknown     | step       | 3
        """,
    )


def test_a_call_that_only_begins_a_read_is_no_stall(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | pid | tid | nr  | name           | dur_ns | ret
                100 | 7   | 7   | 426 | io_uring_enter | 50     | 1
                200 | 7   | 7   | 187 | readahead      | 50     | 0
                300 | 7   | 7   | 0   | read           | 50     | 1
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs
                110 | 7   | 7   | bio_queue | 254:0 | 8      | 8         | R
                210 | 7   | 7   | bio_queue | 254:0 | 16     | 8         | R
                351 | 7   | 7   | bio_queue | 254:0 | 24     | 8         | R
            """,
        },
        QUERY,
        "ts | dur_ns | tid | kind | call | certainty | phase | step",
    )


def test_the_last_of_two_calls_of_one_time_began_the_read(tmp_path):
    """Clocks of some machines, and of other programs' traces, stand still for a short call."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | pid | tid | nr  | name      | dur_ns | ret
                100 | 7   | 7   | 3   | close     | 0      | 0
                100 | 7   | 7   | 0   | read      | 50     | 1
                200 | 7   | 7   | 187 | readahead | 0      | 0
                200 | 7   | 7   | 1   | write     | -      | -
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs
                110 | 7   | 7   | bio_queue | 254:0 | 8      | 8         | R
            """,
            "file_writes": """
                ts  | pid | tid | event       | dev   | ino
                210 | 7   | 7   | fsync_start | 254:0 | 11
            """,
        },
        QUERY,
        """
        ts  | dur_ns | tid | kind | call  | certainty   | phase | step
        100 | 50     | 7   | read | read  | upper bound | -     | -
        200 | -      | 7   | sync | write | unknown     | -     | -
        """,
    )


def test_a_sync_that_did_not_return_lasted_nobody_knows_how_long(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | pid | tid | nr | name  | dur_ns
                100 | 7   | 7   | 74 | fsync | -
                100 | 50  | 50  | 74 | fsync | 9
            """,
        },
        QUERY,
        """
        ts  | dur_ns | tid | kind | call  | certainty | phase | step
        100 | -      | 7   | sync | fsync | unknown   | -     | -
        """,
    )
