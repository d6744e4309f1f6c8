"""An output replaces nothing but an earlier output: no device, no pipe, no link, no trace."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.conftest import ROOT

FIXTURE = ROOT / "fixtures/lenet.trace"


@pytest.fixture
def trace(tmp_path):
    return Path(shutil.copytree(FIXTURE, tmp_path / "x.trace"))


OUTPUTS = [
    ("pack", "x.trace", "-o"),
    ("export", "x.trace", "-o"),
    ("report", "x.trace", "--html"),
]


@pytest.mark.parametrize("command", OUTPUTS, ids=lambda one: one[0])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_force_replaces_no_pipe_no_link_and_no_folder(tracer, tmp_path, trace, command, kind):
    output = tmp_path / "out"
    if kind == "pipe":
        os.mkfifo(output)
    elif kind == "link":
        output.symlink_to("precious")
        (tmp_path / "precious").write_text("precious")
    else:
        output.mkdir()
    before = output.lstat()
    ran = tracer(*command, "out", "--force", status=2)
    assert "is a folder" in ran.err or "is no regular file" in ran.err
    assert (stat.S_IFMT(output.lstat().st_mode), output.lstat().st_ino) == (
        stat.S_IFMT(before.st_mode), before.st_ino,
    )  # fmt: skip


@pytest.mark.parametrize("command", OUTPUTS, ids=lambda one: one[0])
def test_force_replaces_an_earlier_output(tracer, tmp_path, trace, command):
    (tmp_path / "out").write_text("earlier")
    assert "out exists" in tracer(*command, "out", status=2).err
    tracer(*command, "out", "--force")
    assert (tmp_path / "out").read_bytes()[:7] != b"earlier"


@pytest.mark.parametrize("command", OUTPUTS, ids=lambda one: one[0])
@pytest.mark.parametrize("name", ["manifest.json", "events/syscalls.parquet"])
def test_force_replaces_no_file_of_a_trace(tracer, trace, command, name):
    before = (trace / name).read_bytes()
    ran = tracer(*command, trace / name, "--force", status=2)
    assert "is a file of a trace" in ran.err
    assert (trace / name).read_bytes() == before


def test_an_export_of_tables_replaces_no_tables_of_a_trace(tracer, trace):
    before = sorted((trace / "events").iterdir())
    for folder in (trace, trace / "events"):
        ran = tracer("export", trace, "--format", "parquet", "-o", folder, "--force", status=2)
        assert "is a trace, or lies in one" in ran.err
    assert sorted((trace / "events").iterdir()) == before


@pytest.mark.parametrize("verb", ["unpack", "import"])
def test_a_folder_that_holds_more_than_a_trace_is_not_replaced(tracer, tmp_path, trace, verb):
    tracer("pack", trace, "-o", "x.tar.zst")
    (trace / "notes.txt").write_text("precious")
    source = "x.tar.zst" if verb == "unpack" else ROOT / "fixtures/exchange/load.blkparse.txt"
    ran = tracer(verb, source, "-o", trace, "--force", status=2)
    assert "exists and is not a trace" in ran.err
    assert (trace / "notes.txt").read_text() == "precious"
