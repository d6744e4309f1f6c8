"""The threads whose intervals off the CPU are rows: those of the targets."""

from tests.support.off_cpu_stories import (
    IDLE,
    INTO_CGROUP,
    JOB,
    OTHER,
    THREAD,
    THREADS,
    WORKER,
    K,
    target,
    told,
)
from tests.support.pages import attached, execed, newtask


def test_each_target_has_rows_and_others_have_none(tmp_path):
    threads = [*THREADS, (60, 60, 1, "db", None), (70, 70, JOB, "child", None)]
    rows = told(
        tmp_path,
        "DISTINCT pid, tid",
        *(
            (10 * n, K.switch(prev, "S", following))
            for n, (prev, following) in enumerate(
                zip([JOB, WORKER, OTHER, 60, 70, 2], [WORKER, OTHER, 60, 70, 2, JOB], strict=True)
            )
        ),
        targets=[target(JOB), target(60, "db")],
        threads=threads,
    )
    assert sorted(rows) == [(JOB, JOB), (JOB, WORKER), (60, 60), (70, 70)]


def test_on_the_whole_machine_everybody_counts_but_idle_cpus_and_the_recorder(tmp_path):
    threads = [*THREADS, (900, 900, 1, "tracer", None), (901, 900, 1, "drain", None)]
    around = [900, OTHER, 901, JOB, IDLE]
    rows = told(
        tmp_path,
        "DISTINCT tid",
        *(
            (10 * n, K.switch(prev, "S", following))
            for n, (prev, following) in enumerate(
                zip(around * 3, [*around[1:], around[0]] * 3, strict=True)
            )
        ),
        (200, newtask(900, 902, b"x", THREAD)),
        (210, K.wakeup_new(900, 902)),
        (220, K.switch(900, "S", 902)),
        (230, K.waking(OTHER, 901)),
        targets=[target(0, "machine", "machine")],
        threads=threads,
        recorder={"pid": 900, "start_time": 0, "boot_id": "another boot"},
    )
    assert sorted(rows) == [(JOB,), (OTHER,)]


def test_a_process_counts_while_it_is_in_the_cgroup(tmp_path):
    places = [{"hierarchy": 0, "path": "/job"}]
    rows = told(
        tmp_path,
        "state, dur_ns, ts",
        (10, K.switch(IDLE, "R", OTHER)),
        (20, K.switch(OTHER, "D", IDLE)),
        (30, K.switch(IDLE, "R", OTHER)),
        (40, attached(1, OTHER, 0, b"/job")),
        (50, K.switch(OTHER, "S", IDLE)),
        (60, K.switch(IDLE, "R", OTHER)),
        (70, attached(1, OTHER, 0, b"/")),
        (80, K.switch(OTHER, "T", IDLE)),
        (90, K.switch(IDLE, "R", OTHER)),
        targets=[target(0, kind="cgroup", cgroups=places)],
        members=[[5, 0, -1, -1, 0, False]],
    )
    assert rows == [("S", 10, 50)]


def test_a_thread_of_a_cgroup_that_is_made_within_it_counts(tmp_path):
    places = [{"hierarchy": 0, "path": "/job"}]
    rows = told(
        tmp_path,
        "pid, tid, state, dur_ns, ts",
        (10, attached(1, OTHER, 0, b"/job")),
        (20, newtask(OTHER, 90, b"x", THREAD)),
        (30, K.wakeup_new(OTHER, 90)),
        (40, K.switch(OTHER, "S", 90)),
        (50, newtask(1, 91, b"x", 0)),
        (60, K.wakeup_new(1, 91)),
        (70, K.switch(90, "X", 91)),
        targets=[target(0, kind="cgroup", cgroups=places)],
        members=[[5, 0, -1, -1, 0, False]],
    )
    assert rows == [(OTHER, 90, "new", 10, 30), (OTHER, OTHER, "S", None, 40)]


def test_a_new_process_counts_for_the_cgroup_that_it_is_made_in(tmp_path):
    container = target(100, "c", "container", container="a" * 64, makers=[90])
    container["cgroups"] = [{"hierarchy": 0, "path": "/docker/" + "a" * 64}]
    job = target(0, kind="cgroup", cgroups=[{"hierarchy": 0, "path": "/job"}])
    rows = told(
        tmp_path,
        "pid, dur_ns, ts",
        (10, attached(1, OTHER, 0, b"/job")),
        (20, newtask(OTHER, 91, b"x", INTO_CGROUP)),  # leaves the target
        (30, K.wakeup_new(OTHER, 91)),
        (40, newtask(90, 92, b"x", INTO_CGROUP), 1),  # enters the container
        (50, K.wakeup_new(90, 92), 1),
        (60, K.switch(IDLE, "R", 91)),
        (70, K.switch(90, "R", 92), 1),
        targets=[job, container],
        members=[[1, 90, -1, -1, 0, False], [5, 0, -1, -1, 0, False]],
    )
    assert rows == [(92, 20, 50)]


def test_nothing_counts_before_the_exec_of_the_command(tmp_path):
    rows = told(
        tmp_path,
        "state, dur_ns, ts",
        (10, K.switch(OTHER, "S", IDLE)),
        (20, K.waking(IDLE, JOB)),
        (30, K.switch(IDLE, "R", JOB)),  # the launched process, before it becomes the command
        (40, K.switch(JOB, "D", IDLE)),
        (50, K.switch(IDLE, "R", JOB)),
        (60, execed(JOB)),
        (70, K.switch(JOB, "S", IDLE)),
        (80, K.switch(IDLE, "R", JOB)),
        targets=[target(JOB, kind="command")],
        threads=[(JOB, JOB, 1, "tracer", None)],
    )
    assert rows == [("S", 10, 70)]
