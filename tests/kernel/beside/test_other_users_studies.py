"""Attacks on studies and their scratch disks by another user: root lends no rights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attacker import BY_SUDO, NOBODY, SECRET
from tests.support.studies import make_study
from tracer.analysis.studies.extracts import read_extracts
from tracer.analysis.studies.facts import keep
from tracer.analysis.studies.runs import read_runs
from tracer.workloads.errors import JobError
from tracer.workloads.studies import media
from tracer.workloads.studies.runner import run_study
from tracer.workloads.studies.scratch import Scratch
from tracer.workloads.studies.speeds import SpeedTest
from tracer.workloads.studies.study import Study


@pytest.fixture
def scratch(place):
    """A study's scratch disk whose image lies in the attacker's folder."""
    study = place / "study"
    study.mkdir()
    return Scratch(study, 32 << 20, media.find_medium(str(place / "theirs")))


def test_an_image_that_somebody_else_prepared_is_not_mounted(scratch, attack):
    assert attack(f"truncate -s 32M {scratch.image} && /sbin/mkfs.ext4 -qF {scratch.image}")
    with pytest.raises(JobError, match="another user"), scratch:
        pass
    assert not os.path.ismount(scratch.mount)


def test_nothing_is_mounted_over_what_a_link_names(scratch, place):
    scratch.mount.symlink_to(place / "root's")
    with pytest.raises(JobError, match="cannot use"), scratch:
        pass
    assert not os.path.ismount(place / "root's")


def test_a_file_of_a_scratch_disk_lends_no_rights(scratch):
    with scratch:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        (options,) = [line.split()[3] for line in mounts if line.split()[1] == str(scratch.mount)]
    assert {"nosuid", "nodev"} <= set(options.split(","))


def test_no_memory_is_mounted_over_what_a_link_names(place, attack):
    assert attack(f'mkdir s && ln -s "{place}/root\'s" s/memory')
    scratch = Scratch(place / "theirs/s", 32 << 20, media.find_medium("ram"))
    with pytest.raises(JobError, match="cannot use"), scratch:
        pass
    assert not os.path.ismount(place / "root's")


def test_a_link_for_an_image_frees_no_loop_device_of_another_study(place, attack):
    image = place / "root's/scratch.img"
    image.write_bytes(bytes(1 << 20))
    command = ["losetup", "--find", "--show", image]
    device = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert attack(f'mkdir s && ln -s "{image}" s/scratch.img')
        Scratch(place / "theirs/s", 32 << 20, media.find_medium("disk")).close()
        said = subprocess.run(["losetup", "-j", image], capture_output=True, text=True, check=True)
        assert device in said.stdout
    finally:
        subprocess.run(["losetup", "-d", device], check=False)


def test_a_speed_test_writes_over_no_file_that_a_link_names(place):
    (place / "speed-test").symlink_to(place / "root's/secret")
    with SpeedTest(place, media.find_medium("sd-card").speed) as test:
        assert test.measure().read_iops > 0
    assert (place / "root's/secret").read_text() == SECRET


EMPTY = Study("empty", "", "", 1, 1.0, 1.0, 0, [], 1.0, None)


@pytest.mark.parametrize(
    "planted",
    ["mkdir -p s/runs", "mkdir s && ln -s /etc s/runs", "mkdir -p s/runs && chmod 777 s"],
)
def test_root_runs_no_study_in_a_folder_that_somebody_else_made(place, planted):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    subprocess.run([*user, "sh", "-c", planted], cwd=shared, check=True)
    with pytest.raises(JobError, match=r"another user|not a folder"):
        run_study(EMPTY, shared / "s", 1 << 20, print)
    assert not (shared / "s/study.json").exists()


@pytest.mark.parametrize("planted", ["mkfifo", "mkdir", "truncate -s 1T", "ln -s /etc/passwd"])
def test_a_study_that_is_declared_by_no_file_is_refused(place, attack, tracer, planted):
    """Root would wait for a FIFO for ever, or read a terabyte."""
    assert attack(f"mkdir -p s/runs && {planted} s/study.json")
    environment = {**os.environ, **BY_SUDO}
    ran = tracer("study", "run", "quick", "-o", place / "theirs/s", env=environment, status=2)
    assert "belongs to another study" in ran.err


def test_nothing_is_kept_in_the_folder_of_another_user(place, attack):
    assert attack("mkdir run")
    keep(place / "theirs/run", "measures.json", b"{}")
    assert os.listdir(place / "theirs/run") == []
    keep(place / "root's", "measures.json", b"{}")
    assert (place / "root's/measures.json").read_bytes() == b"{}"


def test_a_report_of_a_study_writes_through_no_link(place, attack):
    """The files that a report keeps beside each run hold text of the study's author."""
    study = make_study(place / "theirs/s", places=("host",))
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", study], check=True)
    for name in ("measures", "extracts"):
        assert attack(f'ln -s "{place}/root\'s/secret" s/runs/host-0/{name}.part')
    _, runs, _ = read_runs(study)
    read_extracts(study, runs)
    assert (place / "root's/secret").read_text() == SECRET


HIDDEN = """
from tracer.workloads.owner import has_ended, myself
pid, start, boot, namespace, user = myself().split("-")
for of in int(user), int(user) + 1:
    print(has_ended(f"{pid}-{int(start) - 1}-{boot}-{namespace}-{of}", here=True))
"""


def test_a_process_of_another_user_that_proc_hides_is_not_known_to_have_ended():
    as_user = (
        "mount -o remount,hidepid=2 /proc && setpriv --reuid=65534 --regid=65534 --clear-groups"
    )
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    command += [f'{as_user} "$@"; exit $?', "sh", sys.executable, "-c", HIDDEN]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False"]
