"""One study of all kinds of runs, whose runner is killed and which is resumed, and its folder."""

import json
import os
from pathlib import Path

import pytest

from tests.docker.conftest import wait_for
from tests.support.study_folders import assert_nothing_is_left, loops, results, times_of
from tests.support.warm import Tracer
from tracer.analysis.studies.runs import read_runs
from tracer.analysis.views.faults import FAULTS
from tracer.store.trace import Trace
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.studies import throttle

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.quiet, pytest.mark.settings]

STUDY = """
name = "whole"
repeats = 1
scale = 0.002
time_scale = 0.01
[[runs]]
model = "lenet"
where = ["host", "1"]
cache = "kept"
memory = "48m"  # less than PyTorch alone takes
workers = 0
[[runs]]
model = "lenet"
where = "host"
medium = "ram"
cache = "kept"
workers = 1
epochs = 2
power_mode = {{cores = 1, cpu_quota = 0.9}}
[[runs]]
model = "lenet"
where = "1"
medium = "{card}"
cache = "kept"
workers = 1
epochs = 2
power_mode = {{cores = 1, cpu_quota = 0.9}}
[[runs]]
model = "lenet"
where = ["host", "1"]
cache = "kept"
workers = 0
epochs = 1
power_mode = {{gpu_mhz = 1}}
[[runs]]
model = "lenet"
mode = "serve"
cache = "kept"
rate = 50
requests = 23
[[runs]]
model = "lenet"
mode = "serve"
where = "2"
medium = "{limited}"
rate = 50
requests = 23
"""
ENDED = {"runs": 8, "done": 4, "failed": 4}
NOTE = Path("/var/lib/traintrace/power_mode.json")
EXPIRE = Path("/proc/sys/vm/dirty_expire_centisecs")


class Whole:
    """The study in its folder."""

    def __init__(self, folder: Path, limited: str) -> None:
        """Makes no run yet. `limited` is the medium of the servers in containers."""
        self.folder = folder
        self.limited = limited
        self.card = folder.parent / "card"
        self.card.mkdir()
        study = STUDY.format(limited=limited, card=self.card)
        (folder.parent / "whole.toml").write_text(study)

    def start(self) -> Tracer:
        """Runs it in the background."""
        command = ("study", "run", "whole.toml", "-o", "s", "--scratch", "512m")
        return Tracer(*command, cwd=self.folder.parent)

    def run(self) -> dict[str, object]:
        """Runs it to its end; returns the numbers of runs that it tells."""
        with self.start() as process:
            try:
                out, err = process.communicate(timeout=600)
            finally:
                process.kill()
        assert process.returncode == 0, err
        told = json.loads(out)
        assert (told.pop("study"), told.pop("folder")) == ("whole", str(self.folder))
        return told

    def made(self, mode: str, where: str) -> tuple[str, dict]:
        """Returns the id and the result of the run that was done in this mode and place."""
        (found,) = (
            (name, one)
            for name, one in results(self.folder).items()
            if (one["state"], one["factors"]["mode"], one["factors"]["where"])
            == ("done", mode, where)
        )
        return found

    def trace(self, mode: str, where: str) -> Trace:
        """Returns the trace of that run."""
        name, _ = self.made(mode, where)
        return Trace(self.folder / "runs" / name / "run.trace")


@pytest.fixture(scope="module")
def whole(daemon, tmp_path_factory):
    """Kills the runner of the study during its second run, and resumes the study."""
    with PowerModes(needed=False):
        pass  # the machine has its own settings again, if tests were killed during a study
    limited = "disk" if throttle.find_hierarchy() is None else "sd-card"
    whole = Whole(tmp_path_factory.mktemp("whole") / "s", limited)
    expire = EXPIRE.read_text()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", daemon.host)
        with whole.start() as runner:
            try:
                folder = whole.folder
                wait_for(lambda: results(folder), "the first run", 200)
                wait_for(lambda: len(os.listdir(folder / "runs")) > 1, "the second run", 60)
                wait_for(lambda: loops(folder), "its file system", 60)
            finally:
                runner.kill()
        assert loops(folder)
        kept = times_of(folder, "run.json")
        assert [one["state"] for one in results(folder).values()] == ["done"]
        assert whole.run() == ENDED
        assert kept.items() <= times_of(folder, "run.json").items()
        assert EXPIRE.read_text() == expire
        assert not NOTE.exists()
        assert_nothing_is_left(folder, daemon)
        yield whole
    daemon.remove_all()


def test_a_study_that_has_ended_makes_no_run_again(whole):
    before = times_of(whole.folder, "*")
    assert whole.run() == ENDED
    assert times_of(whole.folder, "*") == before


def test_the_runs_train_alike_on_the_host_and_in_a_container(whole):
    before_ms = int(EXPIRE.read_text()) * 10
    found = {where: whole.made("train", where)[1] for where in ("host", "1")}
    # One seed gives one loss in every place, and on every medium.
    losses = {(s["first_loss"], s["last_loss"]) for one in found.values() for s in one["summaries"]}
    assert len(losses) == 1
    assert found["host"]["versions"] == found["1"]["versions"]
    for where, one in found.items():
        assert len(one["summaries"]) == 1
        with whole.trace("train", where) as trace:
            query = "SELECT count(*) FROM phases WHERE name = 'train'"
            assert trace.connection.execute(query).fetchone() == (1,)
            # The flusher's timers are a hundredth of the machine's, and it has written all data.
            assert int(trace.manifest["vm"]["dirty_expire_centisecs"]) * 1000 == before_ms
            assert trace.manifest["duration_s"] > one["timers"]["dirty_expire_centisecs"] / 100
    done = [one for one in results(whole.folder).values() if one["state"] == "done"]
    assert all(one["others_cpu_s"] >= 0 for one in done)


def test_functions_of_a_container_that_was_removed_have_names(whole):
    with whole.trace("train", "1") as trace:
        FAULTS.make(trace)
        query = (
            "SELECT DISTINCT symbol FROM faults WHERE role IN ('target', 'child')"
            " AND ip_file LIKE '%/libtorch_cpu.so' AND symbol IS NOT NULL"
        )
        names = [name for (name,) in trace.connection.execute(query).fetchall()]
    assert any("at::" in name for name in names)


def test_runs_have_their_power_modes_and_only_impossible_ones_fail(whole):
    found = sorted(results(whole.folder).values(), key=lambda one: one["began"])
    too_big = [one for one in found if one["factors"]["memory"]]
    assert sorted(one["factors"]["where"] for one in too_big) == ["1", "host"]
    for one in too_big:
        assert one["state"] == "failed"
        assert "the memory limit was reached" in one["reason"]
    states = [one["state"] for one in found]
    assert "done" in states[states.index("failed") :]  # the study went on
    moded = [one for one in found if one["factors"]["power_mode"]]
    assert sorted(one["state"] for one in moded) == ["done", "done", "failed", "failed"]
    for one in moded:
        mode = one["power_mode"]
        if one["state"] == "failed":
            assert mode == {"name": "gpu_mhz 1"}
            assert "gpu_mhz" in one["reason"] and "\n" not in one["reason"]
        else:
            assert mode["name"] == "cores 1, cpu_quota 0.9"
            assert (mode["settings"]["cores"], mode["settings"]["cpu_quota"]) == (1, 0.9)
            assert mode["by"]["cpu_quota"] == "quota of CPU time, not a frequency"


def test_each_run_has_its_medium_and_a_users_folder_is_empty_again(whole):
    for mode, where, medium in (
        ("train", "host", "ram"),
        ("train", "1", str(whole.card)),
        ("serve", "host", "disk"),
        ("serve", "2", whole.limited),
    ):
        _, one = whole.made(mode, where)
        assert one["medium"]["name"] == medium
        assert (set(one["medium"]) == {"name"}) == (medium != "sd-card")
        if medium == "sd-card":
            asked, measured = (one["medium"][name] for name in ("asked", "measured"))
            assert measured["read_bytes_per_s"] <= 1.5 * asked["read_bytes_per_s"]
            assert "cgroup" in one["medium"]["limited_by"]
        with whole.trace(mode, where) as trace:
            disks = {disk["dev"]: disk for disk in trace.manifest["disks"]}
        assert disks[one["dev"]]["scheduler"] == one["scheduler"]
    assert list(whole.card.iterdir()) == []


def test_a_study_serves_what_it_has_trained_on_a_limited_medium_too(whole):
    for where, servers, medium, taught in (
        ("host", 1, "disk", "host"),
        ("2", 2, whole.limited, "1"),  # nothing was trained in two containers
    ):
        name, training = whole.made("train", taught)
        _, serving = whole.made("serve", where)
        assert serving["weights"] == {
            "kind": "trained", "run": name, "epoch": 1, "step": training["summaries"][0]["steps"],
            **training["checkpoint"],
        }  # fmt: skip
        assert training["ended"] < serving["began"]
        assert serving["medium"]["name"] == medium
        answered = [
            (one["server"]["answered"], one["client"]["answered"]) for one in serving["summaries"]
        ]
        assert answered == [(23, 23)] * servers
    assert not (whole.folder / "checkpoints").exists()
    _, frame, failed = read_runs(whole.folder)
    assert [run["state"] for run in failed] == ["failed"] * 4
    served = frame[frame["mode"] == "serve"]
    assert sorted(served["where"]) == ["2", "host"]
    assert set(served["weights"]) == {"trained"}
    assert frame.loc[frame["mode"] == "train", "weights"].isna().all()
    assert (served["latency_p99_ms"] >= served["latency_p50_ms"]).all()
    assert (served["achieved_per_s"] > 0).all()
    if whole.limited == "disk":
        pytest.skip("this kernel cannot limit devices")


def test_each_of_two_servers_gets_requests_and_only_they_are_recorded(whole):
    with whole.trace("serve", "2") as trace:
        marked = (
            "SELECT target, count(*) FROM phases JOIN (SELECT DISTINCT pid, target FROM processes"
            " WHERE target LIKE 'traintrace-lenet-%') USING (pid) WHERE name = 'eval' GROUP BY 1"
        )
        assert sorted(n for _, n in trace.connection.execute(marked).fetchall()) == [23, 23]
        processes = (
            "SELECT target, count(DISTINCT pid) FROM processes"
            # runc's own helpers enter the container's cgroup before the server does.
            " WHERE target LIKE 'traintrace-lenet-%' AND role = 'target'"
            " AND comm NOT LIKE 'runc:%' GROUP BY 1"
        )
        assert [n for _, n in trace.connection.execute(processes).fetchall()] == [1, 1]


def test_the_docker_command_that_starts_and_removes_containers_is_recorded(whole):
    with whole.trace("serve", "2") as trace:
        query = (
            "SELECT comm, count(DISTINCT pid) FROM processes"
            " WHERE role = 'daemon' AND target = 'docker CLI' AND pid = tid GROUP BY 1"
        )
        # Two commands started the containers, and two removed them.
        assert dict(trace.connection.execute(query).fetchall()) == {"docker-cli": 1, "docker": 4}
