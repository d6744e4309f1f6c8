"""perf beside a recording: exact counts, and call graphs that agree with everything else."""

import collections
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.file_systems import FileSystems
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.analysis.views.call_graphs import WRITE_BACK, call_graphs
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.backends.perf_tools import command, stat
from tracer.store.trace import Trace
from tracer.targets.cgroups import hierarchies

pytestmark = pytest.mark.usefixtures("perfs")

CALLS, FILES, SYNCED = 9973, 23, 101
INSERT, ISSUE, QUEUE = (f"block:block_{event}" for event in ("rq_insert", "rq_issue", "bio_queue"))

RARE = "syscalls:sys_enter_sched_get_priority_max"
"""A call that nobody else makes."""


LOADS = {}
"""Programs, all of them in one recording: `graphed`. They know `disk` and `folder`."""
GRAPHS = (f"{QUEUE},{ISSUE}", "ext4:ext4_sync_file_enter", RARE, "task:task_rename",
          "page-faults,cpu-clock")  # fmt: skip


@pytest.fixture(scope="module")
def graphed(record_loads, tmp_path_factory):
    """The recording of LOADS with GRAPHS and perf's counters."""
    folder = tmp_path_factory.mktemp("disk")
    with FileSystems(folder) as file_system:
        disk, dev = file_system()
        loads = {
            name: f"disk, folder = {str(disk)!r}, {str(folder)!r}\n{source}"
            for name, source in LOADS.items()
        }
        options = [word for event in GRAPHS for word in ("--callgraph", event)]
        found = record_loads(loads, "--perf-stat", *options)
        found.dev = dev
        yield found


OF_PROCESS = "SELECT sum(count) FROM call_graphs WHERE event = ? AND pid = ?"


def test_exactly_so_many_calls_are_counted_and_children_too(load, tmp_path):
    source = f"""
        import os, sys
        sys.stdin.readline()
        for _ in range({CALLS}): os.getppid()
        if os.fork() == 0:
            for _ in range({FILES}): os.getppid()
            os._exit(0)
        os.wait()
    """
    events = ["syscalls:sys_enter_getppid", "cycles", "page-faults"]
    perf = command.find_perf()
    with (
        (tmp_path / "out").open("wb") as output,
        subprocess.Popen(load(source), stdin=subprocess.PIPE) as job,
    ):
        counters = stat.count(perf, events, output.fileno(), lambda: [job.pid])
        counters.enable()
        job.communicate(b"\n")
        assert counters.alive  # it outlives its target until it is told
        assert counters.stop() is None
    found = {v.event: v for v in stat.parse((tmp_path / "out").read_text())}
    assert found[events[0]].value == CALLS + FILES
    assert found[events[0]].state == "counted"
    assert found["page-faults"].value > 0
    supported = perf.counts("cycles")
    assert (found["cycles"].state == "not supported") is not supported
    assert (found["cycles"].value is None) is not supported


def test_calls_before_the_counters_began_are_not_counted(load, tmp_path):
    source = f"""
        import os, sys
        for _ in range(2):
            sys.stdin.readline()
            for _ in range({CALLS}): os.getppid()
            print("done", flush=True)
        sys.stdin.readline()
    """
    with (
        (tmp_path / "out").open("wb") as output,
        subprocess.Popen(
            load(source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as job,
    ):
        event = "syscalls:sys_enter_getppid"
        counters = stat.count(command.find_perf(), [event], output.fileno(), lambda: [job.pid])
        for let_in in (False, True):
            if let_in:
                counters.enable()
            job.stdin.write("\n")
            job.stdin.flush()
            job.stdout.readline()
        counters.disable()
        assert counters.stop() is None
        job.communicate("\n")
    (value,) = stat.parse((tmp_path / "out").read_text())
    assert value.value == CALLS


def test_counters_of_a_command_agree_with_the_tables(record, load, file_system):
    mount, _ = file_system()
    trace = record(
        load(
            f"""
            import os
            for n in range({SYNCED}):
                fd = os.open(f"{mount}/{{n}}", os.O_WRONLY | os.O_CREAT)
                os.write(fd, b"x" * 4096)
                os.fsync(fd)
            """
        ),
        "--perf-stat",
        "-e",
        "block,buffers",
    )
    pid = trace.manifest["targets"][0]["pid"]

    def rows(query, *parameters):
        return trace.connection.execute(query, parameters).fetchall()

    counted = {
        event: (value, state)
        for event, value, state in rows("SELECT event, value, state FROM counters")
    }
    for event, label in ((QUEUE, "bio_queue"), (ISSUE, "issue"), (INSERT, "insert")):
        mine = "SELECT count(*), 'counted' FROM block WHERE event = ? AND pid = ?"
        assert rows(mine, label, pid) == [counted[event]]
    assert counted[QUEUE][0] >= SYNCED
    touched = "SELECT count(*) FROM buffers WHERE event = 'touch_buffer' AND pid = ?"
    assert rows(touched, pid) == [(counted["block:block_touch_buffer"][0],)]
    assert counted["page-faults"][0] == counted["minor-faults"][0] + counted["major-faults"][0]
    assert counted["task-clock"][0] > 0
    for value, state in counted.values():
        assert (value is None) == (state != "counted")


LOADS["syncing"] = f"""
import os
for n in range({SYNCED}):
    fd = os.open(f"{{disk}}/{{n}}", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x" * 4096)
    os.fsync(fd)
    os.close(fd)
for n in range({FILES}):
    with open(f"{{disk}}/later{{n}}", "wb") as file: file.write(b"x" * 4096)
os.sync()
"""


def test_call_graphs_agree_with_the_block_table(graphed):
    pid = graphed.pid("syncing")
    assert graphed.one(OF_PROCESS, "ext4:ext4_sync_file_enter", pid) == SYNCED

    # Whoever wrote to the device: as many stacks as there are rows of the table block.
    ours = "SELECT pid, count(*) FROM block WHERE event = ? GROUP BY 1"
    theirs = "SELECT pid, sum(count)::BIGINT FROM call_graphs WHERE event = ? GROUP BY 1"
    of_device = "SELECT DISTINCT pid FROM block WHERE event = 'bio_queue' AND dev = ?"
    for label, event in (("bio_queue", QUEUE), ("issue", ISSUE)):
        counts, graphs = dict(graphed.rows(ours, label)), dict(graphed.rows(theirs, event))
        for (writer,) in graphed.rows(of_device, graphed.dev):
            assert graphs.get(writer) == counts.get(writer), (event, writer)

    graphs = call_graphs(graphed.trace)
    graphs = graphs[graphs.event == QUEUE]
    fsync = graphs[(graphs.pid == pid) & (graphs.chain == "fsync")]
    assert fsync["count"].sum() >= SYNCED
    assert fsync["stack"].str.contains(r"do_fsync_\[k\].*submit_bio").all()
    # Compare the reason of each bio of sync by its bracket with that by its stack.
    flushed = graphed.rows(
        f"SELECT pid, count(*) FROM {flushes(graphed.trace)} WHERE dev = ? "
        "AND certainty = 'exact' AND comm LIKE 'kworker/%' "
        "AND reason IN ('sync', 'periodic', 'background') GROUP BY 1",
        graphed.dev,
    )
    assert sum(n for _, n in flushed) >= 1
    for flusher, n in flushed:
        stacks = graphs[(graphs.pid == flusher) & (graphs.chain == WRITE_BACK)]
        assert stacks["count"].sum() >= n
        assert stacks["stack"].str.contains(r"wb_workfn_\[k\].*do_writepages").any()
        assert set(stacks.role) == {"flusher"}
    journal = graphs[graphs.comm.fillna("").str.startswith("jbd2/")]
    assert set(journal.chain) == {"journal"}


LOADS["rare"] = f"import os\nfor _ in range({CALLS}): os.sched_get_priority_max(0)"


def test_the_same_stacks_as_perf_script(graphed):
    ours = collections.Counter()
    query = "SELECT comm, pid, stack, count FROM call_graphs WHERE event = ?"
    for comm, pid, stack, count in graphed.rows(query, RARE):
        kernel = [f[:-4] for f in stack.split(";") if f.endswith("_[k]")]
        ours[comm, pid, tuple(kernel), stack.count(";") + 1] += count
    raw = graphed.trace.folder / "raw"
    said = subprocess.run(
        ["perf", "script", "-i", raw / "callgraph-0.perf.data", "--pid", str(graphed.pid("rare")),
         "-F", "comm,pid,event,ip,sym", "--kallsyms", raw / "kallsyms"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    theirs = collections.Counter()
    for sample in said.strip().split("\n\n"):
        head, *frames = sample.splitlines()
        comm, pid, event = head.split()
        kernel = [
            f.split()[1] for f in reversed(frames)
            if f.split()[0].startswith("ffff") and not f.split()[1].startswith("__traceiter")
        ]  # fmt: skip
        if event == f"{RARE}:":
            theirs[comm, int(pid), tuple(kernel), len(frames)] += 1
    assert sum(ours.values()) == CALLS
    assert ours == theirs


PAGES = 1009
LOADS["faulting"] = f"""
import mmap, time
m = mmap.mmap(-1, {PAGES} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m.madvise(mmap.MADV_NOHUGEPAGE)
for page in range({PAGES}): m[page * 4096] = 1
end = time.monotonic() + 1
while time.monotonic() < end: pass
"""


def test_a_clock_is_sampled_and_software_events_come_one_by_one(graphed):
    everybody = graphed.family(graphed.trace.manifest["targets"][0]["pid"])
    query = (
        "SELECT sum(count)::BIGINT FROM call_graphs "
        "WHERE event = 'page-faults' AND list_contains(?, pid)"
    )
    counted = "SELECT value FROM counters WHERE event = 'page-faults'"
    assert graphed.one(query, everybody) == graphed.one(counted)
    pid = graphed.pid("faulting")
    assert graphed.one(OF_PROCESS, "page-faults", pid) > PAGES
    # 999 a second, of a second of work: far from one an event, far from none.
    assert 100 < graphed.one(OF_PROCESS, "cpu-clock", pid) < 10_000


# A hostile name, a hostile file, and return addresses that claim to be the kernel's.
EVIL = "[kernel.kallsyms]\n;wb_workfn_[k]; x 1-1 1.0: block:block_rq_insert:\n\n"
LOADS["hostile"] = f"""
import ctypes, mmap, os
libc = ctypes.CDLL(None)
name = ctypes.create_string_buffer(b"x 1-1 1.0: b\\n\\n;")
libc.prctl(15, name, 0, 0, 0)
# push rbp; mov rbp, rdi; mov eax, 157 (prctl); mov edi, 15 (PR_SET_NAME); syscall;
# pop rbp; ret
code = bytes.fromhex("554889fdb89d000000bf0f0000000f055dc3")
path = folder + "/" + {EVIL!r}
with open(path, "wb") as file: file.write(code.ljust(4096, b"\\0"))
with open(path, "rb") as file:
    page = mmap.mmap(
        file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC | 2
    )
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
symbols = [line.split() for line in open("/proc/kallsyms")]
kernel = next(int(s[0], 16) for s in symbols if s[2] == "wb_workfn")
# Frames of (next frame, return address), as the kernel walks them.
frames = (ctypes.c_uint64 * 8)()
at = ctypes.addressof(frames)
frames[:] = [
    at + 16, start, at + 32, 2**64 - 128, at + 48, kernel + 16, 0, kernel + 32
]
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(start)
for _ in range({FILES}): call(at, ctypes.addressof(name))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the code is of x86-64")
def test_no_process_can_put_kernel_frames_into_its_stacks(graphed):
    found = [
        row
        for row in graphed.rows(
            "SELECT pid, comm, stack, sum(count) FROM call_graphs "
            "WHERE event = 'task:task_rename' AND pid = ? GROUP BY ALL",
            graphed.pid("hostile"),
        )
        if row[1].startswith("x ")
    ]
    assert len(found) == 1, found
    _, comm, stack, count = found[0]
    assert (comm, count) == ("x 1-1 1.0: b\n\n;", FILES)
    frames = stack.split(";")
    assert "wb_workfn_[k]" not in frames
    assert "\n" not in stack
    # Its own code and where that claims to come from, then the system call.
    kernel = [frame for frame in frames if frame.endswith("_[k]")]
    user = frames[: -len(kernel)]
    assert frames == user + kernel
    assert user[:2] == ["[unknown]"] * 2
    assert user[-1].startswith("[kernel.kallsyms]\\x0a\\x3bwb_workfn")
    assert kernel[0] == "entry_SYSCALL_64_after_hwframe_[k]"
    assert kernel[-1] == "__set_task_comm_[k]"


def test_the_manifest_says_what_perf_did(graphed):
    perf = graphed.trace.manifest["perf"]
    assert re.match(r"\d", perf["version"])
    *events, clock = ",".join(GRAPHS).split(",")
    formats = [one.pop("formats") for one in perf["callgraphs"]]
    assert perf["callgraphs"] == [
        {"file": "callgraph-0.perf.data", "events": events},
        {"file": "callgraph-1.perf.data", "events": [clock]},
    ]
    tracepoints = [event for event in events if event != "page-faults"]
    assert [list(each) for each in formats] == [tracepoints, []]
    targets = [target["name"] for target in graphed.trace.manifest["targets"]]
    assert [c["target"] for c in perf["counters"]] == targets
    assert perf["failures"] == {}
    assert perf["cpu_s"] > 0
    assert len(perf["pids"]) == 3
    assert not [pid for pid in perf["pids"] if Path("/proc", str(pid)).exists()]
    for path in graphed.trace.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.fixture
def cgroup():
    """A cgroup of our own in the hierarchy that perf counts in; its folder."""
    known = hierarchies()
    mine = [h for h in known if "perf_event" in h.controllers.split(",")]
    mine += [h for h in known if not h.controllers]
    if not mine:
        pytest.skip("no cgroup hierarchy that perf can use is mounted")
    folder = mine[0].mount / f"tracer-perf-{os.getpid()}"
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), "the cgroup to empty")
    folder.rmdir()


def test_a_cgroup_is_counted_with_who_joins_later(cgroup, tmp_path):
    """Two processes that are not there yet each write a prime number of blocks."""
    job = (
        f"echo $$ > {cgroup}/cgroup.procs; exec dd if=/dev/zero of={tmp_path}/file$$ bs=4096 "
        "count={} oflag=dsync status=none"
    )
    options = ("-e", "block", "--perf-stat", "--cgroup", cgroup)
    recorder = Tracer("record", "-o", "x.trace", *options, cwd=tmp_path)
    wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
    pids = []
    for count in (FILES, SYNCED):
        with subprocess.Popen(["sh", "-c", job.format(count)]) as process:
            pids.append(process.pid)
    recorder.send_signal(signal.SIGINT)
    _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        (facts,) = trace.manifest["perf"]["counters"]
        assert facts["cgroup"] == cgroup.name
        mine = "SELECT count(*) FROM block WHERE event = 'bio_queue' AND list_contains(?, pid)"
        counts = [
            trace.connection.execute(query, parameters).fetchone()[0]
            for query, parameters in (
                (mine + " AND comm = 'dd'", [pids]),
                ("SELECT value FROM counters WHERE event = 'block:block_bio_queue'", []),
                (mine, [pids]),
            )
        ]
    # Calls of the shells before they joined do not count.
    assert counts == sorted(counts)
    assert counts[0] >= FILES + SYNCED


def test_a_machine_wide_count(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "-e", "block", "--perf-stat", "-a", "-d", "0.5")
    query = "SELECT target, value FROM counters WHERE event = 'context-switches'"
    with Trace(tmp_path / "x.trace") as trace:
        target, value = trace.connection.execute(query).fetchone()
    assert target == "machine"
    assert value > 0
