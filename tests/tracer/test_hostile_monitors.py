"""Processes of others that are called like monitors of containers: their claims, and the cost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.attacker import NOBODY, place  # noqa: F401 a fixture
from tests.support.dead_file_system import answers, dead_file_system  # noqa: F401 a fixture
from tests.support.traces import make_trace
from tests.support.waiting import wait_for
from tests.tracer.test_engine_state import (  # noqa: F401 fixtures
    ID,
    conmon,
    found,
    monitor,
    shim,
    store,
)
from tracer.session.description import add_containers
from tracer.store import manifest as manifests
from tracer.targets.cgroups import of_process
from tracer.targets.engines import containerd
from tracer.targets.engines.containerd import Containerd
from tracer.targets.engines.podman import Podman
from tracer.targets.engines.shims import bundles


def test_a_bundle_on_a_file_system_that_never_answers_is_not_waited_for(
    dead_file_system,  # noqa: F811
    tmp_path,
):
    dead = dead_file_system()
    script = tmp_path / "containerd-shim"
    script.write_text("#!/bin/sh\necho\nread word\n")
    script.chmod(0o755)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([script], cwd=dead.inner, **pipes) as process:
        process.stdout.readline()  # The shell has looked at its folder.
        assert Path(f"/proc/{process.pid}/comm").read_text() == "containerd-shim\n"
        dead.dies()
        assert answers(Containerd().present) != []
        assert answers(Containerd().folders) != []
        dead.lives()
        process.kill()


MONITOR = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"conmon")  # PR_SET_NAME
os.chroot(sys.stdin.readline().rstrip())
print(flush=True)
sys.stdin.read()
"""


def test_a_monitor_whose_root_never_answers_is_not_waited_for(
    dead_file_system,  # noqa: F811
    tmp_path,
):
    dead = dead_file_system()
    (tmp_path / "monitor.py").write_text(MONITOR)
    command = [sys.executable, "-S", "-E", tmp_path / "monitor.py", "-c", ID, "-u", ID]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(os.fsencode(dead.inner) + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        dead.dies()
        assert answers(Podman().present) != []
        dead.lives()
        process.kill()


@pytest.fixture
def crowd(place):  # noqa: F811
    """Nobody's process, called like a shim, beside 3,001 bundles whose files are links to one."""
    if os.geteuid() != 0:
        pytest.skip("it takes root to start nobody's process")
    script = place / "containerd-shim"
    script.write_text("#!/bin/sh\nsleep 1000 &\necho $! > ../pid\nwait\n")
    script.chmod(0o755)
    first = place / "theirs/crowd/0"
    first.mkdir(parents=True)
    config = {"annotations": {"filler": "f" * (40 << 10)}}
    (first / "config.json").write_text(json.dumps(config))
    os.chown(first / "config.json", NOBODY, NOBODY)
    os.chown(first.parent, NOBODY, NOBODY)
    with subprocess.Popen(
        [script], cwd=first, user=NOBODY, group=NOBODY, start_new_session=True
    ) as process:
        pid = first.parent / "pid"
        wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), "the shim's child")
        for number in range(1, 3002):
            bundle = first.parent / str(number)
            bundle.mkdir()
            os.link(first / "config.json", bundle / "config.json")
            os.link(pid, bundle / "init.pid")
        yield
        os.killpg(process.pid, signal.SIGKILL)


def test_another_users_bundles_are_looked_at_up_to_a_number_and_a_size(crowd):
    """Together, they have 120 MiB to read."""
    mine = [bundle for bundle in bundles() if bundle.namespace == "crowd"]
    assert 1000 < len(mine) <= (48 << 20) // (40 << 10)


@pytest.fixture
def nobodys(place):  # noqa: F811
    """Starts nobody's process that is called like a monitor, in a folder, with some words."""
    if os.geteuid() != 0:
        pytest.skip("it takes root to start nobody's process")
    started = []

    def start(folder, name, *words):
        script = place / name
        pid = place / f"theirs/{name}.pid"
        pid.unlink(missing_ok=True)
        script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {pid}\nwait\n")
        script.chmod(0o755)
        command = [script, *words]
        started.append(
            subprocess.Popen(command, cwd=folder, user=NOBODY, group=NOBODY, start_new_session=True)
        )
        wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), f"{name}'s child")
        return int(pid.read_text())

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_users_shim_claims_no_process_of_roots_shim_and_no_cgroup(shim, nobodys, place):  # noqa: F811
    victim = shim("{}")
    theirs = place / "theirs/evil/job"
    theirs.mkdir(parents=True)
    own = nobodys(theirs, "containerd-shim")
    paths = set(of_process(victim).values()) - {"/"} or {"/none"}
    for number, (pid, path) in enumerate((pid, path) for pid in (victim, own) for path in paths):
        bundle = place / f"theirs/evil/{number}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps({"linux": {"cgroupsPath": path}}))
        (bundle / "init.pid").write_text(str(pid))
        for each in bundle.iterdir():
            os.chown(each, NOBODY, NOBODY)
    assert {b.pid for b in bundles() if b.namespace == "evil"} <= {0, own}
    assert not [c for c in Containerd().present() if "evil" in c["id"]]
    mine = [c for c in containerd._all() if "evil/" in c.facts["id"]]
    assert mine and all(container.cgroups == [] for container in mine)


def test_a_user_does_not_name_the_container_of_another_user(conmon, nobodys, place):  # noqa: F811
    pid = conmon()
    theirs = place / "theirs/overlay-containers" / ID / "userdata"
    theirs.mkdir(parents=True)
    entry = {"id": ID, "names": ["evil"]}
    (theirs.parent.parent / "containers.json").write_text(json.dumps([entry]))
    (theirs / "config.json").write_text("{}")
    for path in (theirs.parent.parent / "containers.json", theirs / "config.json"):
        os.chown(path, NOBODY, NOBODY)
    file = place / "theirs/conmon.pid"
    nobodys(theirs, "conmon", "-c", ID, "-u", ID, "-n", "evil", "-b", str(theirs), "-p", str(file))
    facts = found(Podman(), ID)
    assert (facts["name"], facts["pid"]) == ("listed", pid)
    other = "d" * 64
    nobodys(theirs, "conmon", "-c", other, "-u", other, "-n", "evil", "-p", str(file))
    assert other not in {facts["id"] for facts in Podman().present()}


def test_more_containers_than_a_manifest_may_list_are_left_out_and_counted(tmp_path):
    make_trace(tmp_path / "t", {}).close()
    manifest = manifests.read(tmp_path / "t")
    manifest["clock"]["realtime_offset_ns"] = time.time_ns() - manifest["clock"]["start_ns"]
    met = {
        f"crowd/{n}": {"id": f"crowd/{n}", "name": f"{n}", "image": "", "pid": n % 10}
        for n in range(70_000)
    }
    left_out = add_containers(manifest, met)
    manifests.write(tmp_path / "t", manifest)
    kept = manifests.read(tmp_path / "t")["containers"]
    assert len(kept) + left_out >= 70_000
    assert all(facts["pid"] for facts in kept)
