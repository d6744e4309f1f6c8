"""Requests: trace, query and expected table."""

from tests.support.golden import check


def test_a_request_with_a_scheduler_and_one_without(tmp_path):
    check(
        tmp_path,
        {
            "block": """
                ts  | tid | pid | event     | dev   | sector | nr_sector | rwbs | comm   | error
                100 | 50  | 50  | bio_queue | 254:0 | 64     | 8         | W    | kflush | -
                110 | 50  | 50  | insert    | 254:0 | 64     | 8         | W    | kflush | -
                150 | 51  | 51  | issue     | 254:0 | 64     | 8         | W    | kblock | -
                300 | 7   | 7   | bio_queue | 254:0 | 800    | 16        | RA   | python | -
                310 | 7   | 7   | issue     | 254:0 | 800    | 16        | RA   | python | -
                400 | 0   | 0   | complete  | 254:0 | 64     | 8         | W    | idle   | 0
                420 | 0   | 0   | complete  | 254:0 | 800    | 16        | RA   | idle   | -5
            """
        },
        "SELECT operation, sector, comm, queue_ns, insert_ns, issue_ns, complete_ns, "
        "error, queue_latency_ns AS queued, service_latency_ns AS served FROM requests",
        """
        operation|sector|comm  |queue_ns|insert_ns|issue_ns|complete_ns|error|queued|served
        write    |64    |kblock|100     |110      |150     |400        |0    |50    |250
        read     |800   |python|300     |-        |310     |420        |-5   |10    |110
        """,
    )


def test_a_requeued_request_was_issued_when_the_driver_took_it(tmp_path):
    check(
        tmp_path,
        {
            "block": """
                ts  | event     | dev   | sector | nr_sector | rwbs
                100 | bio_queue | 254:0 | 64     | 8         | W
                150 | issue     | 254:0 | 64     | 8         | W
                160 | requeue   | 254:0 | 64     | 8         | W
                200 | issue     | 254:0 | 64     | 8         | W
                260 | complete  | 254:0 | 64     | 8         | W
            """
        },
        "SELECT issue_ns, queue_latency_ns, service_latency_ns FROM requests",
        """
        issue_ns | queue_latency_ns | service_latency_ns
        200      | 100              | 60
        """,
    )


def test_two_requests_at_one_sector_have_no_completion_if_one_may_be_lost(tmp_path):
    check(
        tmp_path,
        {
            "block": """
                ts  | event    | dev   | sector | nr_sector | rwbs
                150 | issue    | 254:0 | 64     | 8         | W
                250 | issue    | 254:0 | 64     | 8         | W
                300 | complete | 254:0 | 64     | 8         | W
                350 | issue    | 254:0 | 64     | 8         | W
                400 | complete | 254:0 | 64     | 8         | W
            """,
            "loss": """
                stream       | cpu | from | to  | count | cause
                machine-cpu0 | 0   | 160  | 200 | 7     | buffer overrun
            """,
        },
        "SELECT issue_ns, queue_ns, complete_ns, service_latency_ns FROM requests",
        """
        issue_ns | queue_ns | complete_ns | service_latency_ns
        150      | -        | -           | -
        250      | -        | -           | -
        350      | -        | 400         | 50
        """,
    )


def test_a_partitions_request_belongs_to_its_disk(tmp_path):
    check(
        tmp_path,
        {
            "block": """
                ts  | event     | dev   | sector | nr_sector | rwbs
                100 | bio_queue | 254:1 | 64     | 8         | W
                150 | issue     | 254:0 | 64     | 8         | W
                400 | complete  | 254:0 | 64     | 8         | W
            """
        },
        "SELECT dev, queue_latency_ns, service_latency_ns FROM requests",
        """
        dev   | queue_latency_ns | service_latency_ns
        254:0 | 50               | 250
        """,
        disks=[{"name": "vda1", "dev": "254:1", "partition_of": "254:0"}],
    )
