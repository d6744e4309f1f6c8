"""Containers as targets: calls count to their container, also after joins, forks and restarts."""

import os
import shlex
import signal
import subprocess
import threading

import pytest

from tests.conftest import tracer_command
from tests.docker.conftest import BRIEF, CALLS, calls, init_of, wait_for
from tests.support.backends import every_backend
from tests.support.dockerd import python
from tests.support.losses import losses
from tracer.probes.errors import TargetGone
from tracer.probes.kernel import syscall_names
from tracer.probes.proc import read_stat
from tracer.targets.containers import AwaitedContainer, from_names

A, B, OTHER, HOST, LATER = 9973, 101, 757, 499, 1009
TIMES = "import os\nfor _ in range({}): os.times()"
"""Program that calls times, which runc never does, unlike getppid."""


@pytest.fixture
def perf_count(tmp_path):
    """Starts to count a process's calls by `perf stat`; returns a function that ends it.

    That function returns the count.
    """

    def begin(pid, name):
        number = next(nr for nr, known in syscall_names().items() if known == name)
        for fifo in ("control", "done"):
            subprocess.run(["mkfifo", tmp_path / fifo], check=True)
        event = ["-e", "raw_syscalls:sys_enter", "--filter", f"id == {number}"]
        control = ["-D", "-1", f"--control=fifo:{tmp_path}/control,{tmp_path}/done"]
        log = tmp_path / "perf.csv"
        perf = subprocess.Popen(
            ["perf", "stat", "-x", ",", "-o", log, *control, *event, "-p", str(pid)]
        )
        with (tmp_path / "control").open("w") as word, (tmp_path / "done").open() as answer:
            word.write("enable\n")
            word.flush()
            assert answer.readline() == "ack\n"

        def end():
            perf.send_signal(2)
            perf.wait()
            return int(log.read_text().strip().splitlines()[-1].split(",")[0])

        return end

    return begin


def test_each_call_counts_to_its_own_target(start, start_on_host, tell, record, perf_count):
    containers = {name: start(name, CALLS, n) for name, n in (("a1", A), ("b1", B), ("c1", OTHER))}
    host = start_on_host("host", CALLS, HOST)
    tell(None, "a1-is-up", "b1-is-up", "c1-is-up", "host-is-up")
    recording = record("--container", "a1, b1", "-p", host.pid)
    theirs = perf_count(init_of(containers["a1"]), "getppid")
    tell("go", "a1-is-done", "b1-is-done", "c1-is-done", "host-is-done")
    with recording.stop() as trace:
        facts = trace.manifest["targets"]
        name = next(t["name"] for t in facts if t["kind"] == "pid")
        expected = [("a1", "target", A), ("b1", "target", B), (name, "target", HOST)]
        assert calls(trace) == sorted(expected)
        assert losses(trace) == []
        assert [t.get("container") for t in facts if t["kind"] == "container"] == [
            containers["a1"].id,
            containers["b1"].id,
        ]
        assert theirs() == A
        # The trace knows the container of every process.
        found = trace.connection.execute(
            "SELECT DISTINCT container_name, container_id, role FROM processes "
            "WHERE container_name IN ('a1', 'b1', 'c1') ORDER BY 1"
        ).fetchall()
        assert found == [
            ("a1", containers["a1"].id, "target"),
            ("b1", containers["b1"].id, "target"),
            ("c1", containers["c1"].id, "other"),
        ]


@every_backend
def test_later_executed_programs_belong_to_the_container(dockerd, start, tell, record, backend):
    container = start("exec", CALLS, A)
    other = start("other", CALLS, OTHER)
    tell(None, "exec-is-up", "other-is-up")
    recording = record("--container", container.id[:12], *BRIEF, "--backend", backend)
    assert dockerd.execute(container, python(TIMES.format(LATER))) == 0
    assert dockerd.execute(other, python(TIMES.format(B))) == 0
    assert dockerd.execute(container, ["sh", "-c", "sleep 0; sleep 0 & wait"]) == 0
    tell("go", "exec-is-done", "other-is-done")
    with recording.stop() as trace:
        assert calls(trace, "times") == [("exec", "target", LATER)]
        assert sum(n for *_, n in calls(trace)) >= A
        assert losses(trace) == []
        # The shell was executed in the container, and made both sleeps there.
        found = trace.connection.execute(
            "SELECT role, count(DISTINCT pid) FROM processes WHERE comm = 'sleep' AND "
            "target = 'exec' GROUP BY 1"
        ).fetchall()
        assert found == [("child", 2)]


def test_a_restart_is_followed(dockerd, start, tell, record):
    source = f"for _ in range({B}): os.times()\nsay('done-%d' % os.stat('/shared/go').st_size)\n"
    container = start("again", source + "time.sleep(1000)")
    tell(None, "again-is-up")
    recording = record("--container", "again", *BRIEF)
    tell("go", "done-0")
    first = init_of(container)
    container.restart(timeout=0)
    wait_for(lambda: init_of(container) not in (0, first), "the restart")
    assert dockerd.execute(container, python(TIMES.format(LATER))) == 0

    with recording.stop() as trace:
        # One run before and one after the restart, and the program executed in the second run.
        found = trace.connection.execute(
            "SELECT count(*) FROM syscalls WHERE name = 'times' GROUP BY pid ORDER BY min(ts)"
        ).fetchall()
        assert found == [(B,), (B,), (LATER,)]
        assert {target for target, *_ in calls(trace, "times")} == {"again"}
        assert losses(trace) == []


def test_a_container_whose_cgroup_cannot_be_seen_is_refused(start, tell, tmp_path):
    """A container without the host's /sys/fs/cgroup would record nothing."""
    container = start("unseen", CALLS, A)
    tell(None, "unseen-is-up")
    record = shlex.join(tracer_command("record", "--container", "unseen", "-o", "x.trace"))
    hidden = f"mount -t tmpfs none /sys/fs/cgroup && exec {record}"
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hidden],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 5, ran.stderr
    assert "no cgroup of container unseen is visible here" in ran.stderr
    assert f"-p {init_of(container)}" in ran.stderr
    assert not (tmp_path / "x.trace").exists()


@pytest.mark.parametrize("wait", [False, True])
def test_a_container_that_has_just_ended_does_not_run(start, tell, wait):
    """Stops the shim, so that the daemon hears of the end only after it was asked."""
    init = init_of(start("brief", CALLS, A))
    tell(None, "brief-is-up")
    (running,) = from_names(["brief"])
    assert running.pid == init
    shim = read_stat(init).ppid
    os.kill(shim, signal.SIGSTOP)
    told = threading.Timer(0.2, os.kill, (shim, signal.SIGCONT))
    try:
        os.kill(init, signal.SIGKILL)
        wait_for(lambda: read_stat(init).ended, "the end of the container")
        told.start()
        if wait:
            (target,) = from_names(["brief"], wait=True)
            assert isinstance(target, AwaitedContainer)
        else:
            with pytest.raises(TargetGone, match=r"container brief is not running \(exited\)"):
                from_names(["brief"])
    finally:
        os.kill(shim, signal.SIGCONT)


def test_the_recording_waits_for_a_stopped_container_until_it_is_removed(start, tell, record):
    container = start("paused", f"for _ in range({B}): os.times()\nsay(sys.argv[2])", "done")
    tell(None, "paused-is-up")
    recording = record("--container", "paused", *BRIEF)
    tell("go", "done")
    container.wait()
    container.start()
    container.wait()
    assert recording.process.poll() is None
    container.remove()
    with recording.trace() as trace:
        assert trace.manifest["ended_by"] == "target"
        assert calls(trace, "times") == [("paused", "target", 2 * B)]


FORKS, EACH = 101, 7
STORM = """
for i in range(int(sys.argv[2])):
    if os.fork() == 0:
        for _ in range(7): os.times()
        if i % 2: os._exit(0)
        os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", "import os; os.times()"])
    os.wait()
say(name + "-is-done")
time.sleep(1000)
"""


def test_a_storm_of_forks_and_execs_is_counted_whole(start, tell, record):
    start("storm", STORM, FORKS)
    start("squall", STORM, FORKS // 2)
    tell(None, "storm-is-up", "squall-is-up")
    recording = record("--container", "storm", *BRIEF)
    tell("go", "storm-is-done", "squall-is-done")
    with recording.stop() as trace:
        assert calls(trace, "times") == [("storm", "child", FORKS * EACH + (FORKS + 1) // 2)]
        assert losses(trace) == []
        made = trace.connection.execute(
            "SELECT count(DISTINCT pid) FROM processes WHERE target = 'storm' AND role = 'child'"
        ).fetchone()
        assert made == (FORKS,)


HOSTILE = """
import ctypes, threading
libc = ctypes.CDLL(None)
names = [b"jbd2/sda1-8", b"kworker/0:1", b"\\x1b[31m\\n\\xff", b") S 1 1 (x"]
def work(comm):
    libc.prctl(15, comm)  # PR_SET_NAME
    for _ in range(23): os.times()
    time.sleep(1)
threads = [threading.Thread(target=work, args=(comm,)) for comm in names]
for t in threads: t.start()
say(name + "-is-done")
time.sleep(1000)
"""


def test_hostile_names_are_escaped(start, tell, record, tracer):
    name = "x_.-" + "z" * 200
    start(name, HOSTILE)
    tell(None, f"{name}-is-up")
    recording = record("--container", name)
    tell("go", f"{name}-is-done")
    with recording.stop() as trace:
        assert calls(trace, "times") == [(name, "target", 4 * 23)]
        found = trace.connection.execute(
            "SELECT DISTINCT role FROM processes WHERE container_name = ?", [name]
        ).fetchall()
        assert found == [("target",)]
    for verb in ("info", "report"):
        ran = tracer(verb, recording.folder)
        assert "\x1b" not in ran.out
        told = "".join(line.strip() for line in ran.out.splitlines())  # one word of many lines
        assert name in told or verb == "report"


def test_a_recording_of_the_machine_tells_containers_apart(start, tell, record):
    start("told", CALLS, A)
    start("named", CALLS, B)
    tell(None, "told-is-up", "named-is-up")
    recording = record("-a", "--container", "named", "-e", "syscalls")
    tell("go", "told-is-done", "named-is-done")
    with recording.stop() as trace:
        found = trace.connection.execute(
            "SELECT p.container_name, p.target, count(*) FROM syscalls s JOIN processes p "
            "USING (pid, tid) WHERE s.name = 'getppid' AND container_id IS NOT NULL "
            "GROUP BY 1, 2 ORDER BY 1"
        ).fetchall()
        assert found == [("named", "named", B), ("told", None, A)]


def test_the_manifest_names_the_containers_folders(start, tell, record, shared):
    container = start("known", CALLS, A)
    tell(None, "known-is-up")
    with record("--container", "known", "-e", "block").stop() as trace:
        facts = {c["name"]: c for c in trace.manifest["containers"]}["known"]
    assert facts["id"] == container.id
    assert facts["pid"] == init_of(container)
    assert facts["image"] == "tracer-tests/bare"
    assert facts["cgroup"].endswith(container.id)
    layers = container.attrs["GraphDriver"]["Data"]
    assert (facts["merged"], facts["upper"]) == (layers["MergedDir"], layers["UpperDir"])
    assert facts["lower"] == layers["LowerDir"].split(":")
    mount = {"type": "bind", "source": str(shared), "path": "/shared", "writable": True}
    assert mount in facts["mounts"]
