"""`doctor` and `record` on a machine that lacks a feature.

Features are hidden for real, in a mount namespace of the test's own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Ran, tracer_command
from tracer.probes.backends.choice import kernel_headers
from tracer.probes.backends.ebpf import library
from tracer.probes.kernel import find_tracefs

TRACEFS = str(find_tracefs())
READ_ONLY = f"mount -o remount,bind,ro {TRACEFS}"
# Wherever it is mounted, more than once too; debugfs would mount it anew when it is looked into.
NO_TRACEFS = ["umount --lazy --all --types tracefs,debugfs"]
NO_BCC = f"mount --bind EMPTY {library.folder()}"
NO_HEADERS = f"mount --bind EMPTY {kernel_headers()}"


CALLS = ("-e", "syscalls", "-o", "x.trace", "--", "true")
"""The least that is recorded, for tests that only ask by which backend."""
NOT_NEEDED = {
    "BTF": "mount --bind EMPTY /sys/kernel/btf",
    "kernel headers": NO_HEADERS,
    "bcc": NO_BCC,
    "perf": "mount --bind /dev/null $(command -v perf)",
    "py-spy": f"for path in {Path(sys.executable).parent}/py-spy $(command -v py-spy);"
    " do [ ! -e $path ] || mount --bind /dev/null $path; done",
    "kernel functions": "mount --bind /dev/null /proc/kallsyms",
    "Docker": "mount --bind /dev/null $(command -v docker);"
    " [ ! -S /var/run/docker.sock ] || mount --bind /dev/null /var/run/docker.sock",
}
"""Features that ftrace does without, and what hides each."""


def checks(ran):
    return {check["name"]: check for check in json.loads(ran.out)["checks"]}


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_doctor_names_what_is_missing_and_its_mend(hidden, name):
    ran = hidden([NOT_NEEDED[name]], "doctor", "--json")
    assert ran.status == 0
    found = checks(ran)[name]
    assert not found["ok"]
    assert found["mend"]


def test_headers_that_bcc_cannot_compile_are_found_by_doctor(tracer, tmp_path):
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "Makefile").touch()
    env = {**os.environ, "BCC_KERNEL_SOURCE": str(headers)}
    found = checks(tracer("doctor", "--json", env=env))
    assert found["kernel headers"]["found"] == str(headers)
    assert not found["backend ebpf"]["ok"]
    assert "cannot be loaded" in found["backend ebpf"]["found"]
    assert found["recording"]["ok"]
    assert checks(tracer("doctor", "--json"))["backend ebpf"]["ok"]


def test_ftrace_records_without_all_that_it_does_not_need(hidden, tmp_path):
    ran = hidden(NOT_NEEDED.values(), "record", "-o", "x.trace", "--", "true")
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "ftrace"
    assert facts["tables"]["syscalls"]["rows"] > 0


def test_a_read_only_tracefs_falls_back_to_ebpf_and_says_so(hidden, tmp_path):
    ran = hidden([READ_ONLY], "doctor", "--json")
    found = checks(ran)
    assert ran.status == 0
    assert not found["tracefs"]["ok"]
    assert not found["backend ftrace"]["ok"]
    assert found["backend ebpf"]["ok"]
    ran = hidden([READ_ONLY], "record", *CALLS)
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "ebpf"
    assert "cannot be written" in facts["backend_why"]
    assert facts["tables"]["syscalls"]["rows"] > 0
    assert facts["loss"]["events"] == 0


@pytest.mark.parametrize("also", [NO_BCC, NO_HEADERS])
def test_a_read_only_tracefs_without_ebpf_falls_back_to_perf_events(hidden, tmp_path, also):
    changes = [READ_ONLY, also]
    found = checks(hidden(changes, "doctor", "--json"))
    assert not found["backend ftrace"]["ok"]
    assert not found["backend ebpf"]["ok"]
    assert found["backend perf"]["ok"]
    ran = hidden(changes, "record", *CALLS)
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "perf"
    assert "ftrace cannot be used" in facts["backend_why"]
    assert "ebpf cannot be used" in facts["backend_why"]
    assert facts["tables"]["syscalls"]["rows"] > 0
    assert facts["loss"]["events"] == 0


@pytest.mark.parametrize("also", [NO_BCC, NO_HEADERS])
def test_a_read_only_tracefs_without_ebpf_and_perf_events_is_refused(unable, also):
    lacks = "--bounding-set -sys_admin,-perfmon --inh-caps -sys_admin,-perfmon"
    ran = unable(lacks, [READ_ONLY, also], "doctor", "--json")
    assert ran.status == 5
    assert not json.loads(ran.out)["can_record"]
    ran = unable(lacks, [READ_ONLY, also], "record", *CALLS)
    assert ran.status == 5
    assert ran.err.count("\n") == 1
    assert "mount" in ran.err


def test_without_tracefs(hidden):
    ran = hidden(NO_TRACEFS, "record", *CALLS)
    assert ran.status == 5
    assert "mount -t tracefs" in ran.err
    assert hidden(NO_TRACEFS, "doctor").status == 5


@pytest.mark.parametrize(
    ("changes", "mend"), [([NO_BCC], "python3-bpfcc"), ([NO_HEADERS], "linux-headers")]
)
def test_ebpf_that_was_asked_for_and_is_not_there(hidden, changes, mend):
    ran = hidden(changes, "record", "--backend", "ebpf", "-o", "x.trace", "--", "true")
    assert ran.status == 5
    assert mend in ran.err
    assert ran.err.count("\n") == 1


def test_names_of_files_are_recorded_if_no_accesses_are_logged(unable, tmp_path):
    # A recorder of its own: a forked one has its C library from mounts that it no longer sees.
    hide = f"mount --bind EMPTY {TRACEFS}/events/filemap/mm_filemap_get_pages"
    record = ("record", "-e", "page_cache", "-o", "x.trace", "--", "cat", "/etc/passwd")
    ran = unable("--clear-groups", [hide], *record)
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert set(facts["probes"]) == {"page_cache", "opens", "syscalls", "processes"}
    assert facts["tables"]["opens"]["rows"] > 0


AS_NOBODY = "--reuid=65534 --clear-groups"


def test_doctor_without_privileges(unable):
    assert unable(AS_NOBODY, ["chmod 1777 ."], "doctor").status == 3


@pytest.mark.parametrize("backend", ["auto", "ftrace", "ebpf", "perf"])
def test_without_privileges(unable, backend):
    record = ("record", "--backend", backend, *CALLS)
    ran = unable(AS_NOBODY, ["chmod 1777 ."], *record)
    assert ran.status == 3, ran.err
    assert ran.err.count("\n") == 1


@pytest.fixture
def numbered_apart(tmp_path):
    """Run `tracer` in a PID namespace of its own, as in a container without --pid=host."""

    def run(*arguments):
        apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        command = [*apart, *tracer_command(*arguments)]
        return Ran.of(
            subprocess.run(
                command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
            )
        )

    return run


def test_no_events_are_recorded_whose_process_numbers_are_not_the_recorders(
    numbered_apart, tmp_path
):
    ran = numbered_apart("record", *CALLS)
    assert ran.status == 5
    assert "--pid=host" in ran.err
    assert ran.err.count("\n") == 1
    ran = numbered_apart("record", "-o", "x.trace", "--", "true")
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "none"
    assert "PID namespace" in facts["backend_why"]
    ran = numbered_apart("doctor", "--json")
    assert not json.loads(ran.out)["can_record"]
    backends = [one for name, one in checks(ran).items() if name.startswith("backend ")]
    assert len(backends) == 3
    assert all("PID namespace" in one["found"] for one in backends)
    assert "--pid=host" in checks(ran)["this user"]["mend"]


def test_an_unknown_backend(tracer):
    ran = tracer("record", "--backend", "magic", "-o", "x.trace", "--", "true", status=2)
    assert "auto, ftrace, ebpf" in ran.err
