"""A load of exactly N events, N a prime, is recorded as exactly N."""

import struct
import subprocess
import sys

from tests.support.backends import every_backend
from tracer.store.trace import Trace

CALLS, PAGES, SYNCED, FILES = 9973, 1009, 101, 23


def one(trace, query):
    return trace.connection.execute(query).fetchone()[0]


@every_backend
def test_system_calls(record, load):
    trace = record(load(f"import os\nfor _ in range({CALLS}): os.getppid()"))
    assert one(trace, "SELECT count(*) FROM syscalls WHERE name = 'getppid'") == CALLS
    assert one(trace, "SELECT count(*) FROM syscalls WHERE dur_ns IS NULL") == 1  # exit_group


def test_the_same_calls_as_strace(record, load, tmp_path):
    import collections
    import re

    command = load("import os\nfor _ in range(101): os.getppid()\nos.listdir('/')\n")
    trace = record(command)
    log = tmp_path / "strace.log"
    # The same kinds of stdout and stderr: the interpreter looks at them.
    subprocess.run(["strace", "-f", "-o", str(log), *command], check=True, capture_output=True)
    theirs = collections.Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    ours = dict(
        trace.connection.execute("SELECT name, count(*) FROM syscalls GROUP BY 1").fetchall()
    )
    # The kernel randomises where the heap begins, so brk may need one call more or less.
    theirs.pop("brk"), ours.pop("brk")
    assert ours == dict(theirs)


@every_backend
def test_children_and_threads_are_followed_and_nobody_else(record, load):
    trace = record(
        load(
            """
            import os, threading
            def calls():
                for _ in range(7): os.getppid()
            for _ in range(23):
                if os.fork() == 0:
                    calls()
                    if os.fork() == 0:
                        calls()
                        os._exit(0)
                    os.wait()
                    os._exit(0)
                os.wait()
            threads = [threading.Thread(target=calls) for _ in range(5)]
            for t in threads: t.start()
            for t in threads: t.join()
            """
        )
    )
    query = "SELECT count(*) FROM syscalls WHERE name = 'getppid'"
    assert one(trace, query) == 7 * (23 + 23 + 5)
    assert one(trace, "SELECT count(DISTINCT pid) FROM syscalls") == 1 + 23 + 23
    roles = trace.connection.execute(
        "SELECT p.role, count(DISTINCT p.pid) FROM syscalls s JOIN processes p USING (tid) "
        "GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert roles == [("child", 46), ("target", 1)]
    ppids = "SELECT count(DISTINCT ppid) FROM processes WHERE role = 'child'"
    assert one(trace, ppids) == 24


FAULTS = f"""
    import ctypes, mmap
    size = {PAGES} * 4096
    m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(m))
    for page in range({PAGES}):
        m[page * 4096] = 1
    print(start, start + size)
"""


def test_page_faults_on_an_anonymous_mapping(tracer, load, tmp_path):
    ran = tracer("record", "-o", "faults.trace", "--", *load(FAULTS))
    start, end = map(int, ran.out.split())
    with Trace(tmp_path / "faults.trace") as trace:
        found = trace.connection.execute(
            'SELECT access, "user", count(*), count(DISTINCT address // 4096) FROM page_faults '
            "WHERE address >= ? AND address < ? GROUP BY ALL",
            [start, end],
        ).fetchall()
    assert found == [("write", True, PAGES, PAGES)]


def test_as_many_faults_as_perf_counts(record, load):
    """perf counts from the exec on, as we do; both see the same program."""
    command = load(FAULTS)
    trace = record(command)
    counted = subprocess.run(
        ["perf", "stat", "-x", ",", "-e", "page-faults:u", "--", *command],
        check=True,
        capture_output=True,
        text=True,
    )
    theirs = int(counted.stderr.strip().splitlines()[-1].split(",")[0])
    ours = one(trace, 'SELECT count(*) FROM page_faults WHERE "user"')
    # Address randomisation moves a few faults of the loader and the allocator.
    assert abs(ours - theirs) < 0.02 * theirs
    assert ours > PAGES


def test_synced_writes(record, load, file_system):
    mount, dev = file_system()
    trace = record(
        load(
            f"""
            import os
            fd = os.open("{mount}/synced", os.O_CREAT | os.O_RDWR, 0o600)
            os.pwrite(fd, b"x" * 4096 * {SYNCED}, 0)  # allocate
            os.fsync(fd)
            for i in range({SYNCED}):
                os.pwrite(fd, bytes([i]) * 4096, i * 4096)
                os.fdatasync(fd)
            """
        )
    )
    assert one(trace, "SELECT count(*) FROM syscalls WHERE name = 'fdatasync'") == SYNCED
    from analysis.views.flushes import flushes

    flushes(trace)
    # Overwrites of allocated blocks need no journal: the data alone is written, page by page.
    found = trace.connection.execute(
        "SELECT count(*), sum(pages), count(DISTINCT page) FROM flushes "
        "WHERE dev = ? AND call = 'fdatasync'",
        [dev],
    ).fetchone()
    assert found == (SYNCED, SYNCED, SYNCED)


@every_backend
def test_pages_by_reason_on_a_file_system_of_its_own(record, load, file_system):
    """23 pages left to sync, 29 pages fsynced, then one page overwritten and fdatasynced."""
    mount, dev = file_system()
    trace = record(
        load(
            f"""
            import os
            def write(name, pages):
                fd = os.open("{mount}/" + name, os.O_CREAT | os.O_RDWR, 0o600)
                os.pwrite(fd, os.urandom(4096 * pages), 0)
                return fd
            a = write("a", {FILES})
            b = write("b", 29)
            os.fsync(b)
            os.sync()
            os.pwrite(a, b"y" * 4096, 5 * 4096)
            os.fdatasync(a)
            """
        )
    )
    from analysis.views.flushes import flushes

    flushes(trace)
    found = trace.connection.execute(
        "SELECT reason, sum(pages)::INT, sum(nr_sector)::INT FROM flushes "
        "WHERE dev = ? AND rwbs NOT LIKE '%M%' AND reason IN ('fsync', 'sync') "
        "GROUP BY 1 ORDER BY 1",
        [dev],
    ).fetchall()
    assert found == [("fsync", 30, 240), ("sync", FILES, FILES * 8)]
    sync = trace.connection.execute(
        "SELECT DISTINCT ino, certainty, target FROM flushes "
        "WHERE dev = ? AND reason = 'sync' AND rwbs NOT LIKE '%M%'",
        [dev],
    ).fetchall()
    assert len(sync) == 1
    assert sync[0][1:] == ("exact", trace.manifest["targets"][0]["name"])
    starts = "SELECT count(*) FROM writeback WHERE event = 'start' AND reason = 'sync' AND bdi = ?"
    assert trace.connection.execute(starts, [dev]).fetchone()[0] > 0


def test_requests_conserve_sectors(record, load, file_system):
    mount, dev = file_system()
    trace = record(
        load(
            f"""
            import os
            for i in range(7):
                fd = os.open("{mount}/%d" % i, os.O_CREAT | os.O_RDWR, 0o600)
                os.pwrite(fd, os.urandom(4096 * 31), 0)
                os.fsync(fd)
            """
        )
    )
    from analysis.views.requests import requests

    requests(trace)
    queued = trace.connection.execute(
        "SELECT sum(nr_sector) FROM block WHERE dev = ? AND event = 'bio_queue'", [dev]
    ).fetchone()[0]
    issued, completed, unfinished = trace.connection.execute(
        "SELECT sum(nr_sector), sum(nr_sector) FILTER (complete_ns IS NOT NULL), "
        "count(*) FILTER (complete_ns IS NULL) FROM requests WHERE dev = ?",
        [dev],
    ).fetchone()
    assert queued == issued == completed
    assert queued >= 7 * 31 * 8
    assert unfinished == 0
    latencies = "SELECT min(service_latency_ns), min(queue_latency_ns) FROM requests WHERE dev = ?"
    assert min(trace.connection.execute(latencies, [dev]).fetchone()) > 0


@every_backend
def test_the_same_block_and_writeback_events_as_perf(record, load, file_system, tmp_path):
    """perf counts inside our recording, on a device that nobody else uses."""
    mount, dev = file_system()
    major, minor = map(int, dev.split(":"))
    of_device = f"dev == {major << 20 | minor}"
    asked = {
        "block:block_bio_queue": of_device,
        "block:block_rq_issue": of_device,
        "block:block_rq_complete": of_device,
        "writeback:writeback_start": f'name == "{dev}"',
        "writeback:writeback_single_inode": f'name == "{dev}"',
        "writeback:writeback_dirty_folio": f'name == "{dev}"',
    }
    events = [part for name, only in asked.items() for part in ("-e", name, "--filter", only)]
    source = f"""
        import os, time
        for i in range(23):
            fd = os.open("{mount}/%d" % i, os.O_CREAT | os.O_RDWR, 0o600)
            os.pwrite(fd, os.urandom(4096 * (i + 1)), 0)
            if i % 3 == 0: os.fsync(fd)
        os.sync()
        time.sleep(0.2)
    """
    log = tmp_path / "perf.csv"
    perf = ["perf", "stat", "-a", "-x", ",", "-o", str(log), *events, "--"]
    trace = record([*perf, *load(source)])
    lines = [line.split(",") for line in log.read_text().splitlines() if line.count(",") > 3]
    theirs = {line[2]: int(line[0]) for line in lines}
    ours = {}
    for name in asked:
        label = name.split(":")[1]
        table, event, column = {
            "block_bio_queue": ("block", "bio_queue", "dev"),
            "block_rq_issue": ("block", "issue", "dev"),
            "block_rq_complete": ("block", "complete", "dev"),
            "writeback_start": ("writeback", "start", "bdi"),
            "writeback_single_inode": ("inode_writeback", "end", "dev"),
            "writeback_dirty_folio": ("dirty", "dirty_folio", "dev"),
        }[label]
        query = f"SELECT count(*) FROM {table} WHERE event = ? AND {column} = ?"
        ours[name] = trace.connection.execute(query, [event, dev]).fetchone()[0]
    assert ours == theirs
    assert min(ours.values()) > 0


COUNTED = """\
import os, sys, time
sys.stdin.readline()
for _ in range({}): os.getppid()
time.sleep(60)
"""


def test_several_processes_and_a_command_at_once_and_no_other(load, tracer, tmp_path):
    counts = (23, 101, 1009)
    command = [sys.executable, "-c"]
    waiting = [
        subprocess.Popen([*command, COUNTED.format(n)], stdin=subprocess.PIPE) for n in counts
    ]
    try:
        pids = [process.pid for process in waiting]
        # The recorded command lets all of them run, then makes calls of its own.
        go = "import os, sys, time\n" + "".join(
            f"open('/proc/{pid}/fd/0', 'w').write('\\n')\n" for pid in pids
        )
        tail = "time.sleep(1)\nfor _ in range(499): os.getppid()\n"
        tracer("record", "-o", "x.trace", "-p", f"{pids[0]},{pids[1]}", "--", *load(go + tail))
    finally:
        for process in waiting:
            process.kill()
            process.communicate()
    with Trace(tmp_path / "x.trace") as trace:
        found = dict(
            trace.connection.execute(
                "SELECT pid, count(*) FROM syscalls WHERE name = 'getppid' GROUP BY 1"
            ).fetchall()
        )
        targets = trace.manifest["targets"]
    assert [t["pid"] for t in targets[:2]] == pids[:2]
    assert len({t["name"] for t in targets}) == 3
    assert found == {pids[0]: 23, pids[1]: 101, targets[2]["pid"]: 499}


def test_everything_is_recorded_but_the_recorder(load, tracer, tmp_path):
    go, done = tmp_path / "go", tmp_path / "done"
    other = load(
        f"""
        import os, time
        while not os.path.exists("{go}"): time.sleep(0.01)
        for _ in range(1009): os.getppid()
        open("{done}", "w").close()
        """
    )
    command = f"touch {go}; while [ ! -e {done} ]; do sleep 0.1; done"
    with subprocess.Popen(other) as process:
        tracer("record", "-o", "x.trace", "-a", "-e", "syscalls", "--", "sh", "-c", command)
    with Trace(tmp_path / "x.trace") as trace:
        query = "SELECT count(*) FROM syscalls WHERE pid = ? AND name = 'getppid'"
        assert trace.connection.execute(query, [process.pid]).fetchone()[0] == 1009
        recorder = trace.manifest["recorder"]["pid"]
        query = "SELECT count(*) FROM syscalls WHERE pid = ?"
        assert trace.connection.execute(query, [recorder]).fetchone()[0] == 0
        assert trace.manifest["loss"]["events"] == 0


def test_a_file_system_on_a_partition(record, load, tmp_path):
    """Bios name the partition, write-back and requests the disk: the chain holds all the same."""
    from analysis.views.flushes import flushes
    from analysis.views.requests import requests

    image, mount = tmp_path / "disk.img", tmp_path / "mount"
    mount.mkdir()
    sectors = 128 << 11
    with image.open("wb") as file:
        file.truncate(sectors * 512)
        entry = struct.pack("<B3sB3sII", 0, b"\0\0\0", 0x83, b"\0\0\0", 2048, sectors - 2048)
        file.seek(446)
        file.write(entry)
        file.seek(510)
        file.write(b"\x55\xaa")

    def ran(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    disk = ran("losetup", "--find", "--show", str(image))
    try:
        ran("partx", "--add", disk)  # also where the kernel reads no partition tables
        partition = f"{disk}p1"
        numbers = [ran("lsblk", "-dno", "MAJ:MIN", name) for name in (disk, partition)]
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        ran("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", lazy, partition)
        ran("mount", partition, str(mount))
        trace = record(
            load(
                f"""
                import os
                fd = os.open("{mount}/a", os.O_CREAT | os.O_RDWR, 0o600)
                os.pwrite(fd, os.urandom(4096 * {FILES}), 0)
                os.sync()
                """
            )
        )
        flushes(trace)
        found = trace.connection.execute(
            "SELECT reason, certainty, target, sum(pages)::INT FROM flushes "
            "WHERE dev IN (?, ?) AND reason = 'sync' AND rwbs NOT LIKE '%M%' GROUP BY ALL",
            numbers,
        ).fetchall()
        assert found == [("sync", "exact", trace.manifest["targets"][0]["name"], FILES)]
        requests(trace)
        waited = trace.connection.execute(
            "SELECT count(*), count(queue_latency_ns), count(service_latency_ns) FROM requests "
            "WHERE dev = ? AND operation = 'write'",
            [numbers[0]],
        ).fetchone()
        assert waited[0] > 0
        assert waited[0] == waited[1] == waited[2]
    finally:
        subprocess.run(["umount", str(mount)], check=False, capture_output=True)
        subprocess.run(["partx", "--delete", disk], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", disk], check=False)


def test_sync_calls_and_the_pages_that_they_write(record, load, file_system):
    mount, dev = file_system()
    trace = record(
        load(
            f"""
            import os
            fd = os.open("{mount}/f", os.O_CREAT | os.O_RDWR, 0o600)
            for i in range({FILES}):
                os.pwrite(fd, bytes([i]) * 4096, i * 4096)
                os.sync()
            """
        )
    )
    assert one(trace, "SELECT count(*) FROM syscalls WHERE name = 'sync'") == FILES
    from analysis.views.flushes import flushes

    flushes(trace)
    pages = trace.connection.execute(
        "SELECT sum(pages), count(DISTINCT page) FROM flushes "
        "WHERE dev = ? AND reason = 'sync' AND rwbs NOT LIKE '%M%'",
        [dev],
    ).fetchone()
    assert pages == (FILES, FILES)
