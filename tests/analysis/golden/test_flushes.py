"""Flushes: trace, query and expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | container_id | comm         | ppid
    7   | 7   | target  | a      | c1           | python       | 1
    8   | 8   | target  | b      | c2           | python       | 1
    50  | 50  | flusher | -      | -            | kworker/u8:1 | 2
    60  | 60  | journal | -      | -            | jbd2/vda-8   | 2
"""


def test_reason_by_bracket_inode_by_bracket_dirtier_by_inode(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "dirty": """
                ts | pid | tid | event       | dev   | ino
                10 | 7   | 7   | dirty_folio | 254:0 | 11
                20 | 8   | 8   | dirty_folio | 254:0 | 12
                30 | 7   | 7   | dirty_folio | 254:0 | 12
            """,
            "writeback": """
                ts  | pid | tid | event   | reason   | bdi
                100 | 50  | 50  | start   | periodic | 254:0
                190 | 50  | 50  | written | periodic | 254:0
            """,
            "inode_writeback": """
                ts  | pid | tid | event | dev   | ino
                110 | 50  | 50  | start | 254:0 | 11
                140 | 50  | 50  | end   | 254:0 | 11
                150 | 50  | 50  | start | 254:0 | 12
                180 | 50  | 50  | end   | 254:0 | 12
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs | comm
                120 | 50  | 50  | bio_queue | 254:0 | 80     | 24        | W    | kworker/u8:1
                160 | 50  | 50  | bio_queue | 254:0 | 804    | 8         | W    | kworker/u8:1
                300 | 60  | 60  | bio_queue | 254:0 | 8000   | 8         | WS   | jbd2/vda-8
            """,
        },
        "SELECT page, pages, ino, reason, dirtier, target, container, certainty, dirtiers "
        "FROM flushes ORDER BY ts",
        """
        page | pages | ino | reason   | dirtier | target | container | certainty | dirtiers
        10   | 3     | 11  | periodic | 7       | a      | c1        | exact     | 1
        100  | 2     | 12  | periodic | 7       | -      | -         | ambiguous | 2
        1000 | 1     | -   | journal  | -       | -      | -         | exact     | -
        """,
    )


def test_a_write_in_an_fsync_is_the_caller_s(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": """
                start | end | pid | tid | name  | epoch | step
                0     | 900 | 7   | 7   | train | -     | -
            """,
            "syscalls": """
                ts  | pid | tid | nr | name  | dur_ns | ret
                50  | 7   | 7   | 1  | write | 10     | 4096
                100 | 7   | 7   | 74 | fsync | 400    | 0
            """,
            "dirty": """
                ts | pid | tid | event       | dev   | ino
                55 | 7   | 7   | dirty_folio | 254:0 | 11
            """,
            "file_writes": """
                ts  | pid | tid | event            | dev   | ino | offset | last
                110 | 7   | 7   | fsync_start      | 254:0 | 11  | -      | -
                120 | 7   | 7   | writepages_start | 254:0 | 11  | 0      | 4095
                140 | 7   | 7   | writepages_end   | 254:0 | 11  | -      | -
                490 | 7   | 7   | fsync_end        | 254:0 | 11  | -      | -
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs | comm
                130 | 7   | 7   | bio_queue | 254:0 | 80     | 8         | WS   | python
                600 | 7   | 7   | bio_queue | 254:0 | 88     | 8         | W    | python
            """,
        },
        "SELECT ts, ino, reason, call, dirtier, phase, certainty FROM flushes ORDER BY ts",
        """
        ts  | ino | reason | call  | dirtier | phase | certainty
        130 | 11  | fsync  | fsync | 7       | train | exact
        600 | -   | other  | -     | -       | train | unknown
        """,
    )


def test_a_removed_files_writer_has_no_part_in_the_next_file_of_its_inode_number(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "dirty": """
                ts | pid | tid | event       | dev   | ino
                10 | 7   | 7   | dirty_folio | 254:1 | 12
                30 | 8   | 8   | dirty_folio | 254:1 | 12
            """,
            "file_writes": """
                ts | pid | tid | event      | dev   | ino
                20 | 7   | 7   | free_inode | 254:1 | 12
            """,
            "writeback": """
                ts  | pid | tid | event   | reason   | bdi
                100 | 50  | 50  | start   | periodic | 254:1
                190 | 50  | 50  | written | periodic | 254:1
            """,
            "inode_writeback": """
                ts  | pid | tid | event | dev   | ino
                150 | 50  | 50  | start | 254:1 | 12
                180 | 50  | 50  | end   | 254:1 | 12
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs | comm
                160 | 50  | 50  | bio_queue | 254:1 | 804    | 8         | W    | kworker/u8:1
            """,
        },
        "SELECT ino, dirtier, target, container, certainty, dirtiers FROM flushes",
        """
        ino | dirtier | target | container | certainty | dirtiers
        12  | 8       | b      | c2        | exact     | 1
        """,
    )


def test_the_stages_of_a_later_process_with_the_dirtier_s_number_are_not_the_dirtier_s(tmp_path):
    """Process 7 ends at 200; another 7 trains from 250 on, and process 8 loads data."""
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role   | target | comm   | ppid | start_ns | end_ns
                7   | 7   | target | a      | first  | 1    | 10       | 200
                7   | 7   | target | a      | second | 1    | 210      | -
                8   | 8   | target | b      | python | 1    | -        | -
            """,
            "phases": """
                start | end | pid | tid | name      | epoch | step
                20    | 190 | 7   | 7   | inference | -     | -
                250   | 900 | 7   | 7   | train     | -     | -
                250   | 900 | 8   | 8   | data_load | -     | -
            """,
            "dirty": """
                ts  | pid | tid | event       | dev   | ino
                50  | 7   | 7   | dirty_folio | 254:0 | 11
                260 | 7   | 7   | dirty_folio | 254:0 | 12
            """,
            "writeback": """
                ts  | pid | tid | event   | reason   | bdi
                100 | 50  | 50  | start   | periodic | 254:0
                390 | 50  | 50  | written | periodic | 254:0
            """,
            "inode_writeback": """
                ts  | pid | tid | event | dev   | ino
                110 | 50  | 50  | start | 254:0 | 11
                320 | 50  | 50  | end   | 254:0 | 11
                330 | 50  | 50  | start | 254:0 | 12
                380 | 50  | 50  | end   | 254:0 | 12
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs | comm
                120 | 50  | 50  | bio_queue | 254:0 | 80     | 8         | W    | kworker/u8:1
                310 | 50  | 50  | bio_queue | 254:0 | 88     | 8         | W    | kworker/u8:1
                350 | 50  | 50  | bio_queue | 254:0 | 808    | 8         | W    | kworker/u8:1
            """,
        },
        "SELECT f.ts, f.dirtier_comm, f.dirtied_ns, f.phase, p.phase AS in_phase"
        " FROM flushes f JOIN flushes_in_phase p USING (row) ORDER BY ts",
        """
        ts  | dirtier_comm | dirtied_ns | phase     | in_phase
        120 | first        | 50         | inference | inference
        310 | first        | 50         | -         | -
        350 | second       | 260        | train     | train
        """,
    )
