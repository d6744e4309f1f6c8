"""Counts in the kernel are exact although no event is recorded."""

import signal
import subprocess

import pytest

from tests.support.loads import OTHER_THREADS_EXECUTE
from tests.support.losses import losses
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.session import summary
from tracer.store.trace import Trace

CALLS, FAILED, MINOR, MAJOR, SYNCED = 9973, 101, 1009, 103, 23


@pytest.fixture
def summed_up(tracer, tmp_path):
    def run(command, *options):
        tracer("record", "--summary", "-o", "x.trace", *options, "--", *command)
        return Trace(tmp_path / "x.trace")

    return run


def rows(trace, query, *parameters):
    return trace.connection.execute(query, list(parameters)).fetchall()


def test_calls_faults_and_their_sums(summed_up, load, file_system):
    mount, _ = file_system()
    source = f"""
        import mmap, os
        for _ in range({CALLS}): os.getppid()
        for _ in range({FAILED}):
            try: os.rmdir("/no/such/place")
            except OSError: pass
        m = mmap.mmap(-1, {MINOR} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        m.madvise(mmap.MADV_NOHUGEPAGE)
        fd = os.open("{mount}/f", os.O_CREAT | os.O_RDWR, 0o600)
        os.pwrite(fd, os.urandom(4096) * {MAJOR}, 0)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        f = mmap.mmap(fd, 4096 * {MAJOR})
        f.madvise(mmap.MADV_RANDOM)
        if os.fork() == 0:
            for page in range({MINOR}): m[page * 4096] = 1
            for page in range({MAJOR}): f[page * 4096]
            os._exit(0)
        os.wait()
    """
    with summed_up(load(source)) as trace:
        calls = rows(
            trace,
            "SELECT name, sum(count), sum(errors) FROM summaries "
            "WHERE name IN ('getppid', 'rmdir') GROUP BY 1 ORDER BY 1",
        )
        assert calls == [("getppid", CALLS, 0), ("rmdir", FAILED, FAILED)]
        histogram = rows(trace, "SELECT sum(count) FROM histograms WHERE name = 'getppid'")
        assert histogram == [(CALLS,)]
        slowest, total, fastest = rows(
            trace,
            "SELECT sum(count * high_ns), (SELECT sum(total_ns) FROM summaries "
            "WHERE name = 'getppid'), sum(count * low_ns) FROM histograms WHERE name = 'getppid'",
        )[0]
        assert fastest <= total < slowest
        faults = rows(
            trace,
            "SELECT s.name, sum(count) FROM summaries s JOIN processes p USING (pid) "
            "WHERE kind = 'fault' AND p.role = 'child' GROUP BY 1 ORDER BY 1",
        )
        assert faults[0] == ("major", MAJOR)
        # A child's own first faults are few.
        assert MINOR <= faults[1][1] < MINOR + 400
        assert trace.manifest["loss"]["windows"] == 0
        assert "syscalls" not in trace.tables


def test_calls_of_more_numbers_than_the_kernel_counts_are_a_loss(summed_up, load):
    """A process may call any number, and so fill the kernel's map."""
    source = """
        import ctypes
        libc = ctypes.CDLL(None)
        for number in range(70_001): libc.syscall(ctypes.c_long(100_000 + number))
    """
    with summed_up(load(source)) as trace:
        ((counted,),) = rows(
            trace,
            "SELECT sum(count) FROM summaries WHERE name BETWEEN 'syscall_100000' AND "
            "'syscall_199999' AND length(name) = 14",
        )
        assert 60_000 < counted < 70_001
        assert trace.manifest["loss"]["windows"] > 0


def test_a_thread_that_ends_leaves_no_call_to_the_next_one_of_its_number(summed_up, load):
    """The kernel tells no return from exit_group, but tells a child's return from clone."""
    source = """
        import ctypes, os
        # struct clone_args of include/uapi/linux/sched.h; every child has the number of the first.
        arguments = (ctypes.c_uint64 * 11)()
        arguments[4] = 17
        libc = ctypes.CDLL(None, use_errno=True)
        for life in range(23):
            child = libc.syscall(435, arguments, 88)
            if child == 0: os._exit(0)
            assert child > 0, os.strerror(ctypes.get_errno())
            os.waitpid(child, 0)
            number = ctypes.c_int(child)
            arguments[8], arguments[9] = ctypes.addressof(number), 1
    """
    with summed_up(load(source)) as trace:
        assert rows(trace, "SELECT sum(count) FROM summaries WHERE name = 'clone3'") == [(23,)]
        assert rows(trace, "SELECT * FROM summaries WHERE name LIKE 'exit%'") == []
        assert rows(trace, "SELECT * FROM histograms WHERE name LIKE 'exit%'") == []
        assert trace.manifest["loss"]["windows"] == 0


def test_an_execve_of_another_thread_than_the_first_is_counted(summed_up, load):
    """It begins under the thread's own number, and ends under that of the process."""
    with summed_up(load(OTHER_THREADS_EXECUTE)) as trace:
        per_child = rows(
            trace,
            "SELECT sum(count)::INT FROM summaries s WHERE name = 'execve' AND errors = 0 AND pid "
            "IN (SELECT pid FROM processes WHERE role = 'child') GROUP BY pid",
        )
        assert per_child == [(1,)] * 23
        assert trace.manifest["loss"]["windows"] == 0


def test_requests_and_written_pages(summed_up, load, file_system, tmp_path):
    mount, dev = file_system()
    stat = f"/sys/dev/block/{dev}/stat"
    source = f"""
        import os, time
        def written():
            fields = open("{stat}").read().split()
            return int(fields[4]), int(fields[6]) * 512
        before = written()
        fd = os.open("{mount}/f", os.O_CREAT | os.O_RDWR, 0o600)
        os.pwrite(fd, b"x" * 4096 * {SYNCED}, 0)
        os.fsync(fd)
        os.sync()
        for i in range({SYNCED}):
            os.pwrite(fd, bytes([i]) * 4096, i * 4096)
            os.fdatasync(fd)
        os.pwrite(fd, b"y" * 4096 * {SYNCED}, 0)
        os.sync()
        time.sleep(0.2)
        after = written()
        open("{tmp_path}/counted", "w").write(f"{{after[0] - before[0]}} {{after[1] - before[1]}}")
    """
    with summed_up(load(source), "-e", "block,writeback") as trace:
        # The kernel's own statistics of that device, read by the program itself.
        requests, written = map(int, (tmp_path / "counted").read_text().split())
        found = rows(
            trace,
            "SELECT sum(count), sum(bytes) FROM summaries "
            "WHERE kind = 'request' AND name = 'write' AND dev = ?",
            dev,
        )
        assert found == [(requests, written)]
        assert written > 3 * SYNCED * 4096
        counted = rows(
            trace,
            "SELECT (SELECT sum(count) FROM summaries WHERE kind = 'request'), "
            "(SELECT sum(count) FROM histograms WHERE kind = 'request')",
        )[0]
        assert counted[0] == counted[1]
        synced = rows(
            trace,
            "SELECT sum(bytes) FROM summaries WHERE kind = 'writeback' AND name = 'sync'",
        )[0][0]
        assert synced >= SYNCED * 4096


def shorter_intervals():
    """Before a recorder begins: intervals of one second instead of ten."""
    summary._INTERVAL_NS = 1_000_000_000


def test_a_killed_recorder_loses_nothing(tmp_path):
    """The last interval and the histograms are written by its guardian."""
    source = "import os, time\nwhile True: os.getppid(); time.sleep(0.001)"
    with subprocess.Popen(["python3", "-c", source]) as load:
        options = ("-o", "x.trace", "-p", load.pid)
        with Tracer(
            "record", "--summary", *options, cwd=tmp_path, before=shorter_intervals
        ) as recorder:
            path = tmp_path / "x.trace/raw/summary.jsonl"
            wait_for(lambda: path.exists() and b"\n" in path.read_bytes(), "an interval")
            before = path.read_bytes().count(b"\n")
            wait_for_rounds(load.pid, 20)
            recorder.send_signal(signal.SIGKILL)
        load.kill()
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "killed"
        assert losses(trace) == []
        intervals, calls = rows(
            trace,
            "SELECT count(DISTINCT start), sum(count)::INT FROM summaries WHERE name = 'getppid'",
        )[0]
        assert intervals == before + 1
        assert calls > 100
        kept = "SELECT sum(count)::INT FROM histograms WHERE name = 'getppid'"
        assert rows(trace, kept) == [(calls,)]


def test_with_ftrace_there_are_no_summaries(tracer):
    ran = tracer(
        "record", "--summary", "--backend", "ftrace", "-o", "x.trace", "--", "true", status=2
    )
    assert "--summary needs backend ebpf" in ran.err
