"""An error is a line that can be read, whatever is in the names that it tells of."""

import os
import subprocess
import sys

import pytest

from tracer.probes.errors import BadTrace, TracerError
from tracer.probes.symbols.reading import UnreadableSymbols


def test_an_error_says_what_happened_and_the_mend():
    error = TracerError("x is damaged", "copy it again")
    assert (str(error), error.what, error.mend) == (
        "x is damaged; copy it again", "x is damaged", "copy it again",
    )  # fmt: skip
    assert str(TracerError("x is damaged")) == "x is damaged"


@pytest.mark.parametrize("kind", [TracerError, BadTrace, UnreadableSymbols])
def test_an_error_is_one_line(kind):
    assert str(kind("two\nlines\r\nof\x85a name", "a\u2028mend")) == "two lines of a name; a mend"


def test_a_long_name_leaves_the_begin_and_the_end_of_an_error():
    error = TracerError("key " + "x" * 100_000 + " cannot be", "y" * 100_000)
    assert len(str(error)) < 2000
    assert error.what.startswith("key x") and error.what.endswith("x cannot be")
    assert " ... " in error.what and " ... " in error.mend


def test_a_cut_message_is_not_cut_again():
    error = TracerError("x" * 5000, "y" * 5000).replacing("z", "")
    assert error.what.count(" ... ") == error.mend.count(" ... ") == 1


_READ_IT = """
import pathlib, sys
from tracer.analysis.exchange.reading import opened
from tracer.probes.errors import PermissionMissing
try:
    opened(pathlib.Path(sys.argv[1]))
except PermissionMissing as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be refused as root")
def test_a_root_that_is_refused_is_not_told_to_become_root(tmp_path):
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    os.chown(secret, 65534, 65534)

    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    command += [sys.executable, "-c", _READ_IT, secret]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "cannot be read" in said
    assert "you are root already" in said and "or as root" not in said
