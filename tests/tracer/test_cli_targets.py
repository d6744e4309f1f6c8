"""Targets and folders that `tracer record` cannot find are told as that."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize(
    ("option", "program"), [("-p", "python"), ("--docker-cli", "docker")], ids=["p", "docker-cli"]
)
class TestWrongNumbers:
    """The error names the option that was given, and finds the program that it is for."""

    def test_a_number_that_no_process_can_have(self, tracer, option, program):
        said = tracer("record", option, 1 << 31, status=2).err
        needs = f"{option} needs process ids, and '2147483648' is not one"
        assert said == f"tracer: {needs}; find it: pgrep -a {program}\n"

    def test_a_process_that_is_not_there(self, tracer, option, program):
        said = tracer("record", option, (1 << 31) - 1, status=4).err
        assert said == f"tracer: there is no process 2147483647; find it: pgrep -a {program}\n"

    def test_a_thread(self, tracer, option, program):
        with ThreadPoolExecutor(1) as pool:
            tid = pool.submit(threading.get_native_id).result()
            said = tracer("record", option, tid, status=2).err
        here = os.getpid()
        assert said == f"tracer: {tid} is a thread of process {here}; give {option} {here}\n"


def test_a_process_is_the_job_or_runs_docker_commands_and_not_both(tracer, tmp_path):
    """A process belongs to one target, and the two options give it different roles."""
    pid = os.getpid()
    said = tracer("record", "-p", f"1,{pid}", "--docker-cli", pid, status=2).err
    assert said == (
        f"tracer: process {pid} is named by -p and by --docker-cli, and is one target;"
        " leave out one: -p counts it as the job, --docker-cli as the daemon\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_very_many_digits_is_no_process_id(tracer):
    said = tracer("record", "-p", "9" * 5000, status=2).err
    assert said.startswith("tracer: -p needs process ids, and '999")


def test_numbers_one_a_line_are_separated_by_commas_instead(tracer):
    said = tracer("record", "-p", "12\n13", status=2).err
    needs = "-p needs process ids, and '12\\n13' is not one"
    assert said == f"tracer: {needs}; separate them by commas: pgrep -d, python\n"


@pytest.mark.parametrize("option", ["--residency", "-o"])
def test_an_empty_folder_is_not_the_current_one(tracer, tmp_path, option):
    ran = tracer("record", option, "", "--", "touch", "run", status=2)
    assert "an empty name is no file and no folder" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_file_of_another_tool(tracer, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = tracer("info", "pipe", status=6).err
    assert said == "tracer: pipe is no regular file, and a trace is a directory; name a trace\n"
