"""perf beside a recording: exact counts, call graphs that agree, and no perf left behind."""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.backends.perf_tools import command, stat
from tests.conftest import tracer_command
from tracer.store.trace import Trace

CALLS, FILES, SYNCED = 9973, 23, 101
INSERT, ISSUE, QUEUE = (f"block:block_{event}" for event in ("rq_insert", "rq_issue", "bio_queue"))

RARE = "syscalls:sys_enter_sched_get_priority_max"
"""A call that nobody else makes."""


@pytest.fixture(autouse=True)
def no_perf_is_left():
    """Every perf that a test's recorder starts ends with it."""
    before = perfs()
    yield
    deadline = time.monotonic() + 20
    while perfs() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not perfs() - before


def perfs():
    """(pid, start time) of the perfs of tracers that run now."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if Path(line[0]).name == "perf" and "--control" in line:
            found.add(pid)
    return found


def one(trace, query, *parameters):
    return trace.connection.execute(query, parameters).fetchone()[0]


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


def target_pid(trace):
    return trace.manifest["targets"][0]["pid"]


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


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
    perf = command.find()
    with (
        (tmp_path / "out").open("wb") as output,
        subprocess.Popen(load(source), stdin=subprocess.PIPE) as job,
    ):
        counters = stat.count(perf, events, lambda: [job.pid], output.fileno())
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


def test_what_came_before_the_counters_were_let_in_is_not_counted(load, tmp_path):
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
        counters = stat.count(command.find(), [event], lambda: [job.pid], output.fileno())
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
    )
    counted = {event: (value, state) for event, value, state in rows(
        trace, "SELECT event, value, state FROM counters"
    )}  # fmt: skip
    for event, label in ((QUEUE, "bio_queue"), (ISSUE, "issue"), (INSERT, "insert")):
        mine = "SELECT count(*) FROM block WHERE event = ? AND pid = ?"
        assert counted[event] == (one(trace, mine, label, target_pid(trace)), "counted")
    assert counted[QUEUE][0] >= SYNCED
    touched = "SELECT count(*) FROM buffers WHERE event = 'touch_buffer' AND pid = ?"
    assert counted["block:block_touch_buffer"][0] == one(trace, touched, target_pid(trace))
    assert counted["page-faults"][0] == counted["minor-faults"][0] + counted["major-faults"][0]
    assert counted["task-clock"][0] > 0
    for value, state in counted.values():
        assert (value is None) == (state != "counted")


def test_call_graphs_agree_with_the_block_table(record, load, file_system):
    mount, dev = file_system()
    trace = record(
        load(
            f"""
            import os
            for n in range({SYNCED}):
                fd = os.open(f"{mount}/{{n}}", os.O_WRONLY | os.O_CREAT)
                os.write(fd, b"x" * 4096)
                os.fsync(fd)
                os.close(fd)
            for n in range({FILES}):
                with open(f"{mount}/later{{n}}", "wb") as file: file.write(b"x" * 4096)
            os.sync()
            """
        ),
        "--callgraph",
        f"{QUEUE},{ISSUE}",
        "--callgraph",
        "ext4:ext4_sync_file_enter",
    )
    pid = target_pid(trace)
    mine = "SELECT sum(count) FROM call_graphs WHERE event = ? AND pid = ?"
    assert one(trace, mine, "ext4:ext4_sync_file_enter", pid) == SYNCED

    # Whoever wrote to the device: as many stacks as there are rows of the table block.
    ours = "SELECT pid, count(*) FROM block WHERE event = '{}' GROUP BY 1"
    theirs = "SELECT pid, sum(count)::BIGINT FROM call_graphs WHERE event = '{}' GROUP BY 1"
    of_device = f"SELECT DISTINCT pid FROM block WHERE event = 'bio_queue' AND dev = '{dev}'"
    for label, event in (("bio_queue", QUEUE), ("issue", ISSUE)):
        counts, graphs = dict(rows(trace, ours.format(label))), dict(
            rows(trace, theirs.format(event))
        )  # fmt: skip
        for (writer,) in rows(trace, of_device):
            assert graphs.get(writer) == counts.get(writer), (event, writer)

    from analysis.views.call_graphs import WRITE_BACK, call_graphs
    from analysis.views.flushes import flushes

    graphs = call_graphs(trace)
    graphs = graphs[graphs.event == QUEUE]
    fsync = graphs[(graphs.pid == pid) & (graphs.chain == "fsync")]
    assert fsync["count"].sum() >= SYNCED
    assert fsync["stack"].str.contains(r"do_fsync_\[k\].*submit_bio").all()
    # What the flusher wrote for sync: the reason of each bio by its bracket, and by its stack.
    view = flushes(trace)
    flushed = rows(
        trace,
        f"SELECT pid, count(*) FROM {view} WHERE dev = '{dev}' AND certainty = 'exact' "
        "AND comm LIKE 'kworker/%' AND reason IN ('sync', 'periodic', 'background') GROUP BY 1",
    )
    assert sum(n for _, n in flushed) >= 1
    for flusher, n in flushed:
        stacks = graphs[(graphs.pid == flusher) & (graphs.chain == WRITE_BACK)]
        assert stacks["count"].sum() >= n
        assert stacks["stack"].str.contains(r"wb_workfn_\[k\].*do_writepages").any()
        assert set(stacks.role) == {"flusher"}
    journal = graphs[graphs.comm.fillna("").str.startswith("jbd2/")]
    assert set(journal.chain) == {"journal"}


def test_the_same_stacks_as_perf_script(record, load, tmp_path):
    source = f"import os\nfor _ in range({CALLS}): os.sched_get_priority_max(0)"
    trace = record(load(source), "--callgraph", RARE)
    ours = collections.Counter()
    for comm, pid, stack, count in rows(trace, "SELECT comm, pid, stack, count FROM call_graphs"):
        kernel = [f[:-4] for f in stack.split(";") if f.endswith("_[k]")]
        ours[comm, pid, tuple(kernel), stack.count(";") + 1] += count
    raw = trace.folder / "raw"
    said = subprocess.run(
        ["perf", "script", "-i", raw / "callgraph-0.perf.data", "-F", "comm,pid,ip,sym",
         "--kallsyms", raw / "kallsyms"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    theirs = collections.Counter()
    for sample in said.strip().split("\n\n"):
        head, *frames = sample.splitlines()
        comm, pid = head.split()
        kernel = [
            f.split()[1] for f in reversed(frames)
            if f.split()[0].startswith("ffff") and not f.split()[1].startswith("__traceiter")
        ]  # fmt: skip
        theirs[comm, int(pid), tuple(kernel), len(frames)] += 1
    assert sum(ours.values()) == CALLS
    assert ours == theirs


def test_a_tiny_buffer_loses_events_and_the_rest_adds_up(tmp_path, load):
    """perf is stopped while the load runs: what came through and what was lost is all there was."""
    source = f"""
        import os, sys
        sys.stdin.readline()
        for _ in range({CALLS}): os.sched_get_priority_max(0)
        print("done", flush=True)
        sys.stdin.readline()
        for _ in range({FILES}): os.sched_get_priority_max(0)
    """
    command_line = tracer_command(
        "record", "-o", "x.trace", "-e", "block", "-b", "64K", "--callgraph", RARE,
        "--", *load(source),
    )  # fmt: skip
    before = perfs()
    with subprocess.Popen(
        command_line, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as recorder:  # fmt: skip
        wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
        (perf,) = perfs() - before
        os.kill(int(perf), signal.SIGSTOP)
        recorder.stdin.write("\n")
        recorder.stdin.flush()
        assert recorder.stdout.readline() == "done\n"
        os.kill(int(perf), signal.SIGCONT)
        time.sleep(0.5)
        _, err = recorder.communicate("\n", timeout=120)
    assert recorder.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        came = one(trace, "SELECT sum(count) FROM call_graphs")
        lost = rows(
            trace, 'SELECT "from", "to", count, cause FROM loss WHERE stream = \'callgraph\''
        )
        assert 0 < came < CALLS
        assert came + sum(count for _, _, count, _ in lost) == CALLS + FILES
        clock = trace.manifest["clock"]
        for start, end, _, cause in lost:
            assert cause == "buffer overrun"
            assert clock["start_ns"] < start < end < clock["end_ns"]


def test_a_killed_recorder_leaves_no_perf_and_a_readable_trace(tmp_path, load, tracer):
    source = "import os, time\nwhile True:\n    os.sched_get_priority_max(0); time.sleep(0.001)"
    with subprocess.Popen(load(source)) as job:
        try:
            recorder = subprocess.Popen(
                tracer_command(
                    "record", "-o", "x.trace", "--perf-stat", "--callgraph", RARE, "-p", job.pid
                ),
                cwd=tmp_path,
                stderr=subprocess.DEVNULL,
            )
            raw = tmp_path / "x.trace/raw"
            wait_for((raw / "threads.json").exists, "the recording")
            mine = perfs()
            assert len(mine) >= 2
            time.sleep(0.5)
            recorder.kill()
            recorder.wait()
            wait_for(lambda: not perfs() & mine, "the end of perf")
        finally:
            job.kill()
    facts = tracer("info", "x.trace", "--json").json
    assert facts["complete"] is False
    tracer("clean")
    with Trace(tmp_path / "x.trace") as trace:
        assert one(trace, "SELECT sum(count) FROM call_graphs WHERE pid = ?", job.pid) > 100
        clock = "SELECT value FROM counters WHERE event = 'task-clock'"
        assert one(trace, clock) > 0


def test_a_killed_perf_costs_its_last_samples_and_is_said(tmp_path, load):
    source = (
        f"import os, time\nfor _ in range({FILES}): os.sched_get_priority_max(0)\ntime.sleep(2)"
    )
    before = perfs()
    with subprocess.Popen(
        tracer_command("record", "-o", "x.trace", "--callgraph", RARE, "--", *load(source)),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    ) as recorder:
        wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
        (perf,) = perfs() - before
        time.sleep(1)
        os.kill(int(perf), signal.SIGKILL)
        recorder.communicate(timeout=120)
    assert recorder.returncode == 0
    with Trace(tmp_path / "x.trace") as trace:
        assert one(trace, "SELECT coalesce(sum(count), 0) FROM call_graphs") <= FILES
        assert rows(trace, "SELECT stream, count, cause FROM loss") == [
            ("callgraph", None, "perf failed: perf ended with status -9")
        ]


def test_ctrl_c_ends_perf_and_keeps_what_it_counted(tmp_path, load):
    source = "import os, time\nwhile True:\n    os.sched_get_priority_max(0); time.sleep(0.001)"
    recorder = subprocess.Popen(
        tracer_command(
            "record", "-o", "x.trace", "--perf-stat", "--callgraph", RARE, "--", *load(source)
        ),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
    time.sleep(0.5)
    os.killpg(recorder.pid, signal.SIGINT)  # as a terminal does: recorder and command
    _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["complete"] is True
        assert trace.manifest["ended_by"] == "signal"
        assert trace.manifest["loss"] == {"events": 0, "windows": 0, "unknown": 0}
        assert one(trace, "SELECT sum(count) FROM call_graphs") > 100
        assert one(trace, "SELECT value FROM counters WHERE event = 'task-clock'") > 0


def test_a_clock_is_sampled_and_software_events_come_one_by_one(record, load):
    pages = 1009
    trace = record(
        load(
            f"""
            import mmap, time
            m = mmap.mmap(-1, {pages} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            m.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range({pages}): m[page * 4096] = 1
            end = time.monotonic() + 1
            while time.monotonic() < end: pass
            """
        ),
        "--perf-stat",
        "--callgraph",
        "page-faults,cpu-clock",
    )
    pid = target_pid(trace)
    mine = "SELECT sum(count) FROM call_graphs WHERE event = ? AND pid = ?"
    counted = "SELECT value FROM counters WHERE event = 'page-faults'"
    assert one(trace, mine, "page-faults", pid) == one(trace, counted) > pages
    # 999 a second, of a second of work: far from one an event, far from none.
    assert 100 < one(trace, mine, "cpu-clock", pid) < 10_000


def test_a_machine_wide_count(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "-e", "block", "--perf-stat", "-a", "-d", "0.5")
    with Trace(tmp_path / "x.trace") as trace:
        found = rows(trace, "SELECT target, value FROM counters WHERE event = 'context-switches'")
        assert found[0][0] == "machine"
        assert found[0][1] > 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the code below is of x86-64")
def test_no_process_can_put_kernel_frames_into_its_stacks(record, load, tmp_path):
    """A hostile name, a hostile file, and return addresses that claim to be the kernel's."""
    evil = tmp_path / "[kernel.kallsyms]\n;wb_workfn_[k]; x 1-1 1.0: block:block_rq_insert:\n\n"
    trace = record(
        load(
            f"""
            import ctypes, mmap, os
            libc = ctypes.CDLL(None)
            name = ctypes.create_string_buffer(b"x 1-1 1.0: b\\n\\n;")
            libc.prctl(15, name, 0, 0, 0)
            # push rbp; mov rbp, rdi; mov eax, 157 (prctl); mov edi, 15 (PR_SET_NAME); syscall;
            # pop rbp; ret
            code = bytes.fromhex("554889fdb89d000000bf0f0000000f055dc3")
            path = {str(evil)!r}
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
        ),
        "--callgraph",
        "task:task_rename",
    )
    found = [
        row
        for row in rows(trace, "SELECT pid, comm, stack, sum(count) FROM call_graphs GROUP BY ALL")
        if row[0] == target_pid(trace) and row[1].startswith("x ")
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


class TestRefusals:
    """Before anything is started, in one line, with the mend."""

    def refused(self, ran, tmp_path):
        assert ran.err.count("\n") == 1, ran.err
        assert not (tmp_path / "x.trace").exists()
        assert not (tmp_path / "ran").exists()
        return ran.err

    @pytest.mark.parametrize("option", [["--perf-stat"], ["--callgraph", INSERT]])
    def test_no_perf(self, tracer, tmp_path, option):
        (tmp_path / "bin").mkdir()
        environment = {**os.environ, "PATH": str(tmp_path / "bin")}
        touch = shutil.which("touch")
        ran = tracer(
            "record", "-o", "x.trace", *option, "--", touch, "ran", status=5, env=environment
        )
        assert "no perf command; apt-get install linux-perf" in self.refused(ran, tmp_path)

    @pytest.mark.parametrize("event", ["block:no_such_event", "nonsense", "block:*"])
    def test_an_event_that_is_not_there(self, tracer, tmp_path, event):
        ran = tracer(
            "record", "-o", "x.trace", "--callgraph", event, "--", "touch", "ran", status=2
        )
        assert event in self.refused(ran, tmp_path)
        assert "tracer list" in ran.err

    def test_cycles_where_the_machine_has_none(self, tracer, tmp_path):
        if command.find().counts("cycles"):
            pytest.skip("this machine counts cycles")
        ran = tracer("record", "-o", "x.trace", "--callgraph", "cycles", "--", "true", status=5)
        assert "cannot count cycles" in self.refused(ran, tmp_path)

    def test_without_root(self, tmp_path):
        tmp_path.chmod(0o777)
        for parent in tmp_path.parents:
            if parent.stat().st_uid == os.geteuid() and parent.is_relative_to("/tmp/"):
                parent.chmod(0o755)
        python = sys._base_executable
        ran = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", "pass"],
            check=False,
        )
        interpreter = sys.executable if ran.returncode == 0 else None
        if interpreter is None or not os.access(interpreter, os.X_OK):
            pytest.skip("another user cannot run this interpreter")
        ran = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
             *tracer_command("record", "-o", "x.trace", "--perf-stat", "--", "touch", "ran")],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 3, ran.stderr
        assert ran.stderr.count("\n") == 1


def test_the_manifest_says_what_perf_did(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "--perf-stat", "--callgraph", INSERT, "--", "true")
    perf = json.loads((tmp_path / "x.trace/manifest.json").read_text())["perf"]
    assert re.match(r"\d", perf["version"])
    assert perf["callgraphs"] == [{"file": "callgraph-0.perf.data", "events": [INSERT]}]
    assert [c["target"] for c in perf["counters"]] == ["true"]
    assert perf["failures"] == {}
    assert perf["cpu_s"] > 0
    assert len(perf["pids"]) == 2
    for path in (tmp_path / "x.trace").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_several_perfs_of_one_recorder_end_with_it(tmp_path):
    """The last one that holds the pipe decides; none holds another's."""
    source = (
        "import os\n"
        "from probes.backends.perf_tools import command, record\n"
        "perf = command.find()\n"
        "outs = [os.open(str(n), os.O_CREAT | os.O_WRONLY) for n in range(3)]\n"
        f"ran = [record.record(perf, [{INSERT!r}], [], 64, out) for out in outs]\n"
        "for one in ran: one.wait_ready()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ran = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, check=False)
    assert ran.returncode == -9
    wait_for(lambda: not perfs(), "the end of every perf")
