"""Waits of 32-bit programs, whose calls have names of their own: trace, query, expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role    | target | comm   | ppid
    7   | 7   | target  | job    | old    | 1
    8   | 8   | child   | job    | worker | 7
"""


def test_calls_of_32_bit_programs_wait_as_those_of_64_bit_programs_do(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name                   | dur_ns | ret
                100  | 7   | 7   | futex_time64           | 60     | 0
                200  | 7   | 7   | clock_nanosleep_time64 | 60     | 0
                300  | 7   | 7   | sendfile64             | 60     | 1
                400  | 7   | 7   | ppoll_time64           | 60     | 0
                500  | 7   | 7   | _newselect             | 60     | 1
                600  | 7   | 7   | waitpid                | 60     | 8
                700  | 7   | 7   | fcntl64                | 60     | 0
                800  | 7   | 7   | io_pgetevents_time64   | 60     | 1
                900  | 7   | 7   | socketcall             | 60     | 1
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | false     | 0
                210 | 40     | 7   | 7   | S     | 250     | 0         | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 8         | false     | 0
                410 | 40     | 7   | 7   | S     | 450     | 0         | true      | 0
                510 | 40     | 7   | 7   | S     | 550     | 8         | false     | 0
                610 | 40     | 7   | 7   | S     | 650     | 8         | false     | 0
                710 | 40     | 7   | 7   | S     | 750     | 8         | false     | 0
                810 | 40     | 7   | 7   | S     | 850     | 0         | true      | 0
                910 | 40     | 7   | 7   | S     | 950     | 0         | true      | 0
            """,
        },
        "SELECT ts, kind, call, by_comm, certainty FROM waits ORDER BY ts",
        """
        ts  | kind  | call                   | by_comm | certainty
        110 | lock  | futex_time64           | worker  | exact
        210 | timer | clock_nanosleep_time64 | -       | exact
        310 | ipc   | sendfile64             | worker  | exact
        410 | timer | ppoll_time64           | -       | exact
        510 | ipc   | _newselect             | worker  | exact
        610 | child | waitpid                | worker  | exact
        710 | lock  | fcntl64                | worker  | inferred
        810 | disk  | io_pgetevents_time64   | -       | inferred
        910 | other | socketcall             | -       | unknown
        """,
    )
