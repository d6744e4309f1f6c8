"""`doctor` and `record` on a machine that lacks a feature.

Features are hidden for real, in a mount namespace of the test's own.
"""

import json
import os
import subprocess

import pytest

from tests.conftest import Ran, tracer_command
from tests.support.hiding import CALLS, NO_BCC, NO_HEADERS, NOT_NEEDED, checks

# Wherever it is mounted, more than once too; debugfs would mount it anew when it is looked into.
NO_TRACEFS = ["umount --lazy --all --types tracefs,debugfs"]


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


def test_nothing_is_removed_where_running_recorders_cannot_be_seen(numbered_apart):
    for options in ([], ["--dry-run"]):
        ran = numbered_apart("clean", *options)
        assert ran.status == 5
        assert "--pid=host" in ran.err and ran.out == ""


def test_an_unknown_backend(tracer):
    ran = tracer("record", "--backend", "magic", "-o", "x.trace", "--", "true", status=2)
    assert "auto, ftrace, ebpf" in ran.err
