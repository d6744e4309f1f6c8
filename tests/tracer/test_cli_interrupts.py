"""Ctrl-C before a verb runs: while options are read, and while the verb is imported."""

import subprocess
import sys

import pytest

INTERRUPTED = (130, "", "tracer: interrupted before it was done\n")
PRESSES = """
import signal, sys
from tracer.cli.main import main

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == wanted or wanted == "any":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

wanted, *sys.argv = sys.argv[1:]
sys.meta_path.insert(0, Presses())
main()
"""
"""Presses Ctrl-C at the import of a module, or at the first one after `main` was called."""


@pytest.mark.parametrize("module", ["any", "tracer.cli.info", "tracer.cli.list"])
def test_ctrl_c_while_modules_are_imported_is_said(module):
    words = ("tracer", "list" if module.endswith("list") else "info", "x.trace")
    ran = subprocess.run(
        [sys.executable, "-c", PRESSES, module, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == INTERRUPTED
