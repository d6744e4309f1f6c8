"""Page faults by what they were and what they touched: exact counts, by every backend."""

import mmap
import subprocess
import sys

from tests.support.backends import every_backend
from tests.support.warm import Tracer
from tracer.store.trace import Trace

PAGES, MAJOR = 1009, 101

SOURCE = """
    import ctypes, mmap, os
    def private(pages):
        m = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        m.madvise(mmap.MADV_NOHUGEPAGE)
        return m
    m = private({minor})
    for page in range({minor}):
        m[page * 4096] = 1
    fd = os.open("{path}", os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(4096) * {major}, 0)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    f = mmap.mmap(fd, 4096 * {major})
    f.madvise(mmap.MADV_RANDOM)
    for page in reversed(range({major})):
        f[page * 4096]
    print(ctypes.addressof(ctypes.c_char.from_buffer(m)))
"""


def table(trace, query, *parameters):
    return trace.connection.execute(query, list(parameters)).fetchall()


@every_backend
def test_minor_and_major_faults_with_their_files(record, load, file_system):
    mount, _ = file_system()
    path = f"{mount}/read.dat"
    trace = record(load(SOURCE.format(minor=PAGES, major=MAJOR, path=path)))
    major = table(
        trace,
        "SELECT kind, access, count(*), count(DISTINCT file_offset), min(file_offset), "
        "max(file_offset) FROM page_faults WHERE file = ? GROUP BY ALL",
        path,
    )
    assert major == [("major", "read", MAJOR, MAJOR, 0, (MAJOR - 1) * 4096)]
    # Ours is the only place of so many writes to fresh memory, one a page.
    anonymous = table(
        trace,
        "SELECT symbol, ip_file, kind, access, count(*) n FROM page_faults "
        "WHERE file = '[anon]' AND ip_file LIKE '%mmap%.so' GROUP BY ALL",
    )
    module = mmap.__file__
    assert anonymous == [("mmap_ass_subscript", module, "minor", "write", PAGES)]
    # The file is read where a Python object is made of a byte of it.
    reads = table(
        trace,
        "SELECT symbol, ip_file, count(*) FROM page_faults WHERE file = ? GROUP BY ALL",
        path,
    )
    assert reads == [("mmap_subscript", module, MAJOR)]


def test_every_successful_fault_has_its_kind_and_its_file(record, load, tmp_path):
    trace = record(load(SOURCE.format(minor=PAGES, major=MAJOR, path=tmp_path / "f")))
    known = table(
        trace, "SELECT count(*) FILTER (kind = 'unknown'), count(*), "
        "count(*) FILTER (file IS NULL), count(*) FILTER (ip_file IS NULL) FROM page_faults"
    )  # fmt: skip
    unknown, every, without_file, without_instruction = known[0]
    assert every > PAGES + MAJOR
    # A kernel that tries with faults disabled first leaves attempts that were no fault at all.
    assert unknown <= 5
    assert without_file == 0
    assert without_instruction == 0


@every_backend
def test_as_many_minor_and_major_faults_as_perf_counts(record, load, tmp_path):
    """perf counts inside our recording the very faults that we record."""
    command = load(SOURCE.format(minor=PAGES, major=MAJOR, path=tmp_path / "f"))
    log = tmp_path / "perf.csv"
    events = ("-e", "minor-faults", "-e", "major-faults")
    trace = record(["perf", "stat", "-x", ",", "-o", str(log), *events, "--", *command])
    theirs = {}
    for line in log.read_text().splitlines():
        parts = line.split(",")
        if len(parts) > 3:
            theirs[parts[2].split("-")[0]] = int(parts[0])
    # perf counts from the program's exec on; it is the target's one child.
    ours = dict(
        table(
            trace,
            "SELECT kind, count(*) FROM page_faults f JOIN processes p USING (tid) "
            "WHERE p.role = 'child' AND kind != 'unknown' GROUP BY 1",
        )
    )
    assert theirs["major"] == ours["major"]
    # The few of perf's child before its exec are ours alone.
    assert 0 <= ours["minor"] - theirs["minor"] < 60


def test_a_child_inherits_its_parents_mappings(record, load, tmp_path):
    shared = tmp_path / "shared.dat"
    shared.write_bytes(bytes(4096 * 23))
    trace = record(
        load(
            f"""
            import mmap, os
            fd = os.open("{shared}", os.O_RDWR)
            m = mmap.mmap(fd, 4096 * 23, flags=mmap.MAP_PRIVATE)
            for page in range(23): m[page * 4096]
            for _ in range(7):
                if os.fork() == 0:
                    for page in range(23): m[page * 4096] = 1
                    os._exit(0)
                os.wait()
            """
        )
    )
    found = table(
        trace,
        "SELECT p.role, access, count(*), count(DISTINCT p.pid) FROM page_faults f "
        "JOIN processes p USING (tid) WHERE file = ? AND access = 'write' GROUP BY ALL",
        str(shared),
    )
    assert found == [("child", "write", 7 * 23, 7)]


@every_backend
def test_a_running_process_and_what_it_maps_later(tracer, tmp_path, backend):
    """Mappings from before the recording are known, and so are those made during it."""
    before, later = tmp_path / "before.dat", tmp_path / "later.dat"
    for path in (before, later):
        path.write_bytes(bytes(4096 * 31))
    source = f"""
import mmap, os, sys, time
def mapped(path):
    m = mmap.mmap(os.open(path, os.O_RDWR), 4096 * 31, flags=mmap.MAP_PRIVATE)
    return m
one = mapped("{before}")
print("ready", flush=True)
sys.stdin.readline()
for page in range(31): one[page * 4096] = 1
two = mapped("{later}")
for page in range(29): two[page * 4096] = 1
# Mapped anew over what was there: addresses change their meaning.
one.close(); two.close()
three = mapped("{later}")
for page in range(23): three[page * 4096] = 1
"""
    import threading

    with subprocess.Popen(
        [sys._base_executable, "-S", "-E", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"

        def go():
            process.stdin.write("\n")
            process.stdin.flush()

        timer = threading.Timer(4, go)
        timer.start()
        tracer("record", "--backend", backend, "-o", "x.trace", "-p", process.pid)
        timer.join()
    with Trace(tmp_path / "x.trace") as trace:
        found = dict(
            table(
                trace,
                "SELECT file, count(*) FROM page_faults WHERE access = 'write' AND file LIKE ? "
                "GROUP BY 1",
                f"{tmp_path}%",
            )
        )
    assert found == {str(before): 31, str(later): 29 + 23}


@every_backend
def test_faults_within_faults_do_not_hide_a_kind(record, load, tmp_path):
    """Whoever reads the user's stack at each fault makes more of them, which fail."""
    source = SOURCE.format(minor=PAGES, major=MAJOR, path=tmp_path / "f")
    trace = record(load(source), "--callgraph", "page-faults")
    of_user = 'SELECT DISTINCT kind FROM page_faults WHERE "user" ORDER BY 1'
    assert table(trace, of_user) == [("major",), ("minor",)]


@every_backend
def test_a_fault_that_kills_is_neither_minor_nor_major(record, load, tmp_path):
    """At an unmapped address, beyond the end of a file, and where writing is forbidden."""
    path = tmp_path / "short.dat"
    path.write_bytes(b"x")
    trace = record(
        load(
            f"""
            import ctypes, mmap, os
            fd = os.open("{path}", os.O_RDWR)
            m = mmap.mmap(fd, 1)
            os.ftruncate(fd, 0)
            def write_to(address):
                ctypes.memset(address, 1, 1)
            libc = ctypes.CDLL(None)
            libc.mmap.restype = ctypes.c_void_p
            read_only = libc.mmap(None, 4096, 1, 0x22, -1, 0)
            for number in range(23):
                if os.fork() == 0:
                    if number < 11: write_to(0x1000)
                    elif number < 18: m[0]
                    else: write_to(read_only)
                os.wait()
            """
        )
    )
    found = table(
        trace,
        "SELECT kind, access, count(*) FROM page_faults WHERE kind = 'unknown' AND \"user\" "
        "GROUP BY ALL ORDER BY ALL",
    )
    assert found == [("unknown", "read", 7), ("unknown", "write", 16)]


def test_very_many_mappings_of_a_long_path_take_little_room(tmp_path):
    """A process may have 65,530 mappings, each of a path of 4,096 bytes."""
    mappings = 5_003
    deep = tmp_path.joinpath(*["d" * 250] * 14)
    deep.mkdir(parents=True)
    path = deep / "f"
    source = f"""
import mmap, os, sys
fd = os.open({str(path)!r}, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
# The same page each time: no mapping continues the one beside it.
mapped = [mmap.mmap(fd, 4096) for _ in range({mappings})]
print(flush=True)
sys.stdin.readline()
for one in mapped[:23]: one[0] = 1
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys._base_executable, "-S", "-E", "-c", source], **pipes) as process:
        process.stdout.readline()
        with Tracer("record", "-o", "x.trace", "-p", process.pid, cwd=tmp_path) as recorder:
            said = recorder.stderr.readline()
            process.communicate(b"\n")
            _, err = recorder.communicate(timeout=120)
            assert recorder.returncode == 0, said + err
    assert sum(file.stat().st_size for file in (tmp_path / "x.trace/raw").glob("maps*")) < 1 << 20
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["loss"] == {"events": 0, "windows": 0, "unknown": 0}
        query = "SELECT count(*) FROM page_faults WHERE file = ? AND access = 'write'"
        assert table(trace, query, str(path)) == [(23,)]
