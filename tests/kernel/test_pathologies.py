"""Ordinary reasons for slow training, told apart by the first finding of a report.

Each job trains a small model with PyTorch's own DataLoader, and has one fault.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_jobs import ForkedJobs
from tests.support.slow_disk import slow_disk
from tests.support.slow_ext4 import QUIET, mounted, run
from tests.support.warm import Tracer
from tracer.analysis.findings.catalogue import findings
from tracer.store.trace import Trace
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share

pytestmark = [pytest.mark.slow, pytest.mark.quiet]
pytest.importorskip("torch", reason="PyTorch is not installed")

MIB = 1 << 20
BLOCK = 1 << 16
BLOCKS = 1536
FILES = 160
OPTIONS = f"{QUIET},noatime,inode_readahead_blks=1"
PREAMBLE = """
import os, sys, threading, time
os.setpriority(os.PRIO_PROCESS, 0, -15)  # tests beside this one are no part of the fault
def enter(cgroup):
    with open(cgroup + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

def spin(ms):
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        for _ in range(1000): pass  # each look at this clock is a recorded call

class Data(Dataset):
    def __init__(self, load, samples):
        self.load, self.samples = load, samples
    def __len__(self): return self.samples
    def __getitem__(self, number):
        self.load(number)
        return torch.zeros(64), 0

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def forward(self, x):
        spin(self.ms)
        return self.layer(x)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer.zero_grad()  # imports for a second what each job would import

def train(load, samples=320, epochs=1, workers=1, step_ms=10, after=lambda step: None):
    model.ms = step_ms
    for epoch in range(epochs):
        loader = DataLoader(Data(load, samples), batch_size=8, num_workers=workers)
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            after(step)
"""
"""`train` trains with a function that loads a sample; `after` is called after each step."""

HEALTHY = "train(lambda number: None, step_ms=20)"
FEW_WORKERS = "train(lambda number: time.sleep(0.01), samples=160)"
DECODING = """
import hashlib
data = bytes(4 << 20)
# Other threads run meanwhile.
train(lambda number: hashlib.sha256(data).digest(), samples=160, step_ms=5)
"""
COLD = f"""
file = os.open(place + "/data", os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
def load(number):
    for part in range(2): os.pread(file, 4096, (2 * number + part) * {BLOCK})
train(load, samples=160, step_ms=2)
"""
SMALL_FILES = f"""
def load(number): open(f"{{place}}/small/{{number}}").close()
train(load, samples={FILES}, step_ms=2)
"""
CHECKPOINTS = """
big = torch.zeros(8 << 20)
def save(step):
    if step % 4 == 3:
        with open(place + "/checkpoint", "wb") as out:
            torch.save(big, out)
            out.flush()
            os.fsync(out.fileno())
train(lambda number: None, samples=160, after=save)
"""
GIL = """
ended = threading.Event()
def collate():
    while not ended.is_set(): pass
threading.Thread(target=collate).start()
try: train(lambda number: None, samples=160, step_ms=2)
finally: ended.set()
"""
QUOTA = """
enter(sys.argv[2])
torch.set_num_threads(4)
a = torch.zeros(400, 400)
def work(step):
    for _ in range(10): a @ a
train(lambda number: None, samples=160, step_ms=0, after=work)
"""
THRASH = f"""
enter(sys.argv[2])
file = os.open(place + "/data", os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
def load(number): os.pread(file, 4 * {BLOCK}, number * 4 * {BLOCK})
train(load, samples={BLOCKS} // 4, epochs=2, step_ms=2)
"""
PRESSURE = """
enter(sys.argv[2])
out, block = os.open(place + "/log", os.O_CREAT | os.O_TRUNC | os.O_RDWR), bytes(4 << 20)
def log(step): os.write(out, block)
train(lambda number: None, samples=160, workers=0, step_ms=2, after=log)
"""
NEIGHBOUR = COLD
"""The same job, beside a process that writes to the same disk."""
WRITER = """
import os, sys
file = os.open(sys.argv[1] + "/neighbour", os.O_CREAT | os.O_RDWR)
while True:
    os.pwrite(file, bytes(4 << 20), 0)
    os.fsync(file)
"""


@contextlib.contextmanager
def disk_with_data(folder):
    """Mounts a slow disk with a file of data and small files that lie in their inodes."""
    files = {"data": os.urandom(BLOCK) * BLOCKS}
    files |= {f"small/{number}": b"x" for number in range(FILES)}
    mkfs = ("-b", 4096, "-O", "inline_data", "-I", 4096, "-N", 512)
    with (
        slow_disk(folder, "d", 3.0, size=384 * MIB) as disk,
        mounted(disk, folder / "mount", files, OPTIONS, *mkfs),
    ):
        yield folder / "mount"


DATA = ("data loading",)
CASES = {
    "few workers": (FEW_WORKERS, DATA, "use more workers"),
    "decoding": (DECODING, DATA, "do less work for each sample"),
    "cold": (COLD, DATA, "reads of a disk"),
    "small files": (SMALL_FILES, DATA, "fewer files"),
    "checkpoints": (CHECKPOINTS, ("steps: sync",), "make data durable less often"),
    "threads": (GIL, ("steps: lock", *DATA), "threads of one Python process run one at a time"),
}
"""Jobs, each with the topics of a first finding that names its fault, and words of its advice."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    with disk_with_data(tmp_path_factory.mktemp("pathologies")) as made:
        yield made


@pytest.fixture
def mount(disk):
    """The disk, mounted anew: nothing of it is in memory."""
    device = run("findmnt", "-no", "SOURCE", disk).strip()
    run("umount", disk)
    run("mount", "-o", OPTIONS, device, disk)
    return disk


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The process that all jobs fork from."""
    made = ForkedJobs(tmp_path_factory.mktemp("jobs"), PREAMBLE)
    yield made
    made.close()


@pytest.fixture
def first_finding(jobs, mount, tmp_path):
    """Records a job; returns the first finding."""

    def run(source, *arguments, events="default,sched"):
        pid = jobs.start(f"place = sys.argv[1]\n{source}", mount, *arguments)
        how = ("-e", events, "--sample-hz", "10", "-o", "job.trace", "-p", pid)
        with Tracer("record", *how, cwd=tmp_path) as recorder:
            said = recorder.stderr.readline()
            jobs.go()
            _, err = recorder.communicate(timeout=300)
            ended = jobs.status()
        assert (recorder.returncode, ended) == (0, 0), said + err
        with Trace(tmp_path / "job.trace") as trace:
            return findings(trace)[0]

    return run


@pytest.mark.parametrize("name", CASES)
def test_the_first_finding_names_the_fault(first_finding, name):
    source, topics, words = CASES[name]
    found = first_finding(source)
    assert (found.topic in topics, words in found.sentence) == (True, True), found


MOST_CPU = {"cpu.weight": "10000", "cpu.shares": "262144"}
"""Files of cgroup v2 and v1, each with the largest weight against others that want a CPU."""


@pytest.fixture
def cgroup():
    """Makes a cgroup with a limit; returns its folder."""
    made = []

    def make(share=Share(), memory=None):  # noqa: B008 a frozen value
        made.append(
            cgroups.plan(share, f"tracer-pathology-{os.getpid()}-{len(made)}", memory=memory)
        )
        (folder,) = cgroups.make(made[-1])
        for name, most in MOST_CPU.items():
            if (weight := Path(folder, name)).exists():
                weight.write_text(most)  # the priority of a process counts in its cgroup only
        return folder

    yield make
    for planned in reversed(made):
        cgroups.remove(planned)


def test_a_cpu_quota(first_finding, cgroup):
    found = first_finding(QUOTA, cgroup(Share(quota=0.5)))
    assert found.topic == "steps: throttled"
    assert "use fewer threads" in found.sentence


def test_a_worker_in_a_cpu_quota_without_the_schedulers_events(first_finding, cgroup):
    """The machine's other CPU is free, and yet another worker would get no time."""
    source = "enter(sys.argv[2])\ntrain(lambda number: spin(10), samples=160, step_ms=2)"
    found = first_finding(source, cgroup(Share(quota=0.5)), events="default")
    assert found.topic == "data loading"
    assert "job's CPU quota is used up" in found.sentence and "raise the quota" in found.sentence


def test_a_page_cache_that_is_too_small(first_finding, cgroup):
    found = first_finding(THRASH, cgroup(memory=Memory(80 * MIB)))
    assert found.topic == "data loading"
    assert "raise the memory limit" in found.sentence


def test_memory_that_is_full_of_pages_to_write(first_finding, cgroup):
    found = first_finding(PRESSURE, cgroup(memory=Memory(40 * MIB)))
    assert found.topic == "steps: reclaim"
    assert "raise the memory limit" in found.sentence


def test_a_neighbour_on_the_disk(first_finding, mount):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, mount])
    try:
        found = first_finding(NEIGHBOUR)
    finally:
        writer.kill()
        writer.wait()
    assert found.topic == "data loading"
    assert "for others (python)" in found.sentence


def test_a_healthy_job_gets_no_advice(first_finding):
    found = first_finding(HEALTHY)
    assert found.topic == "computing"
