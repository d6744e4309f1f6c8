"""Programs that the kernel starts, as for a core dump: their parent is kthreadd, too.

They are no threads of the kernel: what they dirty is theirs, and so is the CPU that they take.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.file_systems import FileSystems
from tests.support.waiting import wait_for
from tracer.analysis.views.threads import make_threads
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.settings

PATTERN = Path("/proc/sys/kernel/core_pattern")
PAGES = {"late": 23, "early": 29}

HELPER = """#!{python} -SE
import os, time
signal, mount = {signal!r}, {mount!r}
name = "late" if os.path.exists(signal) else "early"
def say(word):
    with open(signal + word, "w") as file: file.write(str(os.getpid()))
say(name)
while not os.path.exists(signal): time.sleep(0.01)
fd = os.open(mount + "/" + name, os.O_CREAT | os.O_RDWR, 0o600)
os.pwrite(fd, os.urandom(4096 * {pages!r}[name]), 0)
os.fsync(fd)
say(name + "-wrote")
"""
"""A program that gets core dumps. One that starts early was there before the recording."""

CRASH = [sys._base_executable, "-SE", "-c", "import os; os.abort()"]


def helper_of(signal, name):
    """Starts the helper by a crash; returns the process that crashed, and the helper's number."""
    crashed = subprocess.Popen(
        ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *CRASH], cwd=signal.parent
    )
    told = Path(f"{signal}{name}")
    wait_for(lambda: told.exists() and told.read_text(), f"the helper {name}")
    return crashed, int(told.read_text())


@pytest.fixture
def pattern():
    """Sets the program that gets core dumps, for one test."""
    before = PATTERN.read_text()

    def put(program):
        try:
            PATTERN.write_text(f"|{program}")
        except OSError:
            do_without("a core_pattern", "TRACER_REQUIRE_KERNEL", "the kernel refuses it")

    yield put
    PATTERN.write_text(before)


def test_pages_of_a_program_that_the_kernel_has_started_are_its_own(record, tmp_path, pattern):
    """One was there before the recording, and one is started during it."""
    signal, program, crash = tmp_path / "go", tmp_path / "helper", tmp_path / "crash.py"
    pids = {}
    with FileSystems(tmp_path) as file_system:
        mount, dev = file_system()
        program.write_text(
            HELPER.format(
                python=sys._base_executable, signal=str(signal), mount=str(mount), pages=PAGES
            )
        )
        program.chmod(0o755)
        crash.write_text(
            "import os, sys, time\n"
            f"signal = {str(signal)!r}\n"
            "open(signal, 'w').close()\n"
            "if os.fork() == 0:\n"
            "    import resource\n"
            "    resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))\n"
            "    os.abort()\n"
            "for name in ('early', 'late'):\n"
            "    while not os.path.exists(signal + name + '-wrote'): time.sleep(0.01)\n"
        )
        pattern(program)
        crashed, pids["early"] = helper_of(signal, "early")
        try:
            trace = record([sys._base_executable, "-SE", str(crash)], "-e", "default,sched")
            pids["late"] = int(Path(f"{signal}late").read_text())
        finally:
            for name in PAGES:
                if Path(f"{signal}{name}").exists():
                    subprocess.run(["kill", Path(f"{signal}{name}").read_text()], check=False)
            crashed.wait()
        flushes(trace)
        make_threads(trace)
        found = trace.rows(
            "SELECT dirtier, whose, certainty, sum(pages)::INT FROM flushes"
            f" WHERE dev = '{dev}' AND NOT contains(rwbs, 'M') GROUP BY ALL ORDER BY 4"
        )
        kernel = trace.rows(
            f"SELECT tid, kernel FROM threads WHERE tid IN ({pids['early']}, {pids['late']})"
        )
    assert found == [
        (pids[name], "other", "exact", pages)
        for name, pages in sorted(PAGES.items(), key=lambda item: item[1])
    ]
    assert dict(kernel) == dict.fromkeys(pids.values(), False)
