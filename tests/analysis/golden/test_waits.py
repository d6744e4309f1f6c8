"""Waits: trace, query and expected table."""

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


def test_each_kind_of_call_that_sleeps(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name            | dur_ns | ret
                100  | 7   | 7   | futex           | 60     | 0
                200  | 7   | 7   | clock_nanosleep | 60     | 0
                300  | 7   | 7   | read            | 60     | 1
                400  | 7   | 7   | poll            | 60     | 0
                500  | 7   | 7   | poll            | 60     | 1
                600  | 7   | 7   | wait4           | 60     | 8
                700  | 7   | 7   | fsync           | 60     | 0
                800  | 7   | 7   | ioctl           | 60     | 0
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 9         | false     | 0
                210 | 40     | 7   | 7   | S     | 250     | 30        | true      | 0
                310 | 40     | 7   | 7   | S     | 350     | 8         | false     | 0
                410 | 40     | 7   | 7   | S     | 450     | 0         | true      | 0
                510 | 40     | 7   | 7   | S     | 550     | 0         | true      | 0
                610 | 40     | 7   | 7   | S     | 650     | 8         | false     | 0
                710 | 40     | 7   | 7   | D     | 750     | 51        | false     | 0
                810 | 40     | 7   | 7   | S     | 850     | 0         | true      | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 40 | 7 | lock  | futex           | - | pin         | exact
        210 | 40 | 7 | timer | clock_nanosleep | - | -           | exact
        310 | 40 | 7 | ipc   | read            | - | worker      | exact
        410 | 40 | 7 | timer | poll            | - | -           | exact
        510 | 40 | 7 | ipc   | poll            | - | -           | inferred
        610 | 40 | 7 | child | wait4           | - | worker      | exact
        710 | 40 | 7 | sync  | fsync           | journal | jbd2/vda1-8 | exact
        810 | 40 | 7 | other | ioctl           | - | -           | unknown
        """,
    )


def test_the_time_from_the_wake_up_until_it_runs_is_a_wait_for_the_cpu(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | tid | name | dur_ns\n 100 | 7 | futex | 90",
            "off_cpu": """
            ts  | dur_ns | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns | ran_tid
            110 | 40     | 7   | S     | 120     | 9         | false     | 30           | 30
            160 | 20     | 7   | R+    | -       | -         | -         | 20           | 30
            185 | 3      | 7   | R     | -       | -         | -         | 3            | 0
            500 | 7      | 8   | new   | 500     | 7         | false     | 7            | 50
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 10 | 7 | lock | futex | - | pin          | exact
        120 | 30 | 7 | cpu  | futex | - | postgres     | inferred
        160 | 20 | 7 | cpu  | futex | - | postgres     | inferred
        185 | 3  | 7 | cpu  | futex | - | -            | exact
        500 | 7  | 8 | cpu  | -     | - | kworker/u8:1 | inferred
        """,
    )


def test_uninterruptible_sleeps_by_what_the_thread_had_done(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts   | pid | tid | name   | dur_ns | ret
                100  | 7   | 7   | read   | 80     | 9
                200  | 7   | 7   | write  | 90     | 9
                300  | 7   | 7   | openat | 60     | 3
                400  | 7   | 7   | write  | 60     | 9
                500  | 7   | 7   | pread64 | 60    | 9
                600  | 7   | 7   | write  | 60     | 9
                700  | 7   | 7   | getpid | 1      | 7
                900  | 7   | 7   | getpid | 1      | 7
            """,
            "block": """
                ts  | tid | event     | dev   | sector | nr_sector | rwbs
                105 | 7   | bio_queue | 254:0 | 8      | 8         | R
                106 | 8   | bio_queue | 254:1 | 8      | 8         | R
                320 | 8   | bio_queue | 254:1 | 8      | 8         | R
                580 | 7   | bio_queue | 254:0 | 8      | 8         | R
            """,
            "dirty": """
                ts  | tid | event               | dev   | pause_ns
                205 | 7   | balance_dirty_pages | 254:0 | 40
            """,
            "file_writes": """
                ts  | tid | event       | dev   | ino
                605 | 7   | fsync_start | 254:0 | 11
            """,
            "page_faults": """
                ts  | tid | kind  | user  | file
                705 | 7   | major | true  | /model.bin
                920 | 7   | minor | true  | /lib.so
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | D     | 150     | 0         | true      | 0
                210 | 40     | 7   | 7   | D     | 250     | 0         | true      | 0
                260 | 10     | 7   | 7   | D     | 270     | 51        | false     | 0
                310 | 40     | 7   | 7   | D     | 350     | 50        | false     | 0
                410 | 40     | 7   | 7   | D     | 450     | 30        | false     | 0
                510 | 40     | 7   | 7   | D     | 550     | 0         | true      | 0
                610 | 40     | 7   | 7   | D     | 650     | 0         | true      | 0
                710 | 40     | 7   | 7   | D     | 750     | 0         | true      | 0
                930 | 20     | 7   | 7   | D     | 950     | 9         | false     | 0
                960 | 20     | 7   | 7   | S     | 980     | 9         | false     | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 40 | 7 | disk  | read    | 254:0      | -            | exact
        210 | 40 | 7 | dirty | write   | 254:0      | -            | exact
        260 | 10 | 7 | sync  | write   | journal    | jbd2/vda1-8  | inferred
        310 | 40 | 7 | disk  | openat  | -          | kworker/u8:1 | inferred
        410 | 40 | 7 | lock  | write   | -          | postgres     | inferred
        510 | 40 | 7 | disk  | pread64 | -          | -            | inferred
        610 | 40 | 7 | sync  | write   | pages      | -            | exact
        710 | 40 | 7 | fault | -       | /model.bin | -            | exact
        930 | 20 | 7 | lock  | -       | -          | pin          | inferred
        960 | 20 | 7 | other | -       | -          | pin          | unknown
        """,
    )


def test_a_wait_of_unknown_cause_is_other(tmp_path):
    """No call was recorded yet; a call that did not return; an end that is not known; no waker."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | tid | name  | dur_ns
                200 | 8   | futex | -
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                100 | 40     | 7   | 7   | D     | 140     | 9         | false     | 0
                150 | 40     | 7   | 7   | -     | 190     | 9         | false     | 0
                210 | -      | 8   | 8   | S     | -       | -         | -         | -
                300 | 50     | 30  | 30  | S     | 310     | 9         | false     | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        100 | 40 | 7 | other | -     | - | pin | unknown
        150 | 40 | 7 | other | -     | - | pin | unknown
        210 | -  | 8 | lock  | futex | - | -   | exact
        """,
        targets=[{"name": "job", "role": "target", "kind": "pid", "pid": 7}],
    )


def test_without_interrupts_only_calls_that_threads_end_name_the_waker(tmp_path):
    """The backend ebpf cannot tell whether an interrupt or the thread that it hit woke another."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": """
                ts  | tid | name  | dur_ns | ret
                100 | 7   | futex | 60     | 0
                200 | 7   | read  | 60     | 1
                300 | 7   | clock_nanosleep | 60 | 0
            """,
            "block": """
                ts  | tid | event     | dev   | sector | nr_sector | rwbs
                205 | 7   | bio_queue | 254:0 | 8      | 8         | R
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 9         | 0
                210 | 40     | 7   | 7   | D     | 250     | 30        | 0
                310 | 40     | 7   | 7   | S     | 350     | 30        | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 40 | 7 | lock  | futex           | -     | pin | exact
        210 | 40 | 7 | disk  | read            | 254:0 | -   | exact
        310 | 40 | 7 | timer | clock_nanosleep | -     | -   | exact
        """,
    )


def test_waits_have_phases_and_tenants(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": """
                start | end | pid | tid | name  | epoch | step
                0     | 900 | 7   | 7   | step  | 0     | 3
                100   | 400 | 7   | 7   | fetch | 0     | 3
            """,
            "syscalls": "ts | tid | name | dur_ns\n 100 | 7 | futex | 90",
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 30        | false     | 0
            """,
        },
        "SELECT kind, by_pid, by_target, by_container, phase, epoch, step, target FROM waits",
        """
        kind | by_pid | by_target | by_container | phase | epoch | step | target
        lock | 30     | -         | c0ffee       | fetch | 0     | 3    | job
        """,
        targets=[{"name": "job", "role": "target", "kind": "pid", "pid": 7}],
    )


def test_no_waits(tmp_path):
    check(tmp_path, {"processes": PROCESSES, "off_cpu": ""}, QUERY, HEADER)


def test_a_sleep_within_reclaim_waits_for_memory(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "syscalls": "ts | tid | name | dur_ns\n 100 | 7 | read | 900",
            "reclaim": """
                ts  | tid | event        | nr_reclaimed
                200 | 7   | memcg_begin  | -
                205 | 8   | direct_begin | -
                300 | 7   | memcg_end    | 32
                300 | 7   | direct_begin | -
                400 | 7   | direct_end   | 0
                450 | 8   | direct_end   | 5
                460 | 7   | kswapd_wake  | -
            """,
            "off_cpu": """
                ts  | dur_ns | pid | tid | state | wake_ns | waker_tid | interrupt | run_delay_ns
                110 | 40     | 7   | 7   | S     | 150     | 8         | false     | 0
                210 | 40     | 7   | 7   | D     | 250     | 50        | false     | 0
                310 | 40     | 7   | 7   | D     | 350     | 0         | true      | 0
                410 | 30     | 7   | 7   | S     | 440     | 8         | false     | 0
                470 | 30     | 7   | 7   | S     | 500     | 8         | false     | 0
            """,
        },
        QUERY,
        f"""
        {HEADER}
        110 | 40 | 7 | ipc     | read | - | worker       | exact
        210 | 40 | 7 | reclaim | read | - | kworker/u8:1 | exact
        310 | 40 | 7 | reclaim | read | - | -            | exact
        410 | 30 | 7 | ipc     | read | - | worker       | exact
        470 | 30 | 7 | ipc     | read | - | worker       | exact
        """,
    )


def test_a_thread_that_comes_late_to_an_idle_cpu_is_throttled_if_its_cgroup_was(tmp_path):
    """Not if the CPU was busy or not known, the wait short, or another target was throttled."""
    late = 30_000_000
    check(
        tmp_path,
        {
            "processes": PROCESSES + "40 | 40 | target | peer | python | 1 | -\n",
            "samples": """
                ts         | target | name             | value
                1000000000 | job    | cgroup_throttled | 0
                2000000000 | job    | cgroup_throttled | 40
                2000000000 | peer   | cgroup_throttled | 0
                3000000000 | job    | cgroup_throttled | 0
                3000000000 | peer   | cgroup_throttled | 90
            """,
            "off_cpu": f"""
                ts         | dur_ns | pid | tid | state | run_delay_ns | ran_tid
                900000000  | {late} | 7   | 7   | R     | {late}       | 0
                1100000000 | {late} | 7   | 7   | R     | {late}       | 0
                1200000000 | {late} | 7   | 7   | R     | {late}       | 8
                1300000000 | 900000 | 7   | 7   | R     | 900000       | 0
                1400000000 | {late} | 40  | 40  | R     | {late}       | 0
                1500000000 | {late} | 7   | 7   | R     | {late}       | -
                2100000000 | {late} | 7   | 7   | R     | {late}       | 0
                3100000000 | {late} | 7   | 7   | R     | {late}       | 0
            """,
        },
        "SELECT ts // 100000000 AS at, tid, kind, by_comm, certainty FROM waits ORDER BY ts",
        """
        at | tid | kind      | by_comm | certainty
        9  | 7   | cpu       | -       | exact
        11 | 7   | throttled | -       | inferred
        12 | 7   | cpu       | worker  | inferred
        13 | 7   | cpu       | -       | exact
        14 | 40  | cpu       | -       | exact
        15 | 7   | cpu       | -       | inferred
        21 | 7   | cpu       | -       | exact
        31 | 7   | cpu       | -       | exact
        """,
    )


def test_a_wait_is_throttled_while_no_thread_of_the_target_runs(tmp_path):
    """Not while a third thread runs, for less than 1 ms, or for longer than the samples tell. One
    wait may be throttled several times."""
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "samples": """
                ts         | target | name             | value
                1000000000 | job    | cgroup_throttled | 0
                2000000000 | job    | cgroup_throttled | 19
                3000000000 | job    | cgroup_throttled | 0
                9000000000 | job    | cgroup_throttled | 0
                10000000000 | job   | cgroup_throttled | 4
            """,
            "off_cpu": """
                ts         | dur_ns    | pid | tid | state | run_delay_ns | ran_tid
                900000000  | 10000000  | 8   | 8   | S     | 0            | 0
                1100000000 | 200000000 | 7   | 7   | R     | 200000000    | 9
                1110000000 | 40000000  | 7   | 9   | R     | 40000000     | 7
                1105000000 | 60000000  | 8   | 8   | S     | 0            | 0
                1170000000 | 900000    | 7   | 9   | R     | 900000       | 8
                1180000000 | 130000000 | 7   | 9   | S     | 0            | 0
                1200000000 | 100000000 | 8   | 8   | S     | 0            | 0
                1500000000 | 50000000  | 7   | 7   | R     | 50000000     | 30
                1500000000 | 60000000  | 7   | 9   | S     | 0            | 0
                1500000000 | 60000000  | 8   | 8   | S     | 0            | 0
                2500000000 | 50000000  | 7   | 7   | R     | 50000000     | 9
                2500000000 | 40000000  | 7   | 9   | S     | 0            | 0
                2500000000 | 60000000  | 8   | 8   | S     | 0            | 0
                9500000000 | 50000000  | 7   | 7   | R     | 50000000     | 30
                9500000000 | 60000000  | 7   | 9   | S     | 0            | 0
                9500000000 | 60000000  | 8   | 8   | S     | 0            | 0
            """,
        },
        "SELECT ts // 1000000 AS at, dur_ns // 1000 AS us, tid, kind, by_comm, certainty "
        "FROM waits WHERE kind IN ('cpu', 'throttled') ORDER BY ts, tid",
        """
        at   | us     | tid | kind      | by_comm  | certainty
        1100 | 10000  | 7   | cpu       | pin      | inferred
        1110 | 40000  | 7   | throttled | -        | inferred
        1110 | 40000  | 9   | throttled | -        | inferred
        1150 | 50000  | 7   | cpu       | pin      | inferred
        1170 | 900    | 9   | cpu       | worker   | inferred
        1200 | 100000 | 7   | throttled | -        | inferred
        1500 | 50000  | 7   | throttled | -        | inferred
        2500 | 50000  | 7   | cpu       | pin      | inferred
        9500 | 40000  | 7   | throttled | -        | inferred
        9540 | 10000  | 7   | cpu       | postgres | inferred
        """,
    )


def test_times_without_bounds_are_no_error_beside_a_quota(tmp_path):
    latest = (1 << 63) - 1
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "samples": f"""
                ts        | target | name             | value
                -{latest} | job    | cgroup_throttled | 1
                0         | job    | cgroup_throttled | 100
                {latest}  | job    | cgroup_throttled | 100
            """,
            "off_cpu": f"""
                ts         | dur_ns   | pid | tid | state | run_delay_ns | ran_tid
                -{latest}  | {latest} | 7   | 7   | R     | {latest}     | 9
                1000000000 | {latest} | 7   | 7   | R     | {latest}     | 9
                1000000000 | {latest} | 7   | 9   | S     | 0            | 0
            """,
        },
        "SELECT count(*) AS waits FROM waits WHERE kind IN ('cpu', 'throttled') AND dur_ns <= 0",
        "waits\n 0",
    )
