"""perf is found or not, and its failures become errors with a mend."""

import os
from pathlib import Path

import pytest

from tracer.probes.backends.perf_tools import command
from tracer.probes.backends.perf_tools.command import Perf, Running, failure, find_perf
from tracer.probes.backends.perf_tools.record import split
from tracer.probes.errors import (
    FeatureMissing,
    PermissionMissing,
    TargetGone,
    TracerError,
    UsageError,
)


def script(folder: Path, text: str) -> Path:
    path = folder / "perf"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A PATH with nothing before /usr/bin but an empty folder; returns that folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_no_perf(path):
    with pytest.raises(FeatureMissing, match="no perf command; apt-get install linux-perf"):
        find_perf()


def test_a_script_that_looks_for_a_perf_of_this_kernel_and_finds_none(path):
    script(path, "echo 'WARNING: perf not found for kernel 6.1' >&2; echo try this >&2; exit 2")
    with pytest.raises(FeatureMissing, match="does not run: try this"):
        find_perf()


def test_the_options_that_we_use_are_in_perfs_help(path):
    where = script(
        path,
        '[ "$1" = version ] && { echo perf version 9.9.g1; exit; }\n'
        "echo '    -k, --clockid <clockid>' >&2; echo '        --control <fd:ctl>' >&2\n"
        "echo '    -g                    enables --not-an-option' >&2; exit 129",
    )
    perf = find_perf()
    assert perf == Perf(str(where), "9.9.g1")
    known = {"-k", "--clockid", "--control", "-g"}
    assert {o for o in (*known, "--not-an-option", "-x") if perf.knows("record", o)} == known
    perf.require("record", *known)
    with pytest.raises(FeatureMissing, match="has no `perf record -x`; install a newer one"):
        perf.require("record", "-k", "-x")


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            "Error:\nAccess to performance monitoring and observability operations is limited.\n"
            "Consider adjusting /proc/sys/kernel/perf_event_paranoid setting",
            PermissionMissing,
            "operations is limited",
        ),
        (
            "event syntax error: 'block:x'\n  \\___ can't access trace events\n\n"
            "Error:\tNo permissions to read /sys/kernel/tracing/events/block/x",
            PermissionMissing,
            "perf record is not allowed",
        ),
        ("event syntax error: 'nope'\n   \\___ parser error", UsageError, "no event like 'nope'"),
        ("Couldn't create maps: No such process", TargetGone, "No such process"),
        ("failed to mmap: Too many open files", TracerError, "ulimit -n"),
        ("Events disabled\n[ perf record: x ]\nfailed to mmap", TracerError, "failed to mmap"),
        ("", TracerError, "said nothing"),
    ],
)
def test_a_message_of_perf_becomes_our_error(said, kind, text):
    error = failure("record", said)
    assert type(error) is kind
    assert text in str(error)
    assert error.mend


def test_a_perf_that_dies_at_its_start(path, monkeypatch):
    where = script(path, "echo 'it cannot be' >&2; exit 7")
    running = Running(Perf(str(where), "1"), ["record"], os.open(os.devnull, os.O_WRONLY))
    with pytest.raises(TracerError, match="perf record did not start: it cannot be"):
        running.wait_ready()
    assert not running.alive
    running.close()


def test_a_perf_that_hangs_is_ended(path, monkeypatch):
    monkeypatch.setattr(command, "_READY_S", 0.2)
    monkeypatch.setattr(command, "_END_S", 0.2)
    where = script(path, "trap '' INT TERM; while :; do /bin/sleep 0.1; done")
    running = Running(Perf(str(where), "1"), ["stat"], os.open(os.devnull, os.O_WRONLY))
    with pytest.raises(TracerError, match="did not start"):
        running.wait_ready()
    assert not running.alive


@pytest.mark.parametrize(
    ("wanted", "events"),
    [
        (["block:block_rq_insert"], ["block:block_rq_insert"]),
        (["a:b, c:d", "a:b"], ["a:b", "c:d"]),
        (["cpu/event=1,umask=2/u,page-faults"], ["cpu/event=1,umask=2/u", "page-faults"]),
    ],
)
def test_lists_of_events(wanted, events):
    assert split(wanted) == events


@pytest.mark.parametrize("wanted", ["", ",", "block:*", "-a", "a b", "x;y", "\n", "a:\x1b[31m"])
def test_a_name_that_is_not_an_event_is_refused(wanted):
    with pytest.raises(UsageError):
        split([wanted])
