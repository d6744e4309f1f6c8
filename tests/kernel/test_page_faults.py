"""Page faults by what they were and what they touched: exact counts, by every backend."""

import mmap
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests.support.backends import every_backend_of_calls
from tests.support.file_systems import FileSystems
from tests.support.loads import PYTHON, program
from tests.support.losses import losses
from tests.support.warm import Tracer
from tracer.store import manifest as manifests
from tracer.store.finalize import finalize
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

SHARED = """
    import mmap, os
    anonymous = mmap.mmap(-1, 4096 * {anonymous})
    for page in range({anonymous}): anonymous[page * 4096] = 1
    fd = os.open("{path}", os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(4096) * {cold}, 0)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    file = mmap.mmap(fd, 4096 * {cold})
    file.madvise(mmap.MADV_RANDOM)
    for page in range({cold}): file[page * 4096] = 1
"""
ANONYMOUS, COLD = 67, 71

INHERITED = """
    import mmap, os
    fd = os.open("{path}", os.O_RDWR)
    m = mmap.mmap(fd, 4096 * 23, flags=mmap.MAP_PRIVATE)
    for page in range(23): m[page * 4096]
    for _ in range(7):
        if os.fork() == 0:
            for page in range(23): m[page * 4096] = 1
            os._exit(0)
        os.wait()
"""

# At an unmapped address, beyond the end of a file, and where writing is forbidden.
KILLED = """
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

# The first thread ends, by a system call alone, before another one writes.
ALONE = """
    import ctypes, mmap, os, threading
    fd = os.open("{path}", os.O_RDWR)
    m = mmap.mmap(fd, 4096 * 19, flags=mmap.MAP_PRIVATE)
    def write():
        state = "R"
        while state != "Z":
            with open(f"/proc/{{os.getpid()}}/stat") as stat:
                state = stat.read().rpartition(")")[2].split()[0]
        for page in range(19): m[page * 4096] = 1
        os._exit(0)
    threading.Thread(target=write).start()
    ctypes.CDLL(None).pthread_exit(None)
"""

RUNNING = """
import mmap, os, sys
def mapped(path):
    return mmap.mmap(os.open(path, os.O_RDWR), 4096 * 31, flags=mmap.MAP_PRIVATE)
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

LET_GO = """
    import os, select
    running = os.pidfd_open({pid})
    with open("/proc/{pid}/fd/0", "w") as stdin: stdin.write("\\n")
    select.select([running], [], [])
"""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    """One recording of all loads, and of a process that ran before it; the loads' files."""
    folder = tmp_path_factory.mktemp("files")
    files = SimpleNamespace(
        perf=folder / "perf.csv",
        shared=folder / "shared.dat",
        short=folder / "short.dat",
        alone=folder / "alone.dat",
        before=folder / "before.dat",
        later=folder / "later.dat",
    )
    for path, size in (
        (files.shared, 4096 * 23), (files.short, 1), (files.before, 4096 * 31),
        (files.later, 4096 * 31), (files.alone, 4096 * 19),
    ):  # fmt: skip
        path.write_bytes(bytes(size))
    running = RUNNING.format(before=files.before, later=files.later)
    with (
        FileSystems(folder) as file_system,
        subprocess.Popen(
            [*PYTHON, "-c", running], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
    ):
        mount, _ = file_system()
        files.read, files.written = mount / "read.dat", mount / "written.dat"
        assert process.stdout.readline() == b"ready\n"
        faults = SOURCE.format(minor=PAGES, major=MAJOR, path=folder / "counted")
        counted = program(folder, "counted", faults)
        loads = {
            "faults": SOURCE.format(minor=PAGES, major=MAJOR, path=files.read),
            "perf": [
                *("perf", "stat", "-x", ",", "-o", files.perf),
                *("-e", "minor-faults", "-e", "major-faults", "--", *counted),
            ],
            "shared": SHARED.format(anonymous=ANONYMOUS, cold=COLD, path=files.written),
            "inherited": INHERITED.format(path=files.shared),
            "killed": KILLED.format(path=files.short),
            "alone": ALONE.format(path=files.alone),
            "let go": LET_GO.format(pid=process.pid),
        }
        try:
            options = ("-e", "page_faults", "-p", process.pid)
            recorded = record_loads(loads, *options, backend=backend)
        finally:
            process.kill()
        recorded.files = files
        yield recorded


@every_backend_of_calls
def test_minor_and_major_faults_with_their_files(recorded):
    path = str(recorded.files.read)
    major = recorded.rows(
        "SELECT kind, access, count(*), count(DISTINCT file_offset), min(file_offset), "
        "max(file_offset) FROM page_faults WHERE file = ? GROUP BY ALL",
        path,
    )
    assert major == [("major", "read", MAJOR, MAJOR, 0, (MAJOR - 1) * 4096)]
    # Ours is the only place of so many writes to fresh memory, one a page.
    anonymous = recorded.rows(
        "SELECT symbol, ip_file, kind, access, count(*) n FROM page_faults "
        "WHERE file = '[anon]' AND ip_file LIKE '%mmap%.so' AND pid = ? GROUP BY ALL",
        recorded.pid("faults"),
    )
    module = mmap.__file__
    assert anonymous == [("mmap_ass_subscript", module, "minor", "write", PAGES)]
    # The file is read where a Python object is made of a byte of it.
    reads = recorded.rows(
        "SELECT symbol, ip_file, count(*) FROM page_faults WHERE file = ? GROUP BY ALL",
        path,
    )
    assert reads == [("mmap_subscript", module, MAJOR)]


@every_backend_of_calls
def test_every_successful_fault_has_its_kind_and_its_file(recorded):
    unknown, every, without_file, without_instruction = recorded.rows(
        "SELECT count(*) FILTER (kind = 'unknown'), count(*), "
        "count(*) FILTER (file IS NULL), count(*) FILTER (ip_file IS NULL) FROM page_faults "
        "WHERE pid = ?",
        recorded.pid("faults"),
    )[0]
    assert every > PAGES + MAJOR
    # A kernel that tries with faults disabled first leaves attempts that were no fault at all.
    assert unknown <= 5
    assert without_file == 0
    assert without_instruction == 0


@every_backend_of_calls
def test_the_numbers_of_minor_and_major_faults_equal_perfs(recorded):
    """perf counts inside our recording the very faults that we record."""
    theirs = {}
    for line in recorded.files.perf.read_text().splitlines():
        parts = line.split(",")
        if len(parts) > 3:
            theirs[parts[2].split("-")[0]] = int(parts[0])
    # perf counts from the program's exec on; it is perf's one child.
    ours = dict(
        recorded.rows(
            "SELECT kind, count(*) FROM page_faults f JOIN processes p USING (tid) "
            "WHERE p.ppid = ? AND kind != 'unknown' GROUP BY 1",
            recorded.pid("perf"),
        )
    )
    assert theirs["major"] == ours["major"]
    # The few of perf's child before its exec are ours alone.
    assert 0 <= ours["minor"] - theirs["minor"] < 60


WRITTEN = "SELECT kind, count(*)::INT FROM page_faults WHERE access = 'write'"


def kinds_of_shared(rows, recorded):
    """Returns the kinds of the writes to shared memory of no file, and to the cold file."""
    of_load = f"{WRITTEN} AND pid = {recorded.pid('shared')}"
    return [
        rows(f"{of_load} AND file LIKE {name!r} GROUP BY 1")
        for name in ("/dev/zero%", str(recorded.files.written))
    ]


@every_backend_of_calls
def test_writes_to_shared_memory_are_major_only_if_the_kernel_s_word_can_be_taken(recorded):
    retried = recorded.trace.manifest["kernel"]["retries_are_major"]
    assert kinds_of_shared(recorded.rows, recorded) == [
        [("unknown" if retried else "minor", ANONYMOUS)],
        [("unknown" if retried else "major", COLD)],
    ]


@pytest.mark.parametrize("backend", ["ftrace"], scope="module")
def test_no_write_to_shared_memory_is_major_where_retries_are(recorded, tmp_path):
    """The same recording, as a kernel before 6.0 would have to be read; rows are the same for all
    backends."""
    folder = tmp_path / "old.trace"
    shutil.copytree(recorded.trace.folder, folder)
    manifest = manifests.read(folder)
    manifest["kernel"]["retries_are_major"] = True
    finalize(folder, manifest)
    with Trace(folder) as trace:
        assert kinds_of_shared(trace.rows, recorded)[1] == [("unknown", COLD)]
        of_file = f"file = {str(recorded.files.read)!r}"
        majors = f"SELECT count(*) FROM page_faults WHERE kind = 'major' AND {of_file}"
        assert trace.rows(majors) == [(MAJOR,)]


@every_backend_of_calls
def test_a_child_inherits_its_parents_mappings(recorded):
    found = recorded.rows(
        "SELECT p.ppid, access, count(*), count(DISTINCT p.pid) FROM page_faults f "
        "JOIN processes p USING (tid) WHERE file = ? AND access = 'write' GROUP BY ALL",
        str(recorded.files.shared),
    )
    assert found == [(recorded.pid("inherited"), "write", 7 * 23, 7)]


@every_backend_of_calls
def test_mappings_outlive_the_first_thread(recorded):
    found = recorded.rows(
        "SELECT file, count(*) FROM page_faults WHERE access = 'write' AND pid = ? AND tid != pid "
        'AND ts > (SELECT end_ns FROM processes WHERE tid = ?) AND "user" GROUP BY 1',
        recorded.pid("alone"),
        recorded.pid("alone"),
    )
    assert (str(recorded.files.alone), 19) in found
    assert None not in dict(found)


@every_backend_of_calls
def test_a_running_process_and_what_it_maps_later(recorded):
    """Mappings from before the recording are known, and so are those made during it."""
    before, later = str(recorded.files.before), str(recorded.files.later)
    found = recorded.rows(
        "SELECT file, count(*) FROM page_faults WHERE access = 'write' AND file IN (?, ?) "
        "GROUP BY 1",
        before,
        later,
    )
    assert dict(found) == {before: 31, later: 29 + 23}


@every_backend_of_calls
def test_a_fault_that_kills_is_neither_minor_nor_major(recorded):
    found = recorded.rows(
        "SELECT kind, access, count(*) FROM page_faults WHERE kind = 'unknown' AND \"user\" "
        "AND list_contains(?, pid) GROUP BY ALL ORDER BY ALL",
        recorded.pids("killed"),
    )
    assert found == [("unknown", "read", 7), ("unknown", "write", 16)]


@every_backend_of_calls
def test_faults_within_faults_do_not_hide_a_kind(record, load, tmp_path):
    """Whoever reads the user's stack at each fault makes more of them, which fail."""
    source = SOURCE.format(minor=101, major=23, path=tmp_path / "f")
    trace = record(load(source), "-e", "page_faults", "--callgraph", "page-faults")
    of_user = 'SELECT DISTINCT kind FROM page_faults WHERE "user" ORDER BY 1'
    assert trace.connection.execute(of_user).fetchall() == [("major",), ("minor",)]


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
    with subprocess.Popen([*PYTHON, "-c", source], **pipes) as process:
        process.stdout.readline()
        with Tracer("record", "-o", "x.trace", "-p", process.pid, cwd=tmp_path) as recorder:
            said = recorder.stderr.readline()
            process.communicate(b"\n")
            _, err = recorder.communicate(timeout=120)
            assert recorder.returncode == 0, said + err
    assert sum(file.stat().st_size for file in (tmp_path / "x.trace/raw").glob("maps*")) < 1 << 20
    with Trace(tmp_path / "x.trace") as trace:
        assert losses(trace) == []
        query = "SELECT count(*) FROM page_faults WHERE file = ? AND access = 'write'"
        assert trace.connection.execute(query, [str(path)]).fetchall() == [(23,)]
