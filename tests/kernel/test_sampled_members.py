"""The processes that samples of a cgroup and of a shell count, and those that they leave out."""

import shlex
import subprocess

from tests.conftest import tracer_command
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.store.trace import Trace


def looks(folder, processes):
    """The number of samples so far that have found so many processes."""
    path = folder / "raw/samples.jsonl"
    return path.read_text().count(f'"processes", null, {processes}]') if path.exists() else 0


def values(folder, name):
    """A series of the target over time."""
    with Trace(folder) as trace:
        query = "SELECT value FROM samples WHERE name = ? AND target IS NOT NULL ORDER BY ts"
        return [value for (value,) in trace.connection.execute(query, [name]).fetchall()]


def test_a_process_that_enters_a_cgroup_leaves_its_past_use_outside(load, cgroup, tmp_path):
    source = """
        import os, time
        while sum(os.times()[:2]) < 0.7: pass
        print("done", flush=True)
        time.sleep(600)
    """
    options = ("--backend", "none", "--sample-hz", "20", "--cgroup", cgroup)
    folder, members = tmp_path / "x.trace", cgroup / "cgroup.procs"
    with (
        subprocess.Popen(["sleep", "600"]) as inside,
        subprocess.Popen(load(source), stdout=subprocess.PIPE, text=True) as busy,
    ):
        try:
            assert busy.stdout.readline() == "done\n"
            members.write_text(str(inside.pid))
            with Tracer("record", "-o", folder, *options, cwd=tmp_path) as recorder:
                for place in (members, cgroup.parent / "cgroup.procs", members):
                    processes = 2 if place is members else 1
                    before = looks(folder, processes)
                    wait_for(lambda: looks(folder, 1), "the first sample")
                    place.write_text(str(busy.pid))
                    wait_for(lambda n=before, p=processes: looks(folder, p) > n + 1, "samples")
                recorder.terminate()
                recorder.communicate()
        finally:
            inside.kill()
            busy.kill()
    first, *_, last = values(folder, "cpu_time")
    assert last - first < 0.7


def test_a_recorder_is_not_in_the_samples_of_the_shell_that_started_it(tmp_path):
    folder = tmp_path / "x.trace"
    command = tracer_command("record", "-o", folder, "--backend", "none", "-d", "0.5", "-p")
    subprocess.run(["bash", "-c", f"{shlex.join(command)} $$; :"], check=True)
    assert set(values(folder, "processes")) == {1}


def test_a_recorder_is_not_in_the_samples_of_a_cgroup_that_holds_it(cgroup, tmp_path):
    folder, members = tmp_path / "x.trace", cgroup / "cgroup.procs"
    options = ("--backend", "none", "--cgroup", cgroup, "-d", "0.5")
    command = tracer_command("record", "-o", folder, *options)
    script = f"echo $$ > {members}; {shlex.join(command)}; :"
    subprocess.run(["bash", "-c", script], check=True)
    assert set(values(folder, "processes")) == {1}
