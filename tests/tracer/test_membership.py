"""The target of each process, by the events of a page and by the recorder's looks."""

import json

import pytest

from tests.support.pages import Page, attached, enter, exited, leave, newtask, raw_trace
from tracer.probes.errors import BadTrace
from tracer.probes.rows.slots import NOBODY, Slots
from tracer.store.trace import Trace

GETPID = 39
INTO_CGROUP = 1 << 33
ID, OTHER_ID = "a" * 64, "b" * 64
IN_C, IN_OTHER = f"/docker/{ID}".encode(), f"/docker/{OTHER_ID}".encode()
CONTAINER = {
    "name": "c",
    "role": "target",
    "kind": "container",
    "pid": 100,
    "container": ID,
    "cgroups": [{"hierarchy": 0, "path": IN_C.decode()}, {"hierarchy": 4, "path": IN_C.decode()}],
    "makers": [90],
}
DAEMON = {"name": "d", "role": "daemon", "kind": "daemon", "pid": 50, "processes": [50, 51]}
JOB = {"name": "job", "role": "target", "kind": "pid", "pid": 7}
STARTED = [5, 0, -1, -1, 0, False]


def cgroup(name, path, *hierarchies):
    places = [{"hierarchy": hierarchy, "path": path} for hierarchy in hierarchies or (0,)]
    return {"name": name, "role": "target", "kind": "cgroup", "pid": 0, "cgroups": places}


def recorded(folder, page, targets, members=(), threads=(), **manifest):
    """The trace of these events."""
    raw_trace(folder, {0: [page]}, targets=targets, **manifest)
    (folder / "raw/members.jsonl").write_text("".join(json.dumps(m) + "\n" for m in members))
    (folder / "raw/threads.json").write_text(json.dumps(list(threads)))
    return Trace(folder)


def called(trace):
    """(time, process) of each call."""
    return trace.connection.execute("SELECT ts, pid FROM syscalls ORDER BY ts").fetchall()


def told(trace):
    """{process: (role, target)} of those that belong to one."""
    rows = "SELECT pid, role, target FROM processes WHERE target IS NOT NULL ORDER BY pid"
    return {pid: tuple(row) for pid, *row in trace.connection.execute(rows).fetchall()}


def call(page, at, tid):
    return page.event(at, enter(tid, GETPID)).event(at + 1, leave(tid, GETPID))


def test_a_process_is_the_containers_from_its_entry(tmp_path):
    page = Page(0).event(10, newtask(90, 91, b"runc", 0))
    call(page, 20, 91)
    page.event(30, attached(90, 91, 4, IN_C)).event(31, attached(90, 91, 0, IN_C))
    call(page, 40, 91)
    page.event(50, newtask(91, 92, b"child", 0)).event(51, newtask(92, 93, b"thread", 0x10000))
    call(call(page, 60, 92), 70, 93)
    with recorded(tmp_path / "t", page, [CONTAINER], [[1, 90, -1, -1, 0, False], STARTED]) as trace:
        assert called(trace) == [(40, 91), (60, 92), (70, 92)]
        assert told(trace) == {91: ("target", "c"), 92: ("child", "c")}
        assert trace.manifest["loss"]["unknown"] == 1  # only that the recorder was killed


def test_a_call_that_was_open_at_the_entry_is_not_the_containers(tmp_path):
    page = Page(0).event(10, enter(91, GETPID)).event(20, attached(90, 91, 0, IN_C))
    page.event(30, leave(91, GETPID))
    with recorded(tmp_path / "t", page, [CONTAINER]) as trace:
        assert called(trace) == []


def test_it_leaves_when_it_is_in_none_of_the_containers_cgroups(tmp_path):
    page = Page(0).event(10, attached(90, 91, 4, IN_C)).event(11, attached(90, 91, 0, IN_C))
    call(page, 20, 91).event(30, attached(1, 91, 4, b"/elsewhere"))
    call(page, 40, 91).event(50, attached(1, 91, 7, b"/elsewhere"))
    call(page, 60, 91).event(70, attached(1, 91, 0, b"/"))
    call(page, 80, 91)
    with recorded(tmp_path / "t", page, [CONTAINER]) as trace:
        assert called(trace) == [(20, 91), (40, 91), (60, 91)]


@pytest.mark.parametrize("path", [b"/docker", IN_C + b"0", IN_C[:-1], IN_OTHER, b"/x" + IN_C, b""])
def test_another_path_is_another_cgroup(tmp_path, path):
    page = call(Page(0).event(10, attached(90, 91, 0, path)), 20, 91)
    with recorded(tmp_path / "t", page, [CONTAINER]) as trace:
        assert called(trace) == []


def test_the_same_path_of_another_hierarchy_is_another_cgroup(tmp_path):
    page = call(Page(0).event(10, attached(90, 91, 3, b"/job")), 20, 91)
    call(page.event(30, attached(90, 92, 4, b"/job/below")), 40, 92)
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)]) as trace:
        assert called(trace) == [(40, 92)]


def test_a_thread_that_is_moved_alone_does_not_move_its_process(tmp_path):
    page = Page(0).event(10, newtask(91, 92, b"thread", 0x10000))
    page.event(20, attached(1, 92, 4, b"/job"))
    call(call(page, 30, 91), 40, 92)
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)], [STARTED]) as trace:
        assert called(trace) == []
        assert joins(trace) == []


def test_kernel_threads_have_the_role_of_what_they_are(tmp_path):
    journal = ["jbd2/sda1-8", "xfsaild/sdb", "kworker/R-xfs-log/sdb", "kworker/R-xfs-cil/sdb",
               "xfs-cil/sdb", "btrfs-transaction", "btrfs-transacti"]  # fmt: skip
    other = ["kworker/R-xfs-conv/sdb", "kworker/u8:3", "kswapd0", "ext4-rsv-conver", "jbd2",
             "btrfs-cleaner", "kworker/R-ext4-rsv-conversion"]  # fmt: skip
    names = journal + other
    threads = [[10 + n, 10 + n, 2, name, "/"] for n, name in enumerate(names)]
    # A user's process may call itself what it likes.
    threads.append([50, 50, 1, "jbd2/sda1-8", "/"])
    with recorded(tmp_path / "t", Page(0), [JOB], threads=threads) as trace:
        rows = "SELECT comm, pid FROM processes WHERE role = ? ORDER BY pid"
        found = {role: [comm for comm, _ in trace.connection.execute(rows, [role]).fetchall()]
                 for role in ("journal", "other")}  # fmt: skip
    assert found == {"journal": journal, "other": [*other, "jbd2/sda1-8"]}


def test_the_most_specific_target_counts(tmp_path):
    targets = [cgroup("all", "/"), cgroup("docker", "/docker"), CONTAINER, JOB]
    page = Page(0)
    for at, (tid, path) in enumerate([(21, b"/x"), (22, b"/docker/x"), (23, IN_C), (7, IN_C)]):
        if tid != JOB["pid"]:
            page.event(10 * at, newtask(1, tid, b"x", 0))
        page.event(10 * at + 1, attached(1, tid, 0, path)).event(10 * at + 2, exited(tid))
    with recorded(tmp_path / "t", page, targets) as trace:
        names = {pid: name for pid, (_, name) in told(trace).items()}
    assert names == {7: "job", 21: "all", 22: "docker", 23: "c"}
    slots = Slots(targets)
    assert slots.target(slots.followed | slots.maker_of(3)) == NOBODY


def test_a_hundred_containers_in_ten_hierarchies(tmp_path):
    """More slots than a word has bits."""
    targets, pages = [], []
    for n in range(100):
        path = f"/docker/{n:064x}"
        places = [{"hierarchy": h, "path": path} for h in range(10)]
        targets.append({**CONTAINER, "name": f"c{n}", "pid": 0, "makers": [], "cgroups": places})
        if n % 20 == 0:
            pages.append(Page(100 * n))
        pages[-1].event(100 * n, newtask(1, 1000 + n, b"x", 0))
        pages[-1].event(100 * n + 1, attached(1, 1000 + n, n % 10, path.encode()))
    raw_trace(tmp_path / "t", {0: pages}, targets=targets)
    with Trace(tmp_path / "t") as trace:
        found = told(trace)
    assert found == {1000 + n: ("target", f"c{n}") for n in range(100)}


def test_a_child_of_the_daemon_is_the_daemon_until_it_enters_a_container(tmp_path):
    threads = [[50, 50, 1, "dockerd", "/"], [51, 51, 50, "containerd", "/"],
               [60, 60, 51, "python", IN_OTHER.decode()], [61, 61, 60, "python", None]]  # fmt: skip
    page = Page(0).event(10, newtask(51, 91, b"runc", 0))
    call(call(call(page, 20, 91), 22, 60), 24, 61)
    call(page.event(30, attached(91, 91, 4, b"/not/a/container")), 40, 91)
    call(page.event(50, attached(91, 91, 4, IN_OTHER)), 60, 91)
    with recorded(tmp_path / "t", page, [DAEMON], threads=threads) as trace:
        assert called(trace) == [(20, 91), (40, 91)]
        assert told(trace) == {50: ("daemon", "d"), 51: ("daemon", "d")}


def test_a_daemon_within_a_container_is_the_daemon(tmp_path):
    inside = IN_C.decode()
    threads = [[50, 50, 1, "dockerd", inside], [70, 70, 50, "runc", inside],
               [71, 71, 70, "python", f"{inside}/docker/{OTHER_ID}"]]  # fmt: skip
    page = call(call(call(Page(0), 10, 50), 20, 70), 30, 71)
    call(page.event(40, attached(1, 70, 4, IN_C + b"/x")), 50, 70)
    with recorded(tmp_path / "t", page, [DAEMON], threads=threads) as trace:
        assert called(trace) == [(10, 50), (20, 70), (50, 70)]


def test_a_target_within_anothers_family_is_its_own(tmp_path):
    outer = {"name": "outer", "role": "target", "kind": "pid", "pid": 3}
    threads = [[3, 3, 1, "a", None], [7, 7, 3, "b", None], [8, 8, 7, "c", None],
               [4, 4, 3, "d", None]]  # fmt: skip
    page = Page(0).event(10, newtask(8, 9, b"e", 0))
    with recorded(tmp_path / "t", page, [outer, JOB], threads=threads) as trace:
        assert told(trace) == {
            3: ("target", "outer"),
            4: ("child", "outer"),
            7: ("target", "job"),
            8: ("child", "job"),
            9: ("child", "job"),
        }


def test_a_shims_child_in_another_cgroup_belongs_to_the_shims_container(tmp_path):
    """Newer runcs: no event and, if it is short, no look tells where it is."""
    page = Page(0).event(10, newtask(90, 91, b"runc", 0))
    page.event(20, newtask(91, 92, b"init", INTO_CGROUP))
    call(call(page, 30, 91), 40, 92)
    with recorded(tmp_path / "t", page, [CONTAINER], [[1, 90, -1, -1, 0, False], STARTED]) as trace:
        assert called(trace) == [(40, 92)]
        assert told(trace) == {92: ("target", "c")}


def test_a_look_tells_of_what_was_made_within_a_cgroup_from_its_first_call(tmp_path):
    second = 1_000_000_000
    page = Page(second).event(second, newtask(60, 61, b"x", INTO_CGROUP))
    call(call(page, second + 100, 61), second + 200, 60)
    members = [STARTED, [2 * second, 61, 0, 0, second - 9_000_000, False]]
    with recorded(tmp_path / "t", page, [cgroup("job", "/job")], members) as trace:
        assert called(trace) == [(second + 100, 61)]
    # The same number, but another process, born later.
    members[1][4] = 2 * second - 1
    with recorded(tmp_path / "u", page, [cgroup("job", "/job")], members) as trace:
        assert called(trace) == []


@pytest.mark.parametrize("looked", [-1, 0, 50, 150])
def test_a_process_has_its_target_whenever_the_look_that_found_it_began(tmp_path, looked):
    """The look begins with a reading of the clock: a process that it finds may be made later."""
    second = 1_000_000_000
    page = Page(second - 5).event(second, newtask(60, 61, b"x", INTO_CGROUP))
    call(page, second + 100, 61).event(second + 200, exited(61))
    members = [STARTED, [second + looked, 61, 0, 0, second - 9_000_000, False]]
    with recorded(tmp_path / "t", page, [cgroup("job", "/job")], members) as trace:
        assert called(trace) == [(second + 100, 61)]
        assert told(trace) == {61: ("target", "job")}
        assert joins(trace) == []


def test_a_child_made_within_another_cgroup_leaves_its_parents(tmp_path):
    page = Page(0).event(10, attached(1, 61, 0, b"/job"))
    page.event(20, newtask(61, 62, b"x", INTO_CGROUP)).event(21, newtask(61, 63, b"x", 0))
    call(call(page, 30, 62), 40, 63)
    with recorded(tmp_path / "t", page, [cgroup("job", "/job")]) as trace:
        assert called(trace) == [(40, 63)]


def joins(trace):
    """Returns the gaps in which events of joining processes are missing."""
    query = 'SELECT "from", "to", cpu, count FROM loss WHERE stream = \'joins\' ORDER BY 1'
    return trace.connection.execute(query).fetchall()


def test_the_missed_time_of_a_process_that_joins_is_stated(tmp_path):
    page = Page(0).event(100, attached(1, 61, 4, b"/job"))
    call(page, 400, 61)
    members = [STARTED, [300, 61, 0, 4, 0, True]]
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)], members) as trace:
        assert joins(trace) == [(100, 300, -1, None)]
        assert called(trace) == [(400, 61)]


def test_a_process_that_ended_before_it_was_found_is_missing_till_its_end(tmp_path):
    page = Page(0).event(100, attached(1, 61, 4, b"/job")).event(200, exited(61))
    page.event(250, attached(1, 62, 4, b"/job"))
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)], [STARTED]) as trace:
        assert joins(trace) == [(100, 200, -1, None), (250, None, -1, None)]


def test_a_process_followed_from_its_start_misses_nothing(tmp_path):
    """A look between a fork and the kernel's following it says that it is late."""
    page = Page(0).event(50, newtask(90, 61, b"x", 0)).event(100, attached(1, 61, 4, b"/job"))
    call(page, 400, 61)
    members = [[1, 90, -1, -1, 0, False], STARTED, [300, 61, 0, 4, 0, True]]
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)], members) as trace:
        assert joins(trace) == []
        assert called(trace) == [(400, 61)]


def test_moves_before_the_targets_events_are_let_in_miss_nothing(tmp_path):
    page = Page(0).event(2, attached(1, 61, 4, b"/job")).event(3, exited(61))
    with recorded(tmp_path / "t", page, [cgroup("job", "/job", 4)], [STARTED]) as trace:
        assert joins(trace) == []


def test_a_machine_recording_keeps_everybodys_rows(tmp_path):
    machine = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
    page = Page(0).event(5, newtask(1, 61, b"x", 0)).event(10, attached(1, 61, 0, IN_C))
    call(call(page, 20, 61), 30, 99)
    members = [STARTED, [15, 61, 1, 0, 0, True]]
    with recorded(tmp_path / "t", page, [machine, CONTAINER], members) as trace:
        assert called(trace) == [(20, 61), (30, 99)]
        assert told(trace) == {61: ("target", "c")}
        assert joins(trace) == []


def test_the_container_that_a_process_is_in_has_its_name(tmp_path):
    threads = [[7, 7, 1, "job", None], [70, 70, 1, "x", IN_OTHER.decode()]]
    page = Page(0).event(10, newtask(7, 8, b"x", 0)).event(20, attached(1, 8, 4, IN_C))
    page.event(30, attached(1, 8, 5, b"/")).event(40, newtask(8, 9, b"x", 0))
    containers = [{"id": ID, "name": "c", "image": "i", "pid": 0}]
    with recorded(tmp_path / "t", page, [JOB], threads=threads, containers=containers) as trace:
        found = trace.connection.execute(
            "SELECT pid, container_id, container_name, cgroup FROM processes ORDER BY pid"
        ).fetchall()
    inside = (ID, "c", IN_C.decode())
    assert found == [
        (7, None, None, None),
        (8, *inside),
        (9, *inside),
        (70, OTHER_ID, None, IN_OTHER.decode()),
    ]


@pytest.mark.parametrize(
    "text",
    ["nonsense\n", "[1]\n", "[1,2,3,4,5,6]\n", '["a",7,0,0,0,false]\n', "[1,7,9999,0,0,false]\n",
     "[-1,7,0,0,0,false]\n", "[1,7,0,99999,0,false]\n", "[1,7,0,0,0,false]\n\n\n[1\n",
     "[1,7,0,0,0,false]],[[1,7,0,0,0,false]\n", "\ud800\n"],
)  # fmt: skip
def test_a_list_of_members_that_makes_no_sense_is_refused(tmp_path, text):
    raw_trace(tmp_path / "t", {0: [Page(0)]}, targets=[CONTAINER])
    (tmp_path / "t/raw/members.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadTrace, match=r"members\.jsonl is damaged"):
        Trace(tmp_path / "t")


def test_the_line_that_a_killed_recorder_did_not_end_is_left_out(tmp_path):
    page = call(Page(100), 200, 61)
    raw_trace(tmp_path / "t", {0: [page]}, targets=[cgroup("job", "/job")])
    lines = "[1, 61, 0, 0, 0, false]\n[5, 0, -1, -1, 0, false]\n[7, 62, 0, "
    (tmp_path / "t/raw/members.jsonl").write_text(lines)
    with Trace(tmp_path / "t") as trace:
        assert called(trace) == [(200, 61)]


def test_findings_that_name_no_target_do_no_harm(tmp_path):
    page = call(Page(0), 20, 61)
    members = [[1, 61, 3000, 0, 0, False], [1, 61, 0, 77, 0, False], [1, 4194304, 0, 0, 0, True]]
    with recorded(tmp_path / "t", page, [cgroup("job", "/job")], members) as trace:
        assert called(trace) == []


def test_events_of_cgroups_that_are_cut_short_do_no_harm(tmp_path):
    whole = attached(1, 61, 0, b"/job")
    page = Page(0)
    for at, end in enumerate(range(8, len(whole), 4)):
        page.event(at, whole[:end])
    page.event(500, whole[:28] + b"\xff\xff\xff\xff" + whole[32:])
    with recorded(tmp_path / "t", call(page, 600, 61), [cgroup("job", "/job")]) as trace:
        assert called(trace) in ([], [(600, 61)])
