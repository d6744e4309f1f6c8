"""Many training scripts in one job, each in a process of its own that need not import PyTorch."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MODEL = """
import json, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
model = nn.Sequential(
    nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(864, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=.01)
def loader(batches, workers=0):
    return DataLoader(Subset(data, range(batches * 8)), batch_size=8, num_workers=workers)
def learn(x, y):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
"""
"""A model, data and an optimizer: what a script finds."""

# A child shows its end as the interpreter does, but does not clear all of PyTorch away: that would
# take most of a second.
_EACH_IN_A_CHILD = """
import atexit, pathlib, subprocess
optimizer.zero_grad()  # imports for a second what each child would import
told, where = map(pathlib.Path, sys.argv[1:])
scripts, apart = json.loads(told.read_text())
def opened(name, stream):
    return os.open(where / f"{name}.{stream}", os.O_CREAT | os.O_WRONLY)
started = {
    name: subprocess.Popen(command, stdout=opened(name, "out"), stderr=opened(name, "err"))
    for name, command in apart.items()
}
def status_of(name):
    try:
        exec(compile(scripts[name], name, "exec"), globals())
        return 0
    except SystemExit as end:
        return end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
ended = {}
for name in scripts:
    if (child := os.fork()) == 0:
        os.dup2(opened(name, "out"), 1)
        os.dup2(opened(name, "err"), 2)
        status = status_of(name)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)
    ended[name] = child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for name, process in started.items():
    ended[name] = process.pid, process.wait()
(where / "ended.json").write_text(json.dumps(ended))
"""


class Ended(NamedTuple):
    """A script's end, and its words."""

    pid: int
    status: int
    out: str
    err: str


class Job:
    """A job in a folder, which runs scripts one after the other, and commands beside them."""

    def __init__(self, folder: Path, last: str = "") -> None:
        """Write the program; `last` is what it does at its end."""
        self._program = folder / "job.py"
        self._program.write_text(MODEL + _EACH_IN_A_CHILD + last)

    def command(
        self, where: Path, scripts: Mapping[str, str], apart: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """The command line that has these run, and what they say lie in the folder `where`."""
        told = where / "told.json"
        sources = {name: textwrap.dedent(script) for name, script in scripts.items()}
        told.write_text(json.dumps([sources, apart]))
        return [sys.executable, str(self._program), str(told), str(where)]


def ended(where: Path) -> dict[str, Ended]:
    """The ends of the scripts and commands that left word in the folder `where`."""
    return {
        name: Ended(
            pid, status, *((where / f"{name}.{stream}").read_text() for stream in ("out", "err"))
        )
        for name, (pid, status) in json.loads((where / "ended.json").read_text()).items()
    }
