"""Targets and folders that `tracer record` cannot find are told as that."""

import os

import pytest

from tracer.probes.errors import TargetGone
from tracer.targets.cgroups import find_cgroups


@pytest.mark.parametrize("wanted", ["a" * 5000, "/" + "a" * 5000, "/sys/fs/cgroup/" + "a" * 300])
def test_a_cgroup_of_a_name_that_is_too_long_does_not_exist(wanted):
    with pytest.raises(TargetGone, match="there is no cgroup"):
        find_cgroups(wanted)


@pytest.mark.parametrize("pid", [-5, 0])
def test_a_process_of_docker_commands_needs_a_process_id(tracer, pid):
    ran = tracer("record", "--docker-cli", pid, "--docker-daemon", status=2)
    said = " ".join(ran.err.replace("│", " ").split())
    assert "Invalid value for '--docker-cli': Input should be greater than or equal to 1" in said


@pytest.mark.parametrize("option", ["--residency", "-o"])
def test_an_empty_folder_is_not_the_current_one(tracer, tmp_path, option):
    ran = tracer("record", option, "", "--", "touch", "run", status=2)
    assert "an empty name is no file and no folder" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_file_of_another_tool(tracer, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = tracer("info", "pipe", status=6).err
    assert said == "tracer: pipe is no regular file, and a trace is a directory; name a trace\n"
