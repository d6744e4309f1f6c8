"""Containers of podman and containerd as targets, and the names of all engines' containers."""

import json

import pytest

from tests.conftest import do_without
from tests.docker.conftest import BRIEF, CALLS, WAITING, calls, wait_for
from tests.docker.test_container_targets import EACH, FORKS, STORM
from tests.support.dockerd import IMAGE, python
from tests.support.engine import Containerd, Podman
from tests.support.losses import losses
from tracer.probes.proc import read_stat
from tracer.targets.cgroups import cgroup_at, hierarchies, of_process

A, B, OTHER, LATER = 9973, 101, 757, 1009

RUNS = f"""
n = sum(name.startswith("run-") for name in os.listdir("/shared"))
say("run-%d" % n)
wait_for("go-%d" % n)
for _ in range({B}): os.times()
say("done-%d" % n)
time.sleep(1000)
"""
"""Program that says which run of its container it is, waits, and calls times."""


def engine_of(kind):
    """Yields an engine of the tests; skips the test, with the reason, if it is not there.

    TRACER_REQUIRE_DOCKER requires it, too: `make setup` installs all engines.
    """
    try:
        engine = kind()
    except RuntimeError as error:
        do_without(kind.name, "TRACER_REQUIRE_DOCKER", str(error))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def podman():
    """Runs podman with its own store."""
    yield from engine_of(Podman)


@pytest.fixture(scope="module")
def containerd():
    """Runs a containerd of the tests' own."""
    yield from engine_of(Containerd)


@pytest.fixture(params=["podman", "containerd"])
def engine(request):
    """An engine without containers."""
    engine = request.getfixturevalue(request.param)
    yield engine
    engine.remove_all()


@pytest.fixture
def made(engine, shared):
    """Makes a container whose program waits for a word: `made(NAME, SOURCE, ARGUMENTS...)`."""

    def run(name, source, *arguments, **options):
        return engine.run(name, WAITING + source, name, *arguments, shared=shared, **options)

    return run


def identity_of(engine, identity):
    """Returns the id in a trace: ids that are no 64 digits are unique in a namespace only."""
    return identity if engine.name == "podman" else f"{engine.group}/{identity}"


def looked_at(recording, pid):
    """Waits until the recorder has found a process that joined."""
    members = recording.folder / "raw/members.jsonl"
    wait_for(lambda: f", {pid}, " in members.read_text(), "the recorder's look")


def test_each_call_counts_to_its_own_container(engine, made, tell, record, shared):
    a, b, other = (made(name, CALLS, n) for name, n in (("a2", A), ("b2", B), ("c2", OTHER)))
    tell(None, "a2-is-up", "b2-is-up", "c2-is-up")
    recording = record("--container", f"a2,{b}", "-a")
    tell("go", "a2-is-done", "b2-is-done", "c2-is-done")
    pid = engine.pid(a)
    with recording.stop() as trace:
        found = [(n, role, count) for n, role, count in calls(trace) if n in ("a2", "b2")]
        assert found == [("a2", "target", A), ("b2", "target", B)]
        rows = trace.rows(
            "SELECT container_name, container_id, role, count(*) FROM processes WHERE "
            "container_name IN ('a2', 'b2', 'c2') GROUP BY ALL ORDER BY 1"
        )
        # The monitor of a container is not in it.
        assert rows == [
            ("a2", identity_of(engine, a), "target", 1),
            ("b2", identity_of(engine, b), "target", 1),
            ("c2", identity_of(engine, other), "other", 1),
        ]
        assert trace.rows(
            "SELECT count(*) FROM syscalls JOIN processes USING (pid, tid) "
            "WHERE name = 'getppid' AND container_name = 'c2'"
        ) == [(OTHER,)]
        sampled = trace.rows(
            "SELECT DISTINCT target FROM samples WHERE name = 'cgroup_memory' AND value > 0 "
            "ORDER BY 1"
        )
        assert sampled == [("a2",), ("b2",)]
        facts = {c["name"]: c for c in trace.manifest["containers"]}["a2"]
        assert losses(trace) == []
    assert facts["engine"] == engine.name
    assert facts["pid"] == pid
    assert facts["cgroup"].endswith(a)
    mount = {"type": "bind", "source": str(shared), "path": "/shared", "writable": True}
    assert mount in facts["mounts"]
    assert {**mount, "source": "/etc", "path": "/etc", "writable": False} in facts["mounts"]


def test_a_storm_of_forks_and_execs_is_counted_whole(engine, made, tell, record):
    made("storm", STORM, FORKS)
    made("squall", STORM, FORKS // 2)
    tell(None, "storm-is-up", "squall-is-up")
    recording = record("--container", "storm", "-e", "syscalls,processes")
    tell("go", "storm-is-done", "squall-is-done")
    with recording.stop() as trace:
        assert calls(trace, "times") == [("storm", "child", FORKS * EACH + (FORKS + 1) // 2)]
        assert losses(trace) == []


def test_the_manifest_names_the_layers_of_podmans_container(podman, shared, tell, record):
    identity = podman.run("layers", WAITING, "layers", shared=shared)
    tell(None, "layers-is-up")
    theirs = podman.layers(identity)
    with record("--container", identity[:12], "-e", "block").stop() as trace:
        facts = {c["id"]: c for c in trace.manifest["containers"]}[identity]
    podman.remove(identity)
    assert facts["image"] == f"localhost/{IMAGE}:latest"
    assert (facts["merged"], facts["upper"]) == (theirs["MergedDir"], theirs["UpperDir"])
    assert facts["lower"] == theirs["LowerDir"].split(":")


def test_later_executed_programs_belong_to_the_container(engine, made, tell, record, shared):
    identity = made("exec", CALLS, A)
    tell(None, "exec-is-up")
    recording = record("--container", "exec", *BRIEF, "--engine", engine.name)
    source = WAITING.replace('"go"', '"go-on"') + f"for _ in range({LATER}): os.times()\nsay('end')"
    engine.execute(identity, python(source, "later"))
    tell(None, "later-is-up")
    if not engine.follows_joins:
        init = engine.pid(identity)
        (joined,) = processes_of(init) - {init}
        # podman starts it through a monitor of its own.
        assert read_stat(joined).ppid != read_stat(init).ppid
        looked_at(recording, joined)
    tell("go-on", "end")
    with recording.stop() as trace:
        assert calls(trace, "times") == [("exec", "target", LATER)]
        late = ["joins: ? joined before it was followed"]
        assert losses(trace) == ([] if engine.follows_joins else late)


def processes_of(pid):
    """Returns the processes in the cgroups of a process."""
    paths = of_process(pid)
    mounted = (cgroup_at(h, h.number, paths[h.number]) for h in hierarchies())
    return next(cgroup for cgroup in mounted if cgroup.exists()).processes()


def test_a_restart_is_followed_until_the_container_is_removed(engine, made, tell, record):
    identity = made("again", RUNS)
    tell(None, "again-is-up")
    recording = record("--container", "again", *BRIEF)
    tell("go", "run-0")
    tell("go-0", "done-0")
    engine.restart(identity)
    tell(None, "run-1")
    looked_at(recording, engine.pid(identity))
    tell("go-1", "done-1")
    engine.stop(identity)
    assert recording.process.poll() is None
    engine.remove(identity)
    with recording.trace() as trace:
        assert trace.manifest["ended_by"] == "target"
        assert calls(trace, "times") == [("again", "target", 2 * B)]
        found = trace.rows("SELECT count(*) FROM syscalls WHERE name = 'times' GROUP BY pid")
        assert found == [(B,), (B,)]
        late = {"joins: ? joined before it was followed"}
        assert set(losses(trace)) == (set() if engine.follows_joins else late)


def test_a_container_that_is_made_and_removed_meanwhile_has_a_name(engine, made, tell, record):
    made("keeper", "time.sleep(1000)")  # by which the engine's folders are known
    tell(None, "keeper-is-up")
    recording = record("-a", "-e", "syscalls")
    source = f"for _ in range({B}): os.times()\nsay('brief-is-done')\ntime.sleep(1)"
    identity = made("brief", source)
    tell("go", "brief-is-done")
    wait_for(lambda: not read_stat(engine.pid(identity) or 1 << 30), "the program's end")
    engine.remove(identity)
    with recording.stop() as trace:
        found = trace.rows(
            "SELECT container_name, container_id, count(*) FROM syscalls JOIN processes "
            "USING (pid, tid) WHERE name = 'times' AND container_id IS NOT NULL GROUP BY ALL"
        )
        assert ("brief", identity_of(engine, identity), B) in found
        facts = {c["name"]: c for c in trace.manifest["containers"]}["brief"]
        assert facts["arrived"] is True


def test_doctor_counts_the_containers_of_an_engine(engine, made, tell, tracer):
    made("one", CALLS, 1)
    tell(None, "one-is-up")
    checks = {
        check["name"]: check for check in json.loads(tracer("doctor", "--json").out)["checks"]
    }
    assert checks[engine.name]["ok"] is True
    assert int(checks[engine.name]["found"].split()[0]) >= 1


def test_stopped_and_unknown_containers_are_refused(engine, made, tell, tracer):
    identity = made("ended", "")
    made("there", CALLS, 1)
    tell(None, "ended-is-up", "there-is-up")
    engine.stop(identity)
    only = ("--engine", engine.name)
    ran = tracer("record", "--container", "ended", *only, status=4)
    assert "container ended is not running (stopped); " in ran.err
    ran = tracer("record", "--container", "gone", *only, status=4)
    assert "there is no container 'gone'; there are: " in ran.err
    assert "ended" in ran.err
    assert "there" in ran.err
    ran = tracer("record", "--container", "there", *only, "--wait", status=2)
    assert f"--wait awaits containers of Docker, and --engine is {engine.name}" in ran.err


def test_a_name_of_two_engines_needs_the_engine(podman, containerd, shared, tell, tracer, record):
    source = WAITING + CALLS
    podman.run("twice", source, "twice-podman", B, shared=shared)
    # nerdctl gives its containers ids of 64 digits, and their names as a label.
    name = {"nerdctl/name": "twice"}
    containerd.run("c0ffee", source, "twice-containerd", B, shared=shared, labels=name)
    tell(None, "twice-podman-is-up", "twice-containerd-is-up")
    ran = tracer("record", "--container", "twice", status=2)
    assert "several engines have a container 'twice': podman, containerd; name" in ran.err
    assert "--engine podman" in ran.err
    recording = record("--container", "twice", "--engine", "containerd", "-e", "syscalls")
    tell("go", "twice-podman-is-done", "twice-containerd-is-done")
    with recording.stop() as trace:
        assert trace.manifest["targets"][0]["engine"] == "containerd"
        assert calls(trace) == [("twice", "target", B)]
    for engine in (podman, containerd):
        engine.remove_all()


def test_containers_of_kubernetes_are_named_by_their_pods(containerd, shared, tell, tracer, record):
    for pod, name, n in (("one", "train", A), ("two", "train", B), ("two", "log", LATER)):
        kind = "io.kubernetes.cri."
        annotations = {
            f"{kind}container-name": name,
            f"{kind}sandbox-name": pod,
            f"{kind}sandbox-namespace": "ml",
        }
        word = f"{pod}-{name}"
        source = WAITING + CALLS
        containerd.run(word, source, word, n, shared=shared, annotations=annotations)
        tell(None, f"{word}-is-up")
    ran = tracer("record", "--container", "train", status=2)
    for pod in ("one", "two"):
        said = f"ml/{pod}/train (containerd, {containerd.group}/{pod}-train)"
        assert said in ran.err
    recording = record("--container", "two/train,log")
    tell("go", "one-train-is-done", "two-train-is-done", "two-log-is-done")
    with recording.stop() as trace:
        assert calls(trace) == [("ml/two/log", "target", LATER), ("ml/two/train", "target", B)]
        names = trace.rows(
            "SELECT DISTINCT container_name FROM processes WHERE starts_with(container_name, 'ml/')"
        )
        assert sorted(names) == [("ml/one/train",), ("ml/two/log",), ("ml/two/train",)]
    containerd.remove_all()
