"""Ctrl-C before a verb runs: while options are read, and while modules are imported."""

import signal
import subprocess
import sys
import tomllib

import pytest

from tests.conftest import ROOT

INTERRUPTED = (130, "", "tracer: interrupted before it was done\n")
PRESSES = """
import importlib, signal, sys
main = importlib.import_module(sys.argv.pop(1)).main

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

wanted, *sys.argv = sys.argv[1:]
sys.meta_path.insert(0, Presses())
main()
"""
"""Presses Ctrl-C at the import of a module."""


ENDS = """
import atexit, importlib, signal, sys
main = importlib.import_module("tracer.cli.main")
again = int(sys.argv[1])
if again:
    atexit.register(signal.raise_signal, again)
main._run = lambda: exec("import signal; signal.raise_signal(signal.SIGINT)")
main.main()
"""
"""Presses Ctrl-C in code that is made at run time, as that of a dataclass is. Then a signal comes
while Python ends."""


def pressed(entry, module, *words, ignored=False):
    """Runs `tracer` from its module `entry`. Ctrl-C is pressed as it imports `module`."""
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    ran = subprocess.run(
        [sys.executable, "-c", PRESSES, entry, module, "tracer", *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("entry", ["tracer.__main__", "tracer.cli.main"])
@pytest.mark.parametrize("module", ["rich.console", "tracer.cli.info", "tracer.cli.list"])
def test_ctrl_c_while_a_verb_is_imported_is_said(entry, module):
    words = ("list",) if module.endswith("list") else ("info", "x.trace")
    assert pressed(entry, module, *words) == INTERRUPTED


@pytest.mark.parametrize("again", [0, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_verb_exits_with_130_wherever_the_signal_met_it(tmp_path, again):
    (tmp_path / "ends.py").write_text(ENDS)
    ran = subprocess.run(
        [sys.executable, "-m", "ends", str(int(again))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == INTERRUPTED


@pytest.mark.parametrize("module", ["tracer.cli.main", "typer", "tracer.store.names"])
def test_ctrl_c_while_tracer_itself_is_imported_ends_it_as_any_program(module):
    assert pressed("tracer.__main__", module, "--version") == (-signal.SIGINT, "", "")


def test_an_ignored_ctrl_c_stays_ignored():
    status, out, err = pressed("tracer.__main__", "typer", "--version", ignored=True)
    assert (status, out.split()[0], err) == (0, "tracer", "")


def test_the_command_is_the_module_that_ctrl_c_ends_quietly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"tracer": "tracer.__main__:main"}
