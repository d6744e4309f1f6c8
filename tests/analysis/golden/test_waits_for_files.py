"""Waits for locks of files, FIFOs, and locks with a time limit: trace, query, expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | comm   | ppid
    7   | 7   | target  | job    | python | 1
    8   | 8   | child   | job    | worker | 7
"""
QUERY = "SELECT ts, tid, kind, call, by_comm, certainty FROM waits WHERE tid = 7 ORDER BY ts"
HEADER = "ts | tid | kind | call | by_comm | certainty"


def test_waits_for_a_lock_of_a_file_are_for_who_gave_it_up(tmp_path):
    """An interrupt or a kernel thread ends it by a server's answer (NFS), or by an alarm."""
    check(
        tmp_path,
        {
            "processes": PROCESSES + "50 | 50 | other | - | kworker/0:1 | 2\n",
            "syscalls": """
                ts   | pid | tid | name   | dur_ns | ret
                100  | 7   | 7   | flock  | 160    | 0
                300  | 7   | 7   | fcntl  | 460    | 0
                800  | 7   | 7   | fcntl  | -      | -
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | false     | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 8         | false     | 0
                410 | 40     | 7   | 7   | S     | 450     | 8         | true      | 0
                510 | 40     | 7   | 7   | D     | 550     | 50        | false     | 0
                610 | 40     | 7   | 7   | D     | 650     | 8         | true      | 0
                810 | -      | 7   | 7   | S     | -       | -         | -         | -
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | lock | flock | worker      | exact
        210 | 7 | lock | flock | -           | inferred
        310 | 7 | lock | fcntl | worker      | inferred
        410 | 7 | lock | fcntl | -           | inferred
        510 | 7 | lock | fcntl | kworker/0:1 | inferred
        610 | 7 | lock | fcntl | -           | inferred
        810 | 7 | lock | fcntl | -           | inferred
        """,
    )


def test_an_open_that_sleeps_until_another_process_opens_the_fifo(tmp_path):
    """An open that reads a folder from a disk cannot be interrupted."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name   | dur_ns | ret
                100  | 7   | 7   | openat | 60     | 4
                200  | 7   | 7   | openat | 60     | 4
                300  | 7   | 7   | openat | 60     | 4
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | false     | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | true      | 0
                310 | 40     | 7   | 7   | D     | 350     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | ipc   | openat | worker | inferred
        210 | 7 | other | openat | -      | unknown
        310 | 7 | disk  | openat | -      | inferred
        """,
    )


def test_a_lock_that_reached_its_time_limit_may_have_been_a_sleep(tmp_path):
    """Python's threads wait in this way for its global lock, 5 ms at a time."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name   | dur_ns | ret
                100  | 7   | 7   | futex  | 60     | -110
                200  | 7   | 7   | futex  | 60     | 0
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | true      | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | false     | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | lock | futex | -      | inferred
        210 | 7 | lock | futex | worker | exact
        """,
    )


def test_waits_for_asynchronous_transfers_are_for_a_disk(tmp_path):
    """Not those of io_uring without a read of the call's own: they may be for a socket."""
    check(
        tmp_path,
        {
            "processes": PROCESSES + "50 | 50 | other | - | kworker/0:1 | 2\n",
            "syscalls": """
                ts   | pid | tid | name           | dur_ns | ret
                100  | 7   | 7   | io_getevents   | 360    | 1
                500  | 7   | 7   | io_uring_enter | 360    | 1
                900  | 7   | 7   | io_uring_enter | 60     | 1
            """,
            "block": """
                ts  | tid | event     | dev   | sector | nr_sector | rwbs
                505 | 7   | bio_queue | 254:0 | 8      | 8         | R
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 0         | true      | 0
                210 | 40     | 7   | 7   | S     | 250     | 50        | false     | 0
                310 | 40     | 7   | 7   | S     | -       | -         | -         | -
                410 | 40     | 7   | 7   | S     | 450     | 8         | false     | 0
                510 | 40     | 7   | 7   | S     | 550     | 0         | true      | 0
                610 | 40     | 7   | 7   | S     | 650     | 50        | false     | 0
                710 | 40     | 7   | 7   | S     | -       | -         | -         | -
                810 | 40     | 7   | 7   | S     | 850     | 8         | false     | 0
                910 | 40     | 7   | 7   | S     | 950     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | disk  | io_getevents   | -           | inferred
        210 | 7 | disk  | io_getevents   | kworker/0:1 | inferred
        310 | 7 | disk  | io_getevents   | -           | inferred
        410 | 7 | other | io_getevents   | worker      | unknown
        510 | 7 | disk  | io_uring_enter | -           | inferred
        610 | 7 | disk  | io_uring_enter | kworker/0:1 | inferred
        710 | 7 | disk  | io_uring_enter | -           | inferred
        810 | 7 | other | io_uring_enter | worker      | unknown
        910 | 7 | other | io_uring_enter | -           | unknown
        """,
    )


def test_a_call_for_asynchronous_transfers_that_reached_its_time_limit(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name          | dur_ns | ret
                100  | 7   | 7   | io_getevents  | 60     | 0
                200  | 7   | 7   | io_pgetevents | 60     | 0
                300  | 7   | 7   | io_pgetevents | 60     | 1
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 0         | true      | 0
                210 | 40     | 7   | 7   | S     | -       | -         | -         | -
                310 | 40     | 7   | 7   | S     | 350     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | timer | io_getevents  | - | exact
        210 | 7 | timer | io_pgetevents | - | exact
        310 | 7 | disk  | io_pgetevents | - | inferred
        """,
    )


def test_a_read_at_a_place_of_a_file_is_of_no_socket(tmp_path):
    """A thread that ends it is a file system's in user space. Nothing is known of an interrupt."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name     | dur_ns | ret
                100  | 7   | 7   | pread64  | 60     | 9
                200  | 7   | 7   | pread64  | 60     | 9
                240  | 8   | 8   | sendto   | 20     | 1
                300  | 7   | 7   | pwritev  | 60     | 9
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | false     | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | ipc   | pread64 | worker | inferred
        210 | 7 | other | pread64 | -      | unknown
        310 | 7 | other | pwritev | -      | unknown
        """,
    )
