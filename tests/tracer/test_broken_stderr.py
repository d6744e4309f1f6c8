"""A standard error that cannot be written takes neither a verb's result nor its status."""

import subprocess

import pytest

from tests.conftest import ROOT, tracer_command
from tests.support.broken_streams import BROKEN, broken_stream

FIXTURE = ROOT / "fixtures" / "lenet.trace"


def ran(kind, folder, *arguments):
    """Returns the status and the standard output of `tracer` with a broken standard error."""
    with broken_stream(kind) as stream:
        ended = subprocess.run(
            tracer_command(*arguments),
            stdout=subprocess.PIPE,
            stderr=stream,
            cwd=folder,
            text=True,
            check=False,
        )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("kind", BROKEN)
def test_a_verb_that_says_where_its_result_is_ends_well(tmp_path, kind):
    assert ran(kind, tmp_path, "pack", FIXTURE, "-o", "x.tar.zst") == (0, "")
    assert ran(kind, tmp_path, "unpack", "x.tar.zst", "-o", "x.trace") == (0, "")
    assert (tmp_path / "x.trace/manifest.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", FIXTURE, "--html", "x"),
        ("simulate", FIXTURE, "--html", "x"),
        ("export", FIXTURE, "-o", "x"),
        ("import", ROOT / "fixtures/exchange/load.blkparse.txt", "-o", "x"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_standard_error_takes_no_result(tmp_path, arguments):
    assert ran("a full disk", tmp_path, *arguments) == (0, "")
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("explain", FIXTURE), 6), (("predict", FIXTURE, "--" + 20_000 * "x"), 2)],
    ids=["no table", "usage"],
)
def test_an_error_without_words_keeps_its_status(tmp_path, kind, arguments, status):
    assert ran(kind, tmp_path, *arguments) == (status, "")
