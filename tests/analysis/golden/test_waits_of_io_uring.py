"""Waits of the kernel's threads that read for an io_uring: trace, query, expected table."""

from tests.support.golden import check


def test_a_worker_waits_for_the_read_that_it_has_queued_since_it_slept(tmp_path):
    """It makes no system calls, so a thread of a program without one may be in any call."""
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role   | target | comm      | ppid
                7   | 7   | target | job    | python    | 1
                7   | 8   | target | job    | iou-wrk-7 | 1
                7   | 9   | target | job    | iou-sqp-7 | 1
            """,
            "block": """
                ts  | pid | tid | event     | dev   | sector | nr_sector | rwbs
                100 | 7   | 8   | bio_queue | 259:0 | 0      | 8         | R
                200 | 7   | 8   | bio_queue | 259:0 | 8      | 8         | RA
                400 | 7   | 8   | bio_queue | 259:0 | 16     | 8         | W
                500 | 7   | 9   | bio_queue | 259:3 | 24     | 8         | R
                600 | 7   | 7   | bio_queue | 259:0 | 32     | 8         | R
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 8   | D     | 150     | 0         | true      | 0
                160 | 30     | 7   | 8   | S     | 190     | 7         | false     | 0
                205 | 3      | 7   | 8   | R+    | -       | -         | -         | -
                210 | 40     | 7   | 8   | D     | 250     | 50        | false     | 0
                310 | 40     | 7   | 8   | D     | 350     | 0         | true      | 0
                410 | 40     | 7   | 8   | D     | 450     | 0         | true      | 0
                510 | 40     | 7   | 9   | D     | 550     | 0         | true      | 0
                610 | 40     | 7   | 7   | D     | 650     | 0         | true      | 0
            """,
        },
        "SELECT ts, tid, kind, detail, call, certainty FROM waits WHERE kind != 'cpu' ORDER BY ts",
        """
        ts  | tid | kind  | detail | call | certainty
        110 | 8   | disk  | 259:0  | -    | exact
        160 | 8   | other | -      | -    | unknown
        210 | 8   | disk  | 259:0  | -    | exact
        310 | 8   | other | -      | -    | unknown
        410 | 8   | other | -      | -    | unknown
        510 | 9   | disk  | 259:3  | -    | exact
        610 | 7   | other | -      | -    | unknown
        """,
    )
