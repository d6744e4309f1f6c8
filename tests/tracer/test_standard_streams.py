"""The standard streams hold no line back that Python would write at once."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import os, signal, sys
from tracer.cli.streams import open_standard_streams
open_standard_streams()
sys.{stream}.write("[1/23] lenet\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("stream", "unbuffered"), [("stderr", "1"), ("stderr", ""), ("stdout", "1")]
)
def test_a_killed_process_has_written_each_line(stream, unbuffered):
    """PYTHONUNBUFFERED is often set in images for machine learning."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(stream=stream)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert ran.returncode == -signal.SIGKILL
    assert getattr(ran, stream) == "[1/23] lenet\n"
