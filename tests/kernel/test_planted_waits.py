"""Delays that a load plants in its steps, and what the critical path charges them to.

Each load knows what it waited for, and how long. It plants delays of three sizes, one in each step,
and none in a fourth one, the control.
"""

from __future__ import annotations

import json

import pytest

from tests.support.planted import CHARGED, MS, assert_charged, during, load, windows
from tests.support.slow_disk import slow_disk
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.waits import waits

pytestmark = pytest.mark.quiet

SIZES = (100, 150, 200)
REQUEST_MS = 30
REQUESTS = (3, 5, 9)

WORKER = load(f"""
requests, replies = os.pipe(), os.pipe()
if os.fork() == 0:
    while True:
        ms = int(os.read(requests[0], 4))
        if not ms: os._exit(0)
        time.sleep(ms / 1000)
        os.write(replies[1], b"x")

def ask(ms):
    os.write(requests[1], b"%4d" % ms)
    os.read(replies[0], 1)

steps([*(lambda ms=ms: ask(ms) for ms in {SIZES}), nothing])
os.write(requests[1], b"   0")
os.wait()
""")

CHILD = load(f"""
once_waited_for = '''
import os, sys, time
def state():
    with open(f"/proc/{{os.getppid()}}/stat") as stat: return stat.read().split()[2]
while state() != "S": time.sleep(0.001)
os.execvp("sleep", ["sleep", sys.argv[1]])
'''

def sleep(ms):
    subprocess.run([sys.executable, "-S", "-c", once_waited_for, str(ms / 1000)], check=True)

steps([*(lambda ms=ms: sleep(ms) for ms in {SIZES}), nothing])
""")
"""The child sleeps only once its parent waits for it, however late that is on a busy machine."""

LOCK = load(f"""
lock, held = threading.Lock(), threading.Event()
begin, wanted = os.pipe(), os.pipe()

def hold():
    for ms in {SIZES}:
        os.read(begin[0], 1)
        with lock:
            held.set()
            os.read(wanted[0], 1)
            time.sleep(ms / 1000)

holder = threading.Thread(target=hold)
holder.start()

def prepare():
    os.write(begin[1], b"x")
    held.wait()
    held.clear()

def take():
    os.write(wanted[1], b"x")
    with lock:
        pass

steps([take] * 3, prepare)
holder.join()
with phases.phase("train"):
    step(3, nothing, lambda: None)
""")
"""The holder sleeps only once its lock is wanted."""

TCP = load(f"""
import socket
server = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    there = socket.create_connection(server.getsockname())
    while True:
        ms = int(there.recv(4))
        if not ms: os._exit(0)
        time.sleep(ms / 1000)
        there.send(b"x")

here = server.accept()[0]

def ask(ms):
    here.send(b"%4d" % ms)
    here.recv(1)

steps([*(lambda ms=ms: ask(ms) for ms in {SIZES}), nothing])
here.send(b"   0")
os.wait()
""")

KILLED = load(f"""
import socket
server = socket.create_server(("127.0.0.1", 0))
waits = iter({(*SIZES, 0)})

def prepare():
    global here
    if not (ms := next(waits)): return
    if os.fork() == 0:
        there = socket.create_connection(server.getsockname())
        threading.Thread(target=time.sleep, args=[60]).start()
        there.send(b"x")
        there.recv(1)
        time.sleep(ms / 1000)
        os.kill(os.getpid(), 9)
    here = server.accept()[0]
    here.recv(1)

def ask():
    here.send(b"x")
    here.recv(1)

steps([*[ask] * 3, nothing], prepare)
for _ in range(3): os.wait()
""")
"""Nobody sends: the kernel closes the sockets of a process of two threads, which was killed."""

FILE_LOCK = load(f"""
import fcntl
asked, held = os.pipe(), os.pipe()
path = f"locked-{{os.getpid()}}"
file = os.open(path, os.O_CREAT | os.O_RDWR)
if os.fork() == 0:
    file = os.open(path, os.O_RDWR)
    while True:
        ms = int(os.read(asked[0], 4))
        if not ms: os._exit(0)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(held[1], b"x")
        time.sleep(ms / 1000)
        fcntl.flock(file, fcntl.LOCK_UN)

def take(ms):
    os.write(asked[1], b"%4d" % ms)
    os.read(held[0], 1)
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_UN)

steps([*(lambda ms=ms: take(ms) for ms in {SIZES}), nothing])
os.write(asked[1], b"   0")
os.wait()
os.unlink(path)
""")

HOG = load(f"""
cpu = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {{cpu}})
os.nice(-20)
hog = os.fork()
if hog == 0:
    while True: pass

def account(process):
    with open(f"/proc/{{process}}/schedstat") as file: return [*map(int, file.read().split())]

def beside(ms):
    waited, ran = account("thread-self")[1], account(hog)[0]
    spin(ms)
    delays.append((account("thread-self")[1] - waited, account(hog)[0] - ran))

delays = []
steps([*(lambda ms=ms: beside(ms) for ms in {SIZES})])
os.kill(hog, 9)
os.wait()
with phases.phase("train"):
    step(3, nothing, lambda: None)
planted = {{"planted": planted, "delays": delays}}
""")
"""The step never sleeps: the kernel accounts how long it waits for the CPU, and the hog has it.

The rest is not all time of its own: a host may run another machine on the CPU. Load and hog have
the highest priority: no other thread often comes between them.
"""


@pytest.fixture(scope="module")
def recorded(record_loads):
    loads = {
        "worker": WORKER,
        "tcp": TCP,
        "killed": KILLED,
        "child": CHILD,
        "lock": LOCK,
        "file lock": FILE_LOCK,
        "hog": HOG,
    }
    found = record_loads(loads, "-e", "default,sched")
    critical_path(found.trace)
    waits(found.trace)
    return found


@pytest.mark.parametrize("name", ["worker", "tcp"])
def test_a_worker_that_sleeps(recorded, name):
    (child,) = set(recorded.pids(name)) - {recorded.pid(name)}
    assert_charged(recorded, name, f"kind = 'timer' AND pid = {child}")


def test_a_worker_that_is_killed(recorded):
    """The exit of a worker takes time, too."""
    assert_charged(recorded, "killed", "pid != step_pid")
    workers = set(recorded.pids("killed")) - {recorded.pid("killed")}
    found = recorded.rows(
        "SELECT DISTINCT kind, certainty, by_pid FROM waits"
        f" WHERE call = 'recvfrom' AND pid = ? AND dur_ns >= {SIZES[0] * MS}",
        recorded.pid("killed"),
    )
    assert sorted(found) == [("ipc", "inferred", pid) for pid in sorted(workers)]


def test_a_lock_of_a_file_that_another_process_holds(recorded):
    (child,) = set(recorded.pids("file lock")) - {recorded.pid("file lock")}
    assert_charged(recorded, "file lock", f"kind = 'timer' AND pid = {child}")
    assert recorded.rows(
        "SELECT DISTINCT kind, certainty, by_tid FROM waits WHERE call = 'flock' AND pid = ?"
        " AND kind != 'cpu'",
        recorded.pid("file lock"),
    ) == [("lock", "exact", child)]


def test_a_child_that_sleeps(recorded):
    *planted, control = windows(recorded, "child")
    for window, ms in zip(planted, SIZES, strict=True):
        slept = during(recorded, "child", window, "kind = 'timer' AND comm = 'sleep'")
        assert CHARGED * ms * MS <= slept <= window[1] - window[0]
    assert during(recorded, "child", control, "kind = 'timer'") == 0


def test_a_lock_that_another_thread_holds(recorded):
    assert_charged(recorded, "lock", "kind = 'timer' AND pid = step_pid AND tid != step_tid")
    pid = recorded.pid("lock")
    (holder,) = recorded.rows("SELECT tid FROM processes WHERE pid = ? AND tid != pid", pid)
    kinds = recorded.rows(
        "SELECT kind, sum(dur_ns) FROM waits WHERE tid = ? AND by_tid = ? GROUP BY 1"
        " ORDER BY 2 DESC",
        pid,
        holder[0],
    )
    assert kinds[0][0] == "lock"


def test_a_process_on_the_same_cpu(recorded):
    planted = windows(recorded, "hog")[:3]
    delays = json.loads(recorded.loads["hog"].out)["delays"]
    (hog,) = set(recorded.pids("hog")) - {recorded.pid("hog")}
    for window, (delay, ran) in zip(planted, delays, strict=True):
        waited = during(recorded, "hog", window, "kind = 'cpu'")
        assert 0 < CHARGED * delay <= waited <= delay / CHARGED
        charged = during(recorded, "hog", window, f"kind = 'cpu' AND by_pid = {hog}")
        assert 0 < CHARGED * ran <= charged  # the hog loses time to the host, too


def test_segments_add_up_to_each_step(recorded):
    found = recorded.rows(
        """
        SELECT s.total_ns, sum(p.dur_ns), min(p.ts) = s.start, max(p.ts + p.dur_ns) = s."end"
        FROM steps s JOIN critical_path p ON s.tid = p.step_tid AND s.start = p.step_start
        GROUP BY s.tid, s.start, s."end", s.total_ns
        """
    )
    assert len(found) == 28
    assert all(total == parts and first and last for total, parts, first, last in found)


def test_waits_of_a_thread_never_overlap(recorded):
    overlapping = """
        SELECT count(*) FROM (
            SELECT ts, lag(ts + dur_ns) OVER (PARTITION BY tid ORDER BY ts) AS last FROM waits
            WHERE dur_ns IS NOT NULL
        ) WHERE ts < last
    """
    assert recorded.one(overlapping) == 0
    assert recorded.one("SELECT count(*) FROM waits") > 100


SLOW = """
PAGE = 4096
device = os.open(sys.argv[1], os.O_RDWR)
os.posix_fadvise(device, 0, 0, os.POSIX_FADV_RANDOM)
whole = mmap.mmap(device, 1 << 20)
whole.madvise(mmap.MADV_RANDOM)
place = iter(range(1, 1 << 20))

def read(requests):
    for _ in range(requests): os.pread(device, PAGE, PAGE * next(place))

def touch(requests):
    for _ in range(requests): whole[PAGE * next(place)]

def sync(requests):
    for _ in range(requests):
        os.pwrite(device, bytes(PAGE), PAGE * next(place))
        os.fsync(device)
"""


ON_FUSE = """
file = os.open(sys.argv[1], os.O_RDONLY)
whole = mmap.mmap(file, 1 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ)
whole.madvise(mmap.MADV_RANDOM)
place = iter(range(1, 256))

def touch(requests):
    for _ in range(requests): whole[4096 * next(place)]
"""
"""A mapped file of a file system in user space, as a model may lie on one."""


def slow(source: str, function: str) -> str:
    waits = f"[*(lambda n=n: {function}(n) for n in {REQUESTS}), nothing]"
    return load(source + f"\nsteps({waits})")


@pytest.fixture(scope="module")
def on_a_slow_disk(record_loads, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    with slow_disk(folder, "d", REQUEST_MS) as disk:
        loads = {}
        for name in ("read", "touch", "sync"):
            (folder / f"{name}.py").write_text(slow(SLOW, name))
            loads[name] = ["/usr/bin/python3", "-S", "-E", folder / f"{name}.py", disk.device]
        (folder / "fuse.py").write_text(slow(ON_FUSE, "touch"))
        loads["fuse"] = ["/usr/bin/python3", "-S", "-E", folder / "fuse.py", disk.file]
        found = record_loads(loads, "-e", "default,sched")
        critical_path(found.trace)
        yield found


@pytest.mark.parametrize(
    ("name", "kind"), [("read", "disk"), ("touch", "fault"), ("sync", "sync"), ("fuse", "fault")]
)
def test_a_slow_disk(on_a_slow_disk, name, kind):
    assert_charged(on_a_slow_disk, name, f"kind = '{kind}' AND tid = step_tid")
    for (begin, end), requests in zip(windows(on_a_slow_disk, name), REQUESTS, strict=False):
        assert end - begin >= requests * REQUEST_MS * MS
