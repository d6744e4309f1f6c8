"""The verbs that write a file or a folder name it, and the mend, if it cannot be written."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

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


@pytest.mark.parametrize("kind", ["file", "latin-1", "no folder of scripts"])
def test_a_home_folder_that_takes_no_completion_is_named(tracer, tmp_path, kind):
    why = home(tmp_path / "home", kind)
    ran = tracer(
        *("--install-completion", "bash"),
        status=1,
        env={**os.environ, "HOME": str(tmp_path / "home")},
    )
    assert ran.err == (
        f"tracer: cannot install completion in the home folder {tmp_path}/home: {why}; "
        "set HOME to a folder that you may write, or add the script by yourself: "
        "tracer --show-completion\n"
    )
