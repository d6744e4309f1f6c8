"""A recording falls back to another backend, does without a feature, or is refused to a user.

The machine's settings for users with fewer rights count here, and so do lost events.
"""

import json

import pytest

from tests.support.hiding import CALLS, NO_BCC, NO_BTF, NO_HEADERS, NOT_NEEDED, READ_ONLY, checks
from tracer.probes.kernel import find_tracefs


def test_ftrace_records_without_all_that_it_does_not_need(hidden, tmp_path):
    ran = hidden(NOT_NEEDED.values(), "record", "-o", "x.trace", "--", "true")
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "ftrace"
    assert facts["tables"]["syscalls"]["rows"] > 0


def program_files(folder):
    return {path.name for path in folder.glob("raw/programs-*")}


def test_programs_of_our_own_record_calls_and_faults(hidden, tmp_path):
    ran = hidden([], "record", "-e", "page_faults", *CALLS)
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert facts["backend"] == "ftrace"
    assert facts["backend_why"].endswith("; syscalls and page_faults by BPF programs of our own")
    streams = {stream["file"] for stream in facts["capture"]["streams"] if "samples" in stream}
    found = program_files(tmp_path / "x.trace")
    assert found == {file for file in streams if file.startswith("programs-")} != set()
    assert all(facts["tables"][name]["rows"] > 0 for name in ("syscalls", "page_faults"))


@pytest.mark.parametrize("backend", ["auto", "ebpf"])
def test_without_the_kernels_types_the_backend_records_calls_and_faults(hidden, tmp_path, backend):
    ran = hidden([NO_BTF], "doctor", "--json")
    assert ran.status == 0
    found = checks(ran)["calls and faults"]
    assert not found["ok"]
    assert "vmlinux cannot be read" in found["found"]
    ran = hidden([NO_BTF], "record", "--backend", backend, "-e", "page_faults", *CALLS)
    assert ran.status == 0, ran.err
    facts = json.loads((tmp_path / "x.trace/manifest.json").read_text())
    assert "no BPF programs of our own: " in facts["backend_why"]
    assert "vmlinux cannot be read" in facts["backend_why"]
    assert not program_files(tmp_path / "x.trace")
    assert all(facts["tables"][name]["rows"] > 0 for name in ("syscalls", "page_faults"))


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


def test_names_of_files_are_recorded_if_no_accesses_are_logged(unable, tmp_path):
    # A recorder of its own: a forked one has its C library from mounts that it no longer sees.
    hide = f"mount --bind EMPTY {find_tracefs()}/events/filemap/mm_filemap_get_pages"
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
