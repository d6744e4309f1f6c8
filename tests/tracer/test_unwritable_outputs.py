"""The verbs that write a file or a folder name it, and the mend, if it cannot be written."""

from __future__ import annotations

import errno
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from tracer.probes.errors import TracerError
from tracer.store.files import writing
from tracer.store.packing import pack

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACE = FIXTURES / "lenet.trace"


def short_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    ("output", "arguments"),
    [
        ("run.pftrace", ["export", TRACE]),
        ("tables", ["export", TRACE, "--format", "csv"]),
        ("columns", ["export", TRACE, "--format", "parquet"]),
        ("run.tar.zst", ["pack", TRACE]),
        ("load.trace", ["import", FIXTURES / "exchange/load.blkparse.txt"]),
        ("again.trace", ["unpack", "whole.tar.zst"]),
    ],
)
def test_an_output_that_cannot_be_written_is_named_and_leaves_nothing(
    tracer, tmp_path, output, arguments
):
    pack(TRACE, tmp_path / "whole.tar.zst")
    ran = tracer(*arguments, "-o", output, status=1, before=short_files)
    assert ran.err == (
        f"tracer: cannot write {output}: File too large; allow longer files (ulimit -f unlimited)\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["whole.tar.zst"]


@pytest.mark.parametrize(
    "arguments",
    [["report", TRACE], ["simulate", TRACE], ["compare", TRACE, "copy.trace"]],
    ids=lambda words: words[0],
)
def test_a_page_that_cannot_be_written_is_no_mistake_of_the_command_line(
    tracer, tmp_path, arguments
):
    """The status is that of an export to the same disk."""
    copytree(TRACE, tmp_path / "copy.trace")
    ran = tracer(*arguments, "--html", "x.html", status=1, before=short_files)
    said = "tracer: cannot write x.html: File too large; name another file with --html\n"
    assert ran.err.endswith(said)
    assert [path.name for path in tmp_path.iterdir()] == ["copy.trace"]


def test_a_full_disk_is_told_with_the_mend(tmp_path):
    with (
        pytest.raises(TracerError, match=r"cannot write x: No space .*; free space, or name an"),
        writing(Path("x")),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"1")


def test_a_file_elsewhere_that_cannot_be_read_is_not_the_output(tmp_path):
    other = FIXTURES / "none"
    with pytest.raises(PermissionError), writing(tmp_path / "x"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(other))


def home(folder, kind):
    """A home folder in which completion cannot be installed, and the reason."""
    if kind == "file":
        folder.write_text("")
        return f"{folder}: File exists"
    folder.mkdir()
    if kind == "latin-1":
        (folder / ".bashrc").write_bytes(b"# caf\xe9\n")
        return "the shell's start file is not UTF-8"
    (folder / ".bash_completions").write_text("")
    return f"{folder}/.bash_completions: File exists"


CALL = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
ORPHAN = """
import os, subprocess, sys
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    pass
print(subprocess.run(sys.argv[1:]).returncode)
"""
"""Calls a program as a process whose parent, and so every shell above it, has ended."""


def called_from(shell, option, home):
    """Returns the status and the error of an option of completion; a shell calls it, or none."""
    if shell:
        called = [shell, "-c", f"{shlex.join([*CALL, option])}; echo $?"]
    else:
        called = [sys.executable, "-c", ORPHAN, *CALL, option]
    environment = {**os.environ, "HOME": str(home)}
    ran = subprocess.run(called, env=environment, capture_output=True, text=True, check=True)
    return int(ran.stdout), ran.stderr


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
@pytest.mark.parametrize("shell", ["sh", None])
def test_completion_asks_for_a_shell_that_it_knows(tmp_path, shell, option):
    assert called_from(shell, option, tmp_path) == (
        2,
        "tracer: completion is for the shell that calls tracer, and it is "
        f"{'called from sh' if shell else 'not called from a shell'}; "
        "call it at the prompt of one of bash, zsh, fish, powershell, pwsh\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "latin-1", "no folder of scripts"])
def test_a_home_folder_that_takes_no_completion_is_named(tmp_path, kind):
    why = home(tmp_path / "home", kind)
    assert called_from("bash", "--install-completion", tmp_path / "home") == (
        1,
        f"tracer: cannot install completion in the home folder {tmp_path}/home: {why}; "
        "set HOME to a folder that you may write, or add the script by yourself: "
        "tracer --show-completion\n",
    )
