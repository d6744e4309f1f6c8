"""Attacks on a trace with files of every kind, by the user whom root records for.

The attacker is a real second user. It acts while the recorder runs, in a folder of its own.
"""

from __future__ import annotations

import os
import struct

import pytest

from tests.support.attacker import NOBODY, end, recorded
from tracer.store.trace import Trace


@pytest.fixture
def full_recording(place, victim):
    """A recording with every kind of file."""
    with recorded(victim, place / "theirs") as recorder:
        yield recorder


def test_a_trace_ends_as_the_users_own(full_recording, place):
    end(full_recording)
    trace = place / "theirs/x.trace"
    for path in (trace, *trace.rglob("*")):
        assert path.stat().st_uid == NOBODY
        assert path.stat().st_mode & 0o077 == 0
    with Trace(trace) as opened:
        assert opened.manifest["complete"]


def test_while_it_is_recorded_nobody_else_changes_what_is_in_it(full_recording, place, attack):
    for script in (
        "touch x.trace/new",
        "rm x.trace/manifest.json",
        "mv x.trace/raw x.trace/other",
        "touch x.trace/raw/kallsyms",
        "touch x.trace/raw/marks/1-1-1.marks",
        "cat x.trace/manifest.json",
        "chmod 777 x.trace",
    ):
        assert not attack(script), script
    assert_closed(place, attack)
    end(full_recording)


def assert_closed(place, attack):
    """The attacker, who knows all names, can neither read a file of the trace nor write to it."""
    trace = place / "theirs/x.trace"
    names = [path.relative_to(trace.parent) for path in trace.rglob("*") if path.is_file()]
    assert any("cpu0" in name.name or "ebpf" in name.name for name in names)
    for name in names:
        assert not attack(f"cat '{name}'"), name
        assert not attack(f": >> '{name}'"), name


EVERYTHING = 7
ACL = ((1, None), (2, NOBODY), (4, None), (0x10, None), (0x20, None))
"""An access list in the kernel's form: owner, the attacker, group, mask, others may do all."""


def test_an_access_list_that_the_folder_hands_down_opens_nothing(place, victim, attack):
    entries = (struct.pack("<HHI", kind, EVERYTHING, 0xFFFFFFFF if who is None else who)
               for kind, who in ACL)  # fmt: skip
    packed = struct.pack("<I", 2) + b"".join(entries)
    try:
        os.setxattr(place / "theirs", "system.posix_acl_default", packed)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error.strerror}")
    with recorded(victim, place / "theirs") as recorder:
        assert not attack("touch x.trace/new") and not attack("ls x.trace/raw")
        assert_closed(place, attack)
        end(recorder)
