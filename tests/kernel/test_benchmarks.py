"""Benchmarks that are stopped leave no control group, file system or process behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from scripts.privileges.reach import in_mounts_of_its_own
from tests.conftest import ROOT
from tests.support.waiting import wait_for
from tracer.workloads.modes import cgroups
from tracer.workloads.studies.throttle import find_hierarchy

pytestmark = pytest.mark.settings

STOPPED = 143
MIB = 1 << 20
KEPT = "mount --bind /dev/null /proc/sys/vm/drop_caches"
"""Has a benchmark leave the page cache alone, which the tests after it want full."""


def groups() -> set[Path]:
    """The control groups of ours, in all hierarchies."""
    roots = [mount.path for mount in cgroups.mounts()]
    return {path for root in roots for path in (*root.glob("traintrace-*"), *root.glob("tracer-*"))}


@contextlib.contextmanager
def stopped(name: str, *options: object) -> Iterator[subprocess.Popen[str]]:
    """A running benchmark; it is stopped at the end of the block, and must leave nothing."""
    command = [sys.executable, str(ROOT / "benchmarks" / name), *map(str, options)]
    command = in_mounts_of_its_own([KEPT], command)
    before = groups()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as benchmark:
        try:
            yield benchmark
            children = psutil.Process(benchmark.pid).children(recursive=True)
            assert children
            benchmark.terminate()
            assert benchmark.wait(120) == STOPPED
            assert groups() == before
        finally:
            benchmark.kill()
    _, left = psutil.wait_procs(children, timeout=10)
    assert left == []


@pytest.mark.skipif(find_hierarchy() is None, reason="this kernel cannot limit devices")
@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_stopped_fetch_stall_leaves_nothing(tmp_path):
    options = ("--samples", 4, "--order", "shuffled", "--work", tmp_path)
    with stopped("fetch_stall.py", *options) as benchmark:
        assert any("bytes of memory" in line for line in benchmark.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_memory_leaves_nothing(tmp_path):
    """The jobs, in one group for both, have files open on the file systems."""
    options = ("--mib", 8, "--epochs", 10**6, "--only", "sequential,cgroup,unpaced")

    def all_read(benchmark):
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(benchmark.pid).children()
            jobs = [one for one in children if f"{tmp_path}/" in " ".join(one.cmdline()[4:5])]
            read = [job.io_counters().read_chars for job in jobs]
            return len(read) == 2 and min(read) > 8 * MIB

    with stopped("memory.py", *options, "--work", tmp_path) as benchmark:
        wait_for(lambda: all_read(benchmark), "the jobs")
    assert list(tmp_path.iterdir()) == []
