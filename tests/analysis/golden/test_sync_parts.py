"""Waits of calls that make data durable: trace, query and expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | comm         | ppid | container_id
    7   | 7   | target  | job    | python       | 1    | -
    7   | 9   | target  | job    | pin          | 1    | -
    8   | 8   | child   | job    | worker       | 7    | -
    30  | 30  | other   | -      | postgres     | 1    | c0ffee
    50  | 50  | flusher | -      | kworker/u8:1 | 2    | -
    51  | 51  | journal | -      | jbd2/vda1-8  | 2    | -
"""
QUERY = "SELECT ts, dur_ns, tid, kind, call, detail, by_comm, certainty FROM waits ORDER BY ts, tid"
HEADER = "ts | dur_ns | tid | kind | call | detail | by_comm | certainty"


def test_a_sync_waits_for_its_pages_the_journal_and_the_device(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name  | dur_ns | ret
                100  | 7   | 7   | fsync | 500    | 0
                1000 | 8   | 8   | fsync | 100    | 0
                1200 | 9   | 9   | sync  | 100    | 0
                1400 | 9   | 9   | fsync | 100    | 0
                1600 | 9   | 9   | fsync | 100    | 0
            """,
            "block": """
                ts   | tid | event     | dev   | sector | nr_sector | rwbs
                105  | 7   | bio_queue | 254:0 | 8      | 8         | WS
                500  | 7   | bio_queue | 254:0 | 0      | 0         | FWS
                1205 | 9   | bio_queue | 254:0 | 0      | 0         | FWS
            """,
            "off_cpu": """
                ts   | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110  | 40     | 7   | 7   | D     | 150     | 0         | true      | 0
                200  | 200    | 7   | 7   | D     | 380     | 51        | false     | 20
                450  | 10     | 7   | 7   | D     | 460     | 30        | false     | 0
                510  | 40     | 7   | 7   | D     | 550     | 0         | true      | 0
                1010 | 50     | 8   | 8   | D     | 1060    | 51        | false     | 0
                1210 | 50     | 7   | 9   | D     | 1260    | 50        | false     | 0
                1410 | 40     | 7   | 9   | D     | 1450    | 0         | true      | 0
                1610 | 40     | 7   | 9   | D     | 1650    | 0         | true      | 0
            """,
            # The last two calls: a fast commit of ext4, and a call of xfs.
            "file_writes": """
                ts   | tid | event             | dev   | ino
                101  | 7   | fsync_start       | 254:0 | 11
                1401 | 9   | fsync_start       | 254:0 | 11
                1405 | 9   | fast_commit_start | 254:0 | -
                1601 | 9   | fsync             | 254:1 | 11
            """,
            # Thread 51 begins a commit before the wait, and ends it during the wait.
            "journal": """
                ts  | tid | event           | dev   | transaction_id
                190 | 51  | commit_start    | 254:0 | 3
                210 | 51  | commit_flushing | 254:0 | 3
                240 | 51  | commit_logging  | 254:0 | 3
                370 | 51  | commit_end      | 254:0 | 3
                375 | 51  | commit_start    | 254:0 | 4
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110  | 40  | 7 | sync | fsync | pages   | -            | exact
        200  | 10  | 7 | sync | fsync | journal | jbd2/vda1-8  | exact
        210  | 30  | 7 | sync | fsync | data    | jbd2/vda1-8  | exact
        240  | 140 | 7 | sync | fsync | journal | jbd2/vda1-8  | exact
        380  | 20  | 7 | cpu  | fsync | -       | -            | inferred
        450  | 10  | 7 | sync | fsync | -       | postgres     | exact
        510  | 40  | 7 | sync | fsync | flush   | -            | exact
        1010 | 50  | 8 | sync | fsync | journal | jbd2/vda1-8  | exact
        1210 | 50  | 9 | sync | sync  | -       | kworker/u8:1 | exact
        1410 | 40  | 9 | sync | fsync | journal | -            | exact
        1610 | 40  | 9 | sync | fsync | -       | -            | exact
        """,
    )


JOURNAL = """
    ts  | tid | event           | dev   | transaction_id
    110 | 51  | commit_start    | 254:0 | 3
    120 | 51  | commit_flushing | 254:0 | 3
    140 | 51  | commit_logging  | 254:0 | 3
    300 | 51  | commit_end      | 254:0 | 3
"""
ONE_WAIT = """
    ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
    100 | 210    | 7   | 7   | D     | 310     | 51        | false     | 0
"""
BIOS = """
    ts  | tid | event     | dev   | sector | nr_sector | rwbs
    125 | 51  | bio_queue | 254:0 | 800    | 8         | WS
    150 | 51  | bio_queue | 254:0 | 80     | 16        | WSM
    155 | 51  | bio_queue | 254:0 | 96     | 8         | WSM
    160 | 0   | complete  | 254:0 | 800    | 8         | WS
    170 | 0   | complete  | 254:0 | 80     | 16        | WSM
    180 | 0   | complete  | 254:1 | 96     | 8         | WSM
    190 | 0   | complete  | 254:0 | 96     | 8         | WSM
    270 | 51  | bio_queue | 254:0 | 104    | 8         | {record}
    299 | 0   | complete  | 254:0 | 104    | 8         | {record}
"""


def test_a_wait_for_a_commit_is_split_by_what_its_thread_did(tmp_path):
    # The thread's own data is written at 160, the journal's blocks at 190, others' data at 270.
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 230 | 0",
            "block": BIOS.format(record="FWFSM"),
            "off_cpu": ONE_WAIT,
            "journal": JOURNAL,
        },
        "SELECT ts, dur_ns, kind, detail, by_comm FROM waits ORDER BY ts",
        """
        ts  | dur_ns | kind | detail  | by_comm
        100 | 20     | sync | journal | jbd2/vda1-8
        120 | 40     | sync | data    | jbd2/vda1-8
        160 | 30     | sync | journal | jbd2/vda1-8
        190 | 80     | sync | data    | jbd2/vda1-8
        270 | 30     | sync | flush   | jbd2/vda1-8
        300 | 10     | sync | journal | jbd2/vda1-8
        """,
    )


def test_data_that_is_written_after_the_journal_s_blocks_is_what_was_waited_for(tmp_path):
    late = BIOS.replace("    160 | 0   | complete  | 254:0 | 800    | 8         | WS\n", "")
    late = late.replace(
        "    270 |", "    260 | 0   | complete  | 254:0 | 800    | 8         | WS\n    270 |"
    )
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 230 | 0",
            "block": late.format(record="FWFSM"),
            "off_cpu": ONE_WAIT,
            "journal": JOURNAL,
        },
        "SELECT ts, dur_ns, detail FROM waits ORDER BY ts",
        """
        ts  | dur_ns | detail
        100 | 20     | journal
        120 | 150    | data
        270 | 30     | flush
        300 | 10     | journal
        """,
    )


def in_two_requests(second):
    """The bios, with the data in two requests; `second` has the events of the other one."""
    one = BIOS.replace("| 800    | 8         | WS\n    150", "| 800    | 16        | WS\n    150")
    return one.replace("    180 |", f"{second}    180 |")


def test_data_in_several_requests_is_written_with_the_last_of_them(tmp_path):
    # Parts on other disks, and of other bios, are none of it.
    rest = """
    171 | 0   | complete  | 254:1 | 808    | 8         | WS
    172 | 0   | complete  | 254:0 | 816    | 8         | WS
    175 | 0   | complete  | 254:0 | 808    | 8         | WS
"""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 230 | 0",
            "block": in_two_requests(rest.lstrip("\n")).format(record="FWFSM"),
            "off_cpu": ONE_WAIT,
            "journal": JOURNAL,
        },
        "SELECT ts, dur_ns, detail FROM waits ORDER BY ts",
        """
        ts  | dur_ns | detail
        100 | 20     | journal
        120 | 55     | data
        175 | 15     | journal
        190 | 80     | data
        270 | 30     | flush
        300 | 10     | journal
        """,
    )


def test_data_with_a_part_whose_completion_is_lost_does_not_count(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 230 | 0",
            "block": in_two_requests("").format(record="FWFSM"),
            "off_cpu": ONE_WAIT,
            "journal": JOURNAL,
        },
        "SELECT ts, dur_ns, detail FROM waits ORDER BY ts",
        """
        ts  | dur_ns | detail
        100 | 20     | journal
        120 | 20     | data
        140 | 50     | journal
        190 | 80     | data
        270 | 30     | flush
        300 | 10     | journal
        """,
    )


def test_without_barriers_the_last_write_of_a_commit_is_its_record(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 230 | 0",
            "block": BIOS.format(record="WSM"),
            "off_cpu": ONE_WAIT,
            "journal": JOURNAL,
        },
        "SELECT ts, dur_ns, detail FROM waits ORDER BY ts",
        """
        ts  | dur_ns | detail
        100 | 20     | journal
        120 | 40     | data
        160 | 30     | journal
        190 | 80     | data
        270 | 40     | journal
        """,
    )


def test_a_wait_whose_end_is_lost_and_a_commit_without_an_end_are_whole(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | pid | tid | name | dur_ns | ret\n 90 | 7 | 7 | fsync | 500 | 0",
            "block": BIOS.format(record="FWFSM"),
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                100 | 60     | 7   | 7   | D     | 160     | 51        | false     | 0
                350 | -      | 7   | 7   | D     | 400     | 51        | false     | 0
            """,
            "journal": """
                ts  | tid | event           | dev   | transaction_id
                140 | 51  | commit_logging  | 254:0 | 3
                320 | 51  | commit_start    | 254:0 | 4
                360 | 51  | commit_flushing | 254:0 | 4
            """,
        },
        "SELECT ts, dur_ns, kind, detail FROM waits ORDER BY ts",
        """
        ts  | dur_ns | kind | detail
        100 | 60     | sync | journal
        350 | -      | sync | journal
        """,
    )
