"""Hostile monitors of containers and their files: only checked text comes through."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.waiting import wait_for
from tracer.targets.engines import podman
from tracer.targets.engines.containerd import Containerd
from tracer.targets.engines.podman import Podman

ID = "c0ffee" + "1" * 58
SLEEP = f"{sys.executable} -S -E -c 'import time; time.sleep(1000)'"


@pytest.fixture
def monitor(tmp_path):
    """Starts a script of this name with a child, whose pid it writes: `(folder, name, words)`.

    The kernel calls a process of a script by the script's name.
    """
    started = []

    def start(folder, name, *words, pid_file):
        script = tmp_path / name
        text = f"{SLEEP} &\necho $! > {pid_file}.new\nmv {pid_file}.new {pid_file}\nwait\n"
        script.write_text(f"#!/bin/sh\n{text}")
        script.chmod(0o755)
        command = [script, *words]
        started.append(subprocess.Popen(command, cwd=folder, start_new_session=True))
        wait_for(pid_file.exists, f"{name}'s child")
        return int(pid_file.read_text())

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def store(tmp_path):
    """Returns a store of podman's, with one container's bundle."""
    bundle = tmp_path / "store/overlay-containers" / ID / "userdata"
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text("{}")
    entry = {"id": ID, "names": ["listed"], "metadata": json.dumps({"image-name": "an/image:1"})}
    (bundle.parent.parent / "containers.json").write_text(json.dumps([entry]))
    return bundle.parent.parent


@pytest.fixture
def conmon(store, monitor):
    """Starts a monitor of that container; returns its child."""

    def start(name="given", bundle=store / ID / "userdata", session=ID):
        file = store / ID / "pidfile"
        words = ["-c", ID, "-u", session, "-n", name, "-b", str(bundle), "-p", str(file)]
        return monitor(store, "conmon", *words, pid_file=file)

    return start


def found(engine, identity):
    """Returns the facts of the container with this id; None if there is none."""
    facts = [container.facts for container in engine.find(identity)]
    assert len(facts) <= 1
    return facts[0] if facts else None


def test_the_store_of_a_monitor_names_its_container(conmon):
    pid = conmon()
    facts = found(Podman(), ID)
    assert (facts["name"], facts["image"], facts["pid"]) == ("listed", "an/image:1", pid)
    assert found(Podman(), "listed")["id"] == ID


def test_a_container_of_crio_is_named_by_its_pod(conmon, store):
    kind = "io.kubernetes."
    annotations = {
        "io.container.manager": "cri-o",
        f"{kind}pod.namespace": "ml",
        f"{kind}pod.name": "train-0",
        f"{kind}container.name": "trainer",
    }
    config = store / ID / "userdata/config.json"
    config.write_text(json.dumps({"annotations": annotations}))
    conmon(name="k8s_trainer_train-0_ml_0c1f_0")
    facts = found(Podman(), "train-0/trainer")
    assert (facts["name"], facts["engine"]) == ("ml/train-0/trainer", "cri-o")
    config.write_text(json.dumps({"annotations": {**annotations, f"{kind}pod.name": "../x"}}))
    assert found(Podman(), ID)["name"] == "listed"
    # podman makes a pod's containers, too, under its own names.
    config.write_text(
        json.dumps({"annotations": {**annotations, "io.container.manager": "libpod"}})
    )
    facts = found(Podman(), ID)
    assert (facts["name"], facts["engine"]) == ("listed", "podman")


def test_a_process_that_is_no_child_of_the_monitor_is_not_the_containers(conmon, store):
    conmon()
    (store / ID / "pidfile").write_text(str(os.getpid()))
    facts = found(Podman(), ID)
    assert (facts["name"], facts["pid"]) == ("listed", 0)


def test_the_monitor_of_an_executed_program_is_no_containers(conmon):
    conmon(session="d" * 64)
    assert found(Podman(), ID) is None


def _linked(path):
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


def _sparse(path):
    os.truncate(path, 1 << 33)


def _within_a_link(path):
    folder = path.parent
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


DAMAGES = {
    "link": _linked,
    "fifo": _fifo,
    "sparse": _sparse,
    "within a link": _within_a_link,
    "no JSON": lambda path: path.write_bytes(b"\xff{"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "another type": lambda path: path.write_text('[{"id": 5}]'),
    "another id": lambda path: path.write_text(json.dumps([{"id": "../x", "names": ["x"]}])),
    "a name that is no text": lambda path: path.write_text(json.dumps([{"id": ID, "names": [5]}])),
    "unlisted": lambda path: path.write_text("[]"),
    "a control character": lambda path: path.write_text(
        json.dumps([{"id": ID, "names": ["x\x1b[31m\n"], "metadata": "["}])
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_list_that_cannot_be_trusted_names_nothing(conmon, store, damage):
    pid = conmon()
    damage(store / "containers.json")
    (store / "volatile-containers.json").unlink(missing_ok=True)
    facts = found(Podman(), ID)
    if damage is _within_a_link:
        assert facts is None  # the pid file, too, is behind the link
    else:
        assert (facts["name"], facts["image"], facts["pid"]) == ("given", "", pid)


@pytest.mark.parametrize("name", ["x\x1b[31m", "a/b", "x" * 300, "", "-n"])
def test_a_name_that_podman_would_refuse_is_the_id(conmon, store, name):
    (store / "containers.json").unlink()
    conmon(name=name)
    assert found(Podman(), ID)["name"] == ID


@pytest.mark.skipif(os.geteuid() != 0, reason="the usual store is of root")
def test_a_stopped_container_in_the_usual_store_is_known(store, monkeypatch):
    monkeypatch.setattr(podman, "STORES", str(store.parent))
    (container,) = Podman().find("listed")
    assert (container.facts["pid"], container.exists()) == (0, True)
    assert container.start == "podman start listed"
    assert "listed" in Podman().names()
    (store / "containers.json").write_text("[]")
    assert not container.exists()
    for folder in Podman().folders():
        os.close(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_not_read(conmon, store):
    conmon()
    os.chown(store / "containers.json", 65534, -1)
    assert found(Podman(), ID)["name"] == "given"


@pytest.fixture
def shim(tmp_path, monitor):
    """Starts a shim that works in a bundle: `(config, namespace, id)`; returns its child."""

    def start(config, namespace="tests", identity="job"):
        bundle = tmp_path / "state" / namespace / identity
        bundle.mkdir(parents=True)
        if config is not None:
            (bundle / "config.json").write_text(config)
        name = f"containerd-shim-{identity}"[:15]
        return monitor(bundle, name, pid_file=bundle / "init.pid")

    return start


KIND = "io.kubernetes.cri."
POD = {f"{KIND}sandbox-name": "pod", f"{KIND}sandbox-namespace": "ml"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, "job"),
        ({"nerdctl/name": "web"}, "web"),
        ({**POD, f"{KIND}container-name": "train"}, "ml/pod/train"),
        ({f"{KIND}sandbox-name": "pod", f"{KIND}container-name": "train"}, "pod/train"),
        ({**POD, f"{KIND}container-type": "sandbox"}, "ml/pod/POD"),
        ({**POD, f"{KIND}container-name": "x\x1b[31m"}, "job"),
        ({"nerdctl/name": "../x"}, "job"),
    ],
)
def test_annotations_name_a_container(shim, annotations, expected):
    pid = shim(json.dumps({"annotations": {**annotations, f"{KIND}image-name": "an/image"}}))
    facts = found(Containerd(), "tests/job")
    assert facts == {**facts, "name": expected, "image": "an/image", "pid": pid, "cgroup": None}
    assert found(Containerd(), expected) == facts


@pytest.mark.parametrize("config", [None, "", "[" * 100_000, '{"annotations": 5}', '{"linux": []}'])
def test_a_bundle_that_cannot_be_read_is_no_container(shim, config):
    shim(config)
    assert found(Containerd(), "tests/job") is None


def test_a_process_that_is_no_child_of_a_shim_is_not_the_containers(shim, tmp_path):
    shim("{}")
    for text in (str(os.getpid()), "-1", "0", "1" * 19, "x", ""):
        (tmp_path / "state/tests/job/init.pid").write_text(text)
        assert found(Containerd(), "tests/job")["pid"] == 0


@pytest.mark.parametrize("namespace", ["moby", "plugins.moby"])
def test_dockers_own_containers_are_not_counted_twice(shim, namespace):
    shim("{}", namespace=namespace)
    assert found(Containerd(), f"{namespace}/job") is None
