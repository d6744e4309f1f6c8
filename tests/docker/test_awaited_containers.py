"""Containers that begin, and are removed, while they are recorded: `tracer record --wait`."""

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading

import pytest

from tests.docker.conftest import calls, wait_for
from tests.support.backends import every_backend
from tests.support.dockerd import IMAGE
from tests.support.front import in_front_of
from tests.support.losses import losses

TIMES = "import os\nfor _ in range({}): os.times()"
PAGES = 1009

TOUCH = f"""
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void touch_the_pages(volatile char *at) {{
    for (int n = 0; n < {PAGES}; n++) at[(long)n * 4096] = 1;
}}
int main(void) {{
    char *at = mmap(0, {PAGES}L * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(at, {PAGES}L * 4096, MADV_NOHUGEPAGE);
    touch_the_pages(at);
    return 0;
}}
"""


def removed(dockerd, *names):
    """Waits until these containers are removed."""

    def gone():
        return not {
            c.name for c in dockerd.client.containers.list(all=True, ignore_removed=True)
        } & set(names)

    wait_for(gone, "the removal of the containers")


@every_backend
def test_two_containers_are_recorded_from_their_start_to_their_removal(
    dockerd, shared, record, backend
):
    """An earlier container of the same name and a stranger's container do not count."""
    earlier = dockerd.run("one", TIMES.format(997), shared=shared)
    earlier.wait()
    options = ("--docker-daemon", "--container", "one,two", "--wait", "-e", "syscalls")
    recording = record(*options, "--backend", backend)
    earlier.remove()
    ours = {}
    for name, times in (("one", 1009), ("stranger", 1013), ("two", 1019)):
        options = {"shared": shared, "auto_remove": True}
        ours[name] = dockerd.run(name, TIMES.format(times), **options).id
    removed(dockerd, *ours)
    with recording.stop() as trace:
        assert calls(trace, "times") == [("one", "target", 1009), ("two", "target", 1019)]
        targets = {target["name"]: target for target in trace.manifest["targets"]}
        assert targets["one"]["container"] == ours["one"] != earlier.id
        assert targets["two"]["container"] == ours["two"]
        found = trace.connection.execute(
            "SELECT DISTINCT target, container_name FROM processes WHERE role = 'target' ORDER BY 1"
        ).fetchall()
        assert found == [("one", "one"), ("two", "two")]
        query = "SELECT DISTINCT comm FROM processes WHERE role = 'daemon'"
        comms = {comm for (comm,) in trace.connection.execute(query).fetchall()}
        assert {"dockerd", "containerd", "containerd-shim", "runc"} <= comms
        assert losses(trace) == []


def test_the_recording_of_an_awaited_container_alone_ends_with_its_removal(dockerd, shared, record):
    recording = record("--container", "alone", "--wait", "-e", "syscalls")
    container = dockerd.run("alone", TIMES.format(1009), shared=shared)
    container.wait()
    container.remove()
    with recording.trace() as trace:
        assert trace.manifest["ended_by"] == "target"
        assert calls(trace, "times") == [("alone", "target", 1009)]


TRAIN = """
import torch
model = torch.nn.Linear(8, 2)
for _ in range(5): model(torch.randn(4, 8)).sum().backward()
"""


@pytest.mark.parametrize("trains", [True, False])
def test_a_training_that_marks_no_phases_is_told_at_the_end(dockerd, shared, record, trains):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    recording = record("--container", "job", "--wait", "-e", "syscalls,page_faults,torch_calls")
    trained = f"import subprocess; subprocess.run({[sys.executable, '-c', TRAIN]}, check=True)"
    source = trained if trains else TIMES.format(7)
    container = dockerd.run("job", source, shared=shared, folders=[sys.prefix])
    assert container.wait()["StatusCode"] == 0, container.logs()
    container.remove()
    told = recording.process.stderr.read()
    assert recording.process.wait(timeout=120) == 0, told
    assert ("no phases of container job are known, and it ran PyTorch" in told) == trains, told


def test_the_facts_of_a_container_are_asked_for_until_the_daemon_tells(
    dockerd, shared, record, tmp_path, monkeypatch
):
    lost, tells = [], threading.Event()

    def lose(head):
        if re.match(r"GET \S*/containers/[0-9a-f]{64}/json", head) and not tells.is_set():
            lost.append(head)
            raise ConnectionResetError

    with in_front_of(dockerd.host, tmp_path / "front", lose) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        options = ("--container", "silent", "--wait", "-e", "syscalls", "--perf-stat")
        recording = record(*options)
        container = dockerd.run("silent", "import time; time.sleep(1000)", shared=shared)
        asked = len(lost)
        wait_for(lambda: len(lost) > asked + 1, "further questions")
        tells.set()

        def arrived():
            manifest = json.loads((recording.folder / "manifest.json").read_text())
            counted = [one["target"] for one in manifest["perf"]["counters"]]
            known = [c["id"] for c in manifest.get("containers", []) if c.get("arrived")]
            return (known, counted) == ([container.id], ["silent"])

        wait_for(arrived, "its facts, and perf")
        container.remove(force=True)
        with recording.trace() as trace:
            (target,) = trace.manifest["targets"]
            assert (target["container"], target["image"]) == (container.id, IMAGE)


@pytest.fixture
def touching(dockerd, tmp_path):
    """Returns an image of one static program, which touches `PAGES` pages in a known function."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program = tmp_path / "touch"
    source = ["cc", "-O1", "-static", "-x", "c", "-", "-o", str(program)]
    subprocess.run(source, input=TOUCH.encode(), check=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(program, "opt/touch")
    dockerd.client.api.import_image_from_data(data.getvalue(), repository="tracer-tests/touching")
    yield "tracer-tests/touching"
    dockerd.client.images.remove("tracer-tests/touching", force=True)


def test_functions_of_a_container_that_is_gone_have_names(dockerd, touching, record):
    recording = record("--docker-daemon", "--container", "gone", "--wait", "-e", "page_faults")
    container = dockerd.client.containers.run(
        touching, ["/opt/touch"], name="gone", network_mode="none", detach=True
    )
    container.wait()
    container.remove()
    with recording.stop() as trace:
        query = (
            "SELECT p.target, p.container_name, f.ip_file, count(*) FROM page_faults f"
            " JOIN processes p USING (pid, tid) WHERE f.symbol = 'touch_the_pages' GROUP BY 1, 2, 3"
        )
        found = trace.connection.execute(query).fetchall()
        assert found == [("gone", "gone", "/opt/touch", PAGES)]
        query = (
            "SELECT DISTINCT f.symbol FROM page_faults f JOIN processes p USING (pid, tid)"
            " WHERE p.role = 'daemon'"
        )
        symbols = {symbol for (symbol,) in trace.connection.execute(query).fetchall()}
        # Park & Bahn 2023, Table 8, names these.
        assert {"_dl_relocate_object", "runtime.memclrNoHeapPointers", "runtime.memmove"} <= symbols
        assert trace.sql("SELECT 1 FROM page_faults WHERE ip_file = '/'").empty


TOUCHES = f"""
import mmap
held = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)
held.madvise(mmap.MADV_NOHUGEPAGE)
for n in range({PAGES}): held[n * mmap.PAGESIZE] = 1
"""


def test_perf_counts_an_awaited_container_and_the_daemon_without_it(start, tell, record):
    recording = record(
        "--docker-daemon", "--container", "late", "--wait", "-e", "page_faults", "--perf-stat"
    )
    container = start("late", TOUCHES)

    seen = {}

    def counted():
        seen.update(json.loads((recording.folder / "manifest.json").read_text()))
        return [one["target"] for one in seen["perf"]["counters"]] == ["dockerd", "late"]

    try:
        wait_for(counted, "perf")
    except AssertionError as error:
        ended = recording.process.poll()
        error.add_note(f"recorder: {ended}, perf: {seen['perf']}, targets: {seen['targets']}")
        raise
    tell("go")
    container.wait()
    container.remove()
    with recording.stop() as trace:
        query = (
            "SELECT target, count(*) FROM page_faults JOIN processes USING (pid, tid)"
            " WHERE target IS NOT NULL GROUP BY 1"
        )
        recorded = dict(trace.connection.execute(query).fetchall())
        query = "SELECT target, value FROM counters WHERE event = 'page-faults'"
        counts = dict(trace.connection.execute(query).fetchall())
        assert PAGES <= counts["late"] <= recorded["late"]
        # Only the faults before perf counts the container count for the daemon that made it.
        assert counts["dockerd"] < recorded["dockerd"] + recorded["late"]
