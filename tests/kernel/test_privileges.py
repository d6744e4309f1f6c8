"""Recordings by users with fewer rights than root: real users, real capabilities."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

from scripts.privileges.users import NOBODY, USERS, User, machine_for
from tests.conftest import ROOT, Ran, tracer_command
from tracer.analysis.report.gathered import gather
from tracer.store.trace import Trace

pytestmark = pytest.mark.quiet

CALLS, PHASES = 10_007, 3
BY_NAME = {user.name: user for user in USERS}
WITH_CAPABILITIES, WITHOUT, OF_GROUP = (
    BY_NAME[name] for name in ("user, five capabilities", "user", "user, paranoid -1, group")
)
ROOT_WITHOUT = BY_NAME["root, no capability"]
ONLY_BPF = User(
    "user, CAP_BPF",
    (*WITHOUT.setpriv, "--inh-caps=+bpf,+dac_read_search", "--ambient-caps=+bpf,+dac_read_search"),
)
LOAD = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tracer.phases import phase
for _ in range({PHASES}):
    with phase("mine"):
        pass
for _ in range({CALLS}):
    os.getppid()
status = open("/proc/self/status").read()
print(*[line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapAmb"))])
"""


@pytest.fixture(scope="module")
def compiled():
    """A folder of the user's, in which numba keeps what it compiles from one test to the next."""
    with tempfile.TemporaryDirectory(prefix="tracer-test-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield folder


@pytest.fixture
def run(place, compiled):
    """Run `tracer` as a user, in a folder of the user's own."""

    def run(user, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(place / "theirs")}
        if user.uid:
            environment["NUMBA_CACHE_DIR"] = compiled
        with machine_for(user):
            return Ran.of(
                subprocess.run(
                    user.command(tracer_command(*arguments)),
                    cwd=place / "theirs" if user.uid else place / "root's",
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
            )

    return run


@pytest.fixture
def record(run, place):
    """Record the load as a user; returns what ran, and the opened trace."""
    opened = []

    def record(user, *options):
        command = [sys._base_executable, "-S", "-E", "-c", LOAD]
        ran = run(user, "record", *options, "-o", "x.trace", "--", *command)
        assert ran.status == 0, ran.err
        opened.append(Trace(place / "theirs/x.trace"))
        return ran, opened[-1]

    yield record
    for trace in opened:
        trace.close()


def calls(trace):
    found = trace.sql("SELECT count(*) AS n FROM syscalls WHERE name = 'getppid'")
    return found["n"].to_list()


def phases(trace):
    return trace.sql("SELECT count(*) AS n FROM phases WHERE name = 'mine'")["n"].to_list()


def test_without_rights_marks_and_samples_are_recorded_and_one_line_tells_what_is_not(record):
    ran, trace = record(WITHOUT, "--quiet")
    assert ran.err.startswith("tracer: no kernel events are recorded, only marks and samples: ")
    assert ran.err.count("\n") == 1
    assert "sudo" in ran.err
    assert trace.manifest["backend"] == "none"
    assert phases(trace) == [PHASES]
    assert trace.sql("SELECT 1 FROM samples WHERE name = 'cpu_time' AND target IS NOT NULL").size
    assert not {"syscalls", "page_faults", "block"} & set(trace.manifest["tables"])
    [note] = [note for note in gather(trace).notes if "kernel events" in note]
    assert note.startswith("no kernel events were recorded (no other backend can be used: ")


def test_without_rights_events_that_were_asked_for_are_refused(run, place):
    ran = run(WITHOUT, "record", "-e", "default", "-o", "x.trace", "--", "true")
    assert ran.status == 3
    assert ran.err.count("\n") == 1
    assert not (place / "theirs/x.trace").exists()


@pytest.mark.parametrize("backend", ["ebpf", "perf"])
def test_five_capabilities_record_as_exactly_as_root(record, backend):
    ran, trace = record(WITH_CAPABILITIES, "--backend", backend, "-e", "syscalls")
    assert trace.manifest["backend"] == backend
    assert calls(trace) == [CALLS]
    assert trace.manifest["loss"]["events"] == 0
    # The capabilities are the recorder's, not the command's.
    assert {int(mask, 16) for mask in ran.out.split()} == {0}


def test_a_group_that_may_read_tracefs_records_by_perf_where_everybody_may_open_its_events(record):
    _, trace = record(OF_GROUP, "-e", "syscalls")
    assert trace.manifest["backend"] == "perf"
    assert calls(trace) == [CALLS]


def test_bpf_without_perfmon_is_refused_with_what_is_missing(run):
    ran = run(ONLY_BPF, "record", "--backend", "ebpf", "-o", "x.trace", "--", "true")
    assert (ran.status, ran.err) == (
        3,
        "tracer: this user is not allowed to load BPF programs; "
        "run as root, or with CAP_BPF and CAP_PERFMON\n",
    )


@pytest.mark.parametrize(("paranoid", "told"), [(2, False), (3, True)])
def test_a_setting_with_which_some_kernels_refuse_perfmon_is_told(run, paranoid, told):
    user = replace(OF_GROUP, paranoid=paranoid)
    ran = run(user, "record", "--backend", "perf", "-o", "x.trace", "--", "true")
    assert ran.status == 3
    assert ("perf_event_paranoid=2` (it is 3" in ran.err) == told, ran.err
    assert "perf_event_paranoid=-1" in ran.err


def test_doctor_tells_a_user_without_the_right_to_lock_memory_what_perfs_rings_lack(run):
    checks = run(BY_NAME["user, three capabilities"], "doctor", "--json").json["checks"]
    [found] = [check for check in checks if check["name"] == "perf events"]
    assert not found["ok"]
    assert "no ring of 16 MiB" in found["found"]
    assert "CAP_IPC_LOCK" in found["mend"]


@pytest.mark.parametrize(
    ("user", "kind"),
    [
        (WITH_CAPABILITIES, "like a user with capabilities: events by ebpf, perf;"),
        (ROOT_WITHOUT, "like root without capabilities: events by ftrace;"),
        (WITHOUT, "like a user without rights: no kernel events;"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_doctor_tells_the_kind_of_user(run, user, kind):
    ran = run(user, "doctor", "--json")
    assert kind in ran.json["this_user"]


def test_a_backend_without_events_takes_no_probes(tracer):
    ran = tracer("record", "--backend", "none", "-e", "syscalls", "--", "true", status=2)
    assert "--backend none records no events" in ran.err


def test_a_recording_without_events_tells_no_number_of_lost_ones(tracer):
    ran = tracer("record", "--backend", "none", "-o", "x.trace", "--", "true")
    assert "rows, no kernel events recorded\n" in ran.err
    assert "events lost" not in ran.err
