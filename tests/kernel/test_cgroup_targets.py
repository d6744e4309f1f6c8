"""Cgroups as targets: who is in, who joins, who leaves, each counted for as long as it is in."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.cgroups import mounted, own_cgroup
from tests.support.losses import losses
from tests.support.recorder import target_bytes
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.store.trace import Trace
from tracer.targets.cgroups import CgroupTarget, find_cgroups, of_process

IN, OUT, LATER, INNER = 9973, 211, 1009, 101


@pytest.fixture(params=mounted(), ids=lambda h: h.controllers or "unified")
def cgroup(request):
    """A cgroup with another below it: their folder."""
    with own_cgroup(request.param) as folder:
        yield folder


PROGRAM = """
import os, sys, time
def wait(word):
    while not os.path.exists(word): time.sleep(0.005)
def say(word):
    os.close(os.open(word, os.O_CREAT | os.O_WRONLY))
def enter(cgroup):
    with open(cgroup + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
def calls(n):
    for _ in range(n): os.times()
top, inner = CGROUP, CGROUP + "/inner"
root = os.path.dirname(top)
"""


@pytest.fixture
def program(cgroup, tmp_path):
    """Start a Python program that knows of the cgroup; it runs in the test's folder."""
    started = []

    def run(source):
        text = PROGRAM.replace("CGROUP", repr(str(cgroup))) + source
        command = [sys._base_executable, "-S", "-E", "-c", text]
        started.append(subprocess.Popen(command, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def record(tmp_path):
    """Start a recording in the background, from the time that it traces; returns what ends it."""
    started = []

    def begin(*options, probes=("-e", "syscalls")):
        folder = tmp_path / f"{len(started)}.trace"
        process = Tracer("record", "-o", folder, *probes, *options)
        started.append(process)
        first = process.stderr.readline()
        assert first.startswith("Tracing "), first + process.stderr.read()

        def end(number=signal.SIGINT):
            if number:
                process.send_signal(number)
            err = process.stderr.read()
            assert process.wait(timeout=120) == 0, err
            return Trace(folder)

        end.pid = process.pid
        return end

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def counted(trace, name="times"):
    """(target, role, calls) of each process."""
    return trace.connection.execute(
        "SELECT p.target, p.role, count(*) FROM syscalls s LEFT JOIN processes p USING (pid, tid) "
        "WHERE s.name = ? GROUP BY s.pid, 1, 2 ORDER BY 3",
        [name],
    ).fetchall()


def said(tmp_path, *words):
    for word in words:
        wait_for((tmp_path / word).exists, word)


def test_all_that_is_in_it_and_below_it(cgroup, program, record, tmp_path):
    program(f"enter(top); say('1'); wait('go'); calls({IN}); say('done1'); time.sleep(99)")
    program(
        f"enter(inner); say('2'); wait('go')\n"
        f"if os.fork() == 0: calls({INNER}); say('done2')\n"
        f"time.sleep(99)"
    )
    program(f"say('3'); wait('go'); calls({OUT}); say('done3'); time.sleep(99)")
    said(tmp_path, "1", "2", "3")
    end = record("--cgroup", cgroup, probes=())
    (tmp_path / "go").touch()
    said(tmp_path, "done1", "done2", "done3")
    with end() as trace:
        name = f"/{cgroup.name}"
        assert counted(trace) == [(name, "child", INNER), (name, "target", IN)]
        assert losses(trace) == []
        (target,) = trace.manifest["targets"]
        assert [c["path"] for c in target["cgroups"]] == [name]


def test_a_process_that_joins_is_counted_from_then_on_and_its_missed_time_is_stated(
    cgroup, program, record, tmp_path
):
    program(
        f"say('up'); wait('go'); calls({OUT}); enter(inner); say('in')\n"
        f"wait('on'); calls({LATER}); say('done'); time.sleep(99)"
    )
    said(tmp_path, "up")
    end = record("--cgroup", f"/{cgroup.name}")  # of whatever hierarchies have it
    (tmp_path / "go").touch()
    said(tmp_path, "in")
    members = tmp_path / "0.trace/raw/members.jsonl"
    wait_for(lambda: members.read_text().count("\n") == 2, "the recorder's look")
    (tmp_path / "on").touch()
    said(tmp_path, "done")
    with end() as trace:
        assert counted(trace) == [(f"/{cgroup.name}", "target", LATER)]
        gaps = trace.connection.execute(
            'SELECT stream, cpu, "from" < "to", count, cause FROM loss'
        ).fetchall()
        assert gaps == [("joins", -1, True, None, "joined before it was followed")]


def test_a_process_that_leaves_and_returns_is_counted_only_while_inside(
    cgroup, program, record, tmp_path
):
    program(
        f"enter(top); say('up'); wait('go'); calls({IN})\n"
        f"enter(root); calls({OUT}); enter(inner); calls({LATER}); enter(root)\n"
        f"calls({OUT}); say('done'); time.sleep(99)"
    )
    said(tmp_path, "up")
    end = record("--cgroup", cgroup)
    (tmp_path / "go").touch()
    said(tmp_path, "done")
    with end() as trace:
        calls = "SELECT count(*) FROM syscalls WHERE name = 'times'"
        assert trace.connection.execute(calls).fetchone() == (IN + LATER,)
        assert counted(trace) == [(f"/{cgroup.name}", "target", IN + LATER)]  # its last target
        assert losses(trace) == []  # it was followed all the time


def test_the_inner_cgroup_and_the_process_itself_are_more_specific(
    cgroup, program, record, tmp_path
):
    program(f"enter(top); say('1'); wait('go'); calls({IN}); say('done1'); time.sleep(99)")
    program(f"enter(inner); say('2'); wait('go'); calls({INNER}); say('done2'); time.sleep(99)")
    own = program(f"enter(inner); say('3'); wait('go'); calls({OUT}); say('done3'); time.sleep(99)")
    said(tmp_path, "1", "2", "3")
    end = record("--cgroup", cgroup, "--cgroup", cgroup / "inner", "-p", own.pid)
    (tmp_path / "go").touch()
    said(tmp_path, "done1", "done2", "done3")
    with end() as trace:
        name = next(t["name"] for t in trace.manifest["targets"] if t["kind"] == "pid")
        assert counted(trace) == [
            (f"/{cgroup.name}/inner", "target", INNER),
            (name, "target", OUT),
            (f"/{cgroup.name}", "target", IN),
        ]


@pytest.mark.skipif(len(mounted()) < 2, reason="only one hierarchy is mounted")
@pytest.mark.parametrize("cgroup", mounted()[:1], indirect=True, ids=["first"])
def test_cgroups_of_the_same_path_in_two_hierarchies_are_two_targets(
    cgroup, program, record, tmp_path
):
    with own_cgroup(mounted()[1]) as other:
        program(f"enter(top); say('1'); wait('go'); calls({IN}); say('done1'); time.sleep(99)")
        program(
            f"enter({str(other)!r}); say('2'); wait('go'); calls({OUT}); say('done2')\n"
            f"time.sleep(99)"
        )
        said(tmp_path, "1", "2")
        end = record("--cgroup", cgroup, "--cgroup", other)
        (tmp_path / "go").touch()
        said(tmp_path, "done1", "done2")
        with end() as trace:
            names = [f"/{cgroup.name}-{h.controllers or 'unified'}" for h in mounted()]
            assert [target["name"] for target in trace.manifest["targets"]] == names
            assert counted(trace) == [(names[1], "target", OUT), (names[0], "target", IN)]


CLONE_INTO = """
import ctypes
CLONE_INTO_CGROUP, SYS_clone3 = 0x200000000, 435
def clone_into(cgroup):
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    args = (ctypes.c_uint64 * 11)(CLONE_INTO_CGROUP, 0, 0, 0, 17, 0, 0, 0, 0, 0, fd)
    return ctypes.CDLL(None).syscall(SYS_clone3, args, ctypes.sizeof(args))
"""


@pytest.mark.parametrize("cgroup", mounted()[:1], indirect=True, ids=["unified"])
def test_a_process_made_inside_is_counted_from_its_first_call(cgroup, program, record, tmp_path):
    """No event tells: the recorder's look does, and of a maker's child nothing is missed."""
    program(
        f"{CLONE_INTO}\n"
        f"if clone_into(inner) == 0: say('up'); time.sleep(99)\n"
        f"wait('go')\n"
        f"if clone_into(inner) == 0: calls({IN}); say('done'); time.sleep(99)\n"
        f"calls({OUT}); time.sleep(99)"
    )
    said(tmp_path, "up")
    end = record("--cgroup", cgroup)
    (tmp_path / "go").touch()
    said(tmp_path, "done")
    members = tmp_path / "0.trace/raw/members.jsonl"
    wait_for(lambda: members.read_text().count("\n") == 4, "the recorder's look")
    with end() as trace:
        assert counted(trace) == [(f"/{cgroup.name}", "target", IN)]
        assert losses(trace) == []


@pytest.mark.parametrize("cgroup", mounted()[:1], indirect=True, ids=["first"])
def test_a_summary_counts_no_more_than_the_cgroup(cgroup, program, record, tmp_path):
    """Whoever makes its processes is followed where rows can be taken out later, not here."""
    program(
        f"if os.fork() == 0: enter(top); say('up'); wait('go'); calls({IN}); say('1')\n"
        f"else: wait('go'); calls({OUT}); say('2')\n"
        f"time.sleep(99)"
    )
    said(tmp_path, "up")
    end = record("--summary", "--cgroup", cgroup)
    (tmp_path / "go").touch()
    said(tmp_path, "1", "2")
    with end() as trace:
        query = "SELECT sum(count) FROM summaries WHERE kind = 'syscall' AND name = 'times'"
        assert trace.connection.execute(query).fetchone() == (IN,)


def test_a_recording_ends_with_its_cgroup_and_not_before(cgroup, program, record, tmp_path):
    end = record("--cgroup", cgroup)  # nobody is in it yet
    for n in (1, 2):
        process = program(f"enter(top); say('up{n}'); time.sleep(99)")
        said(tmp_path, f"up{n}")
        process.kill()
        process.wait()
    (cgroup / "inner").rmdir()
    cgroup.rmdir()
    with end(None) as trace:
        assert trace.manifest["ended_by"] == "target"
        found = trace.connection.execute(
            "SELECT DISTINCT pid FROM syscalls ANTI JOIN "
            "(SELECT pid FROM processes WHERE target IS NOT NULL) USING (pid)"
        ).fetchall()
        assert found == []


def test_a_killed_recorder_leaves_a_whole_trace_and_nothing_else(
    cgroup, program, record, instances, tmp_path
):
    program(f"enter(top); say('up'); wait('go'); calls({IN}); say('done'); time.sleep(99)")
    said(tmp_path, "up")
    end = record("--cgroup", cgroup)
    (tmp_path / "go").touch()
    said(tmp_path, "done")
    wait_for(lambda: target_bytes(tmp_path / "0.trace") > 0, "the drain")
    with pytest.raises(AssertionError):
        end(signal.SIGKILL)
    recorder = json.loads((tmp_path / "0.trace/manifest.json").read_text())["recorder"]["pid"]
    with Trace(tmp_path / "0.trace") as trace:
        ((target, role, calls),) = counted(trace)
        assert (target, role) == (f"/{cgroup.name}", "target")
        assert calls == IN
        assert trace.manifest["ended_by"] == "killed"
    # Opening it has waited for the guardian.
    assert not [name for name in instances() if name.startswith(f"tracer-{recorder}-")]


def test_no_such_cgroup(tracer):
    for path in ("/no/such", "no/such", "/sys/fs/cgroup/no/such", "../../etc", "/etc"):
        ran = tracer("record", "--cgroup", path, status=4)
        assert f"tracer: there is no cgroup {path}; " in ran.err
        assert ran.err.count("\n") == 1
    tracer("record", "--cgroup", "", status=2)


def test_everything_is_recorded_and_the_target_named(tracer, load, tmp_path):
    """-a with other targets: theirs are told by name, and so are everybody else's rows."""
    with subprocess.Popen(["sleep", "60"]) as process:
        command = load(f"import os\nfor _ in range({INNER}): os.times()")
        tracer("record", "-a", "-p", process.pid, "-e", "syscalls", "-o", "x.trace", "--", *command)
        process.kill()
    with Trace(tmp_path / "x.trace") as trace:
        names = [t["name"] for t in trace.manifest["targets"]]
        assert counted(trace)[-1] == (names[-1], "target", INNER)
        rows = "SELECT DISTINCT target FROM processes WHERE pid = ?"
        assert trace.connection.execute(rows, [process.pid]).fetchall() == [(names[0],)]


def test_the_recorder_is_not_in_its_own_cgroup(cgroup, record):
    """A recorder that lives in the cgroup that it records does not record itself."""
    end = record("--cgroup", cgroup)
    (cgroup / "cgroup.procs").write_text(str(end.pid))
    wait_for_rounds(end.pid, 2)  # it looks four times a second
    with end() as trace:
        own = "SELECT count(*) FROM syscalls WHERE pid = ?"
        assert trace.connection.execute(own, [end.pid]).fetchone() == (0,)
        row = "SELECT DISTINCT role, target FROM processes WHERE pid = ?"
        assert trace.connection.execute(row, [end.pid]).fetchall() == [("other", None)]


def test_the_name_of_a_cgroup_cannot_pass_for_another_line(cgroup):
    """Whoever may make a cgroup may call it anything but a line feed."""
    before = of_process(os.getpid())
    folder = cgroup / "x\x0b0:other:"
    folder.mkdir()
    sleeper = subprocess.Popen(["sleep", "100"])
    try:
        (folder / "cgroup.procs").write_text(str(sleeper.pid))
        found = of_process(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
        wait_for(lambda: not (folder / "cgroup.procs").read_text(), "the cgroup to empty")
        folder.rmdir()
    (number,) = [h.number for h in mounted() if cgroup.is_relative_to(h.mount)]
    assert found.pop(number).endswith(f"/{cgroup.name}/{folder.name}")
    del before[number]
    assert found == before


DEEP = f"""
import os
n = 0
try:
    for n in range({sys.getrecursionlimit()}): os.mkdir('d'); os.chdir('d')
    print('made', flush=True)
    input()
finally:
    for _ in range(n): os.chdir('..'); os.rmdir('d')
"""


@pytest.mark.parametrize("cgroup", mounted()[:1], indirect=True, ids=["first"])
def test_cgroups_in_cgroups_end_no_recording(cgroup, record):
    """There are more of them than a function may call itself."""
    command = [sys._base_executable, "-S", "-E", "-c", DEEP]
    maker = subprocess.Popen(
        command, cwd=cgroup / "inner", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert maker.stdout.readline() == b"made\n"
        with record("--cgroup", cgroup)() as trace:
            assert trace.manifest["complete"]
    finally:
        maker.communicate(b"\n")
        (cgroup / "inner/d").rmdir()


def test_a_cgroup_holds_processes_that_come_and_go_in_it(cgroup, program, tmp_path):
    program(
        "enter(top); say('storm')\n"
        "while not os.path.exists('end'):\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    os.wait()\n"
        "say('calm'); time.sleep(99)"
    )
    below = program("enter(inner); say('below'); time.sleep(99)")
    outside = program("say('outside'); time.sleep(99)")
    said(tmp_path, "storm", "below", "outside")
    (own,) = find_cgroups(str(cgroup))
    target = CgroupTarget("own", [own])
    came = set()
    for _ in range(1000):
        members = set(target.members())
        came |= members
        assert below.pid in members
        assert own.holds(members)
    assert len(came) > 10
    assert not own.holds({below.pid, outside.pid})
    outside.kill()
    outside.wait()
    assert own.holds({below.pid, outside.pid})
    (tmp_path / "end").touch()
    said(tmp_path, "calm")
