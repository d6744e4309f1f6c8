"""Waits for data of local sockets, which an interrupt delivers: trace, query and expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | comm        | ppid
    7   | 7   | target  | job    | python      | 1
    8   | 8   | child   | job    | worker      | 7
    30  | 30  | other   | -      | nginx       | 1
    16  | 16  | other   | -      | ksoftirqd/0 | 2
"""
QUERY = "SELECT ts, tid, kind, call, by_comm, certainty FROM waits WHERE tid = 7 ORDER BY ts"
HEADER = "ts | tid | kind | call | by_comm | certainty"


def test_a_thread_that_sends_to_a_local_socket_is_waited_for(tmp_path):
    """Not one that is between its calls, or computes in another one; nor one of no target."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name       | dur_ns | ret
                100  | 7   | 7   | accept4    | 60     | 4
                140  | 8   | 8   | connect    | 20     | 0
                200  | 7   | 7   | recvfrom   | 60     | 1
                240  | 8   | 8   | sendto     | 20     | 1
                300  | 7   | 7   | epoll_wait | 60     | 1
                340  | 8   | 8   | write      | 20     | 1
                400  | 7   | 7   | recvfrom   | 60     | 1
                440  | 8   | 8   | write      | 5      | 1
                500  | 7   | 7   | recvfrom   | 60     | 1
                540  | 8   | 8   | fsync      | 20     | 0
                600  | 7   | 7   | recvfrom   | 60     | 1
                640  | 30  | 30  | sendto     | 20     | 1
                700  | 7   | 7   | recvfrom   | 60     | 1
                800  | 7   | 7   | poll       | 60     | 0
                840  | 8   | 8   | sendto     | 20     | 1
                900  | 7   | 7   | recvfrom   | 60     | 0
                940  | 8   | 8   | exit_group | -      | -
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | true      | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 8         | true      | 0
                410 | 40     | 7   | 7   | S     | 450     | 8         | true      | 0
                510 | 40     | 7   | 7   | S     | 550     | 8         | true      | 0
                610 | 40     | 7   | 7   | S     | 650     | 30        | true      | 0
                710 | 40     | 7   | 7   | S     | 750     | 16        | true      | 0
                810 | 40     | 7   | 7   | S     | 850     | 8         | true      | 0
                910 | 40     | 7   | 7   | S     | 950     | 8         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | ipc   | accept4    | worker | inferred
        210 | 7 | ipc   | recvfrom   | worker | inferred
        310 | 7 | ipc   | epoll_wait | worker | inferred
        410 | 7 | ipc   | recvfrom   | -      | inferred
        510 | 7 | ipc   | recvfrom   | -      | inferred
        610 | 7 | ipc   | recvfrom   | -      | inferred
        710 | 7 | ipc   | recvfrom   | -      | inferred
        810 | 7 | timer | poll       | -      | exact
        910 | 7 | ipc   | recvfrom   | worker | inferred
        """,
    )


def test_a_sender_waits_for_the_thread_that_receives(tmp_path):
    """A receiver of one thread's data may be interrupted for another one, which only receives."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name     | dur_ns | ret
                100  | 7   | 7   | sendto   | 60     | 4
                140  | 8   | 8   | recvfrom | 20     | 4
                200  | 7   | 7   | recvfrom | 60     | 1
                240  | 8   | 8   | recvfrom | 20     | 1
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | true      | 0
                210 | 40     | 7   | 7   | S     | 250     | 8         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | ipc | sendto   | worker | inferred
        210 | 7 | ipc | recvfrom | -      | inferred
        """,
    )


def test_a_thread_that_has_exited_closes_its_sockets(tmp_path):
    """The last thread of a killed process does. Its number may be another thread's soon."""
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role    | target | comm   | ppid | start_ns | end_ns
                7   | 7   | target  | job    | python | 1    | -        | -
                8   | 8   | child   | job    | worker | 7    | -        | 230
                8   | 9   | child   | job    | pin    | 7    | -        | 240
                9   | 9   | child   | job    | later  | 7    | 340      | -
            """,
            "syscalls": """
                ts   | pid | tid | name       | dur_ns | ret
                100  | 7   | 7   | recvfrom   | 60     | 1
                140  | 8   | 9   | futex      | 95     | -512
                200  | 7   | 7   | recvfrom   | 60     | 0
                210  | 8   | 8   | exit_group | -      | -
                300  | 7   | 7   | recvfrom   | 60     | 1
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 9         | true      | 0
                210 | 40     | 7   | 7   | S     | 250     | 9         | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 9         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 7 | ipc | recvfrom | -   | inferred
        210 | 7 | ipc | recvfrom | pin | inferred
        310 | 7 | ipc | recvfrom | -   | inferred
        """,
    )
