"""A command in a message can be pasted into a shell, with any name in it: it does what it says."""

import errno
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.pages import Page, raw_trace
from tests.support.traces import make_trace
from tests.support.waiting_steps import steps_of
from tracer.analysis.explain.explanation import explain
from tracer.cli.pack import pack as pack_of_verb
from tracer.probes.errors import TracerError
from tracer.probes.text import printable, shell_word
from tracer.session.failures import unwritten
from tracer.store.finalize import finalize
from tracer.store.manifest import read
from tracer.store.packing import pack
from tracer.store.places import check_trace
from tracer.store.trace import Trace
from tracer.targets.engines.docker import container

NAMES = [
    "run.trace",
    "a b; touch PWNED #",
    "$(touch PWNED)`touch PWNED`",
    "it's; touch 'PWNED",
    "-rf; touch PWNED",
    "~",
    "a\x1b[31m'; touch PWNED #",
    "a\n; touch PWNED\n",
    "\udcff\u202e; touch PWNED #",
    "\x1b\\'; touch PWNED #",
]
SAYS_ITS_WORDS = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >> "$SAID"\n'


def error_of(make, *arguments):
    """The error that a function raises."""
    with pytest.raises(TracerError) as refused:
        make(*arguments)
    return refused.value


def damaged(name):
    """The error for a trace with a damaged table, and with the raw data it was made from."""
    raw_trace(name, {0: [Page(0)]})
    Trace(name).close()
    (name / "events/syscalls.parquet").write_bytes(b"damaged")
    return error_of(Trace, name)


def packed_twice(name):
    """The error for a pack that is packed."""
    raw_trace(Path("t"), {0: [Page(0)]})
    pack(Path("t"), name, raw=False, force=False)
    return error_of(pack_of_verb, name)


def a_file(name):
    """The error for a file in the place of a trace."""
    name.touch()
    return error_of(Trace, name)


def without_parent(name):
    """The error for an output in a folder that does not exist."""
    return error_of(check_trace, name / "x.trace", False)


def ended_early(name):
    """The error for a recording that an error of its disk ended."""
    return unwritten(name, OSError(errno.EIO, os.strerror(errno.EIO)))


def anothers(name):
    """The error for root that opens another user's trace without tables."""
    if os.geteuid() != 0:
        pytest.skip("only root opens other users' folders")
    raw_trace(name, {0: [Page(0)]})
    os.chown(name, 65534, 65534)
    return error_of(Trace, name)


def without_room(name):
    """The error for tables that a disk has no room for."""
    raw_trace(name, {0: [Page(0)]})

    def full(done, pages):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return error_of(finalize, name, read(name), full)


def without_step(name):
    """The error for a training step that a trace does not have."""
    with make_trace(name, steps_of([2, 2])) as trace:
        return error_of(partial(explain, trace, step=(99, 99)))


def stopped(name):
    """The mend for a Docker container that does not run."""
    known = {"Id": "c" * 64, "Name": f"/{name}", "State": {"Pid": 0}, "Config": {}}
    return container(known).start


COMMANDS = {
    damaged: ("decode it again: ", ["tracer", "info", "NAME"]),
    packed_twice: ("unpack it with: ", ["tracer", "unpack", "NAME"]),
    a_file: ("if another tool made it: ", ["tracer", "import", "NAME", "-o", "NAME.trace"]),
    without_parent: ("make it first: ", []),
    ended_early: ("see it with: ", ["tracer", "info", "NAME"]),
    anothers: ("make them as that user: ", ["sudo", "-u", "#65534", "tracer", "info", "NAME"]),
    without_room: ("free space and run: ", ["tracer", "info", "NAME"]),
    without_step: ("see: ", ["tracer", "query", "NAME", "SELECT epoch, step FROM steps"]),
    stopped: ("", ["docker", "start", "NAME"]),
}
"""Texts before a command, and the words of the program that it calls."""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a command in a folder with other files; returns the words of the programs it called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("tracer", "sudo", "docker"):
        (programs / program).write_text(SAYS_ITS_WORDS)
        (programs / program).chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)

    def run(command):
        said = tmp_path / "said"
        said.write_bytes(b"")
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SAID": str(said)}
        subprocess.run(["bash", "-c", command], cwd=place, env=env, check=True)
        return [os.fsdecode(word) for word in said.read_bytes().split(b"\0")[:-1]]

    return run


def files_below(folder):
    """The files and folders at any depth."""
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("make", COMMANDS, ids=lambda make: make.__name__)
def test_a_printed_command_has_each_name_as_one_word(shell, make, name):
    before, words = COMMANDS[make]
    told = printable(str(make(Path(name))))
    files = files_below(Path())
    command = told[told.rindex(before) + len(before) :] if before else told
    called = [os.path.normpath(word) for word in shell(command)]
    assert called == [name if word == "NAME" else word for word in words]
    changed = files ^ files_below(Path())
    if make is damaged:
        assert changed == {one for one in files if one.startswith(f"{name}/events")}
    else:
        assert changed == ({name} if make is without_parent else set())


def test_a_name_that_a_message_would_cut_is_left_out_of_a_command():
    path = Path("/".join(["a' && touch PWNED #"] * 100))
    assert shell_word(path) == "PATH"
    assert str(ended_early(path)).endswith("see it with: tracer info PATH")


def test_the_place_of_a_new_trace_is_named_and_quoted_in_a_command():
    """A recorder has its folder open and knows its files by the number of that."""
    error = ended_early(Path("/proc/self/fd/7")).replacing("/proc/self/fd/7", "a b; touch PWNED #")
    assert error.what.startswith("the recording in a b; touch PWNED # ended early")
    assert error.mend.endswith("see it with: tracer info 'a b; touch PWNED #'")
