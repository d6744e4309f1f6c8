"""The Python stacks and lines of waits, worked out naively: every look is tried for every wait.

It is written from the documentation (docs/explain.md, docstrings), not from the views' code. A
thread that is off the CPU runs no Python. So a look that lies in an interval off the CPU as a whole
tells the stack of all its waits, however the interval is divided. Where the documentation leaves
an answer open, each one is allowed: which of several looks at one time tells, whether a look of no
length lies in a wait that it touches, and whose a file is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Row = dict[str, Any]
FOREVER = 1 << 62
NAMES = (
    "main",
    "<module>",
    "<lambda>",
    r"load \x28fast)",
    r"f\x28x)",
    "a b",
    r"f\x3b g",
    "site-packages",
)

FILES: dict[str, bool | None] = {
    "/home/me/train.py": True,
    "train.py": True,
    "/home/me/a (copy)/x y.py": True,
    "/home/me/a:3/x.py": True,
    r"/home/me/a\x3b b/x.py": True,
    "/home/me/my-site-packages-tool/x.py": True,
    "/home/me/mysite-packages/x.py": True,
    "/home/me/site-packages.py": True,
    "/home/me/python3.11/x.py": True,
    "/data/python3/x.py": True,
    "/home/me/lib/python3.11-tools/x.py": True,
    "<ipython-input-1-abc>": True,
    "/usr/lib/python3.11/threading.py": False,
    "/usr/lib64/python3.11/multiprocessing/queues.py": False,
    "/opt/conda/envs/a b/lib/python3.12/selectors.py": False,
    "/root/.local/share/uv/python/cpython-3.12.1-linux/lib/python3.12/queue.py": False,
    "<frozen importlib._bootstrap>": False,
    "<frozen runpy>": False,
    "/usr/lib/python3/dist-packages/yaml/x.py": False,
    "/usr/local/lib/python3.11/dist-packages/yaml/x.py": False,
    "/home/me/.venv/lib/python3.11/site-packages/torch/x.py": False,
    "/home/me/.venv/lib/python3.11/site-packages/old (1)/x.py": False,
    "/opt/deps/site-packages/torch/x.py": False,
    "<string>": None,  # python -c, or code that a library makes: a dataclass, a namedtuple
    "<__array_function__ internals>": None,  # of NumPy, but in no site-packages
    "/usr/lib/python3.13t/threading.py": False,  # Python without the global lock (PEP 703)
    "/usr/lib/python311.zip/queue.py": False,
    "site-packages/torch/x.py": False,
    "/home/lib/python3.11/x.py": None,  # a Python whose prefix is /home, or a user's folder
    "/home/me/lib/python3/x.py": None,
}
"""Files: True: the user's, False: of Python or of a package, None: the documentation is silent."""


class Function(NamedTuple):
    """A function of a stack, at a line."""

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


class Look(NamedTuple):
    """A look at a thread, from `ts` to `until`."""

    ts: int
    until: int
    tid: int
    stack: tuple[Function, ...]

    def text(self) -> str:
        """Returns the stack as the table has it."""
        return ";".join(map(str, self.stack))


def lines_of(stack: tuple[Function, ...]) -> set[str | None]:
    """Returns the lines that the documentation allows for a stack."""
    found: set[str | None] = set()
    for function in reversed(stack):
        mine = FILES[function.file]
        if mine is not False:
            found.add(str(function))
        if mine:
            return found
    return found | {str(stack[-1])}


def interval_around(wait: Row, off_cpu: Iterable[Row]) -> Row | None:
    """Returns the interval off the CPU that a wait is a part of; None: its end is not known."""
    begin, mine = wait["ts"], [row for row in off_cpu if row["tid"] == wait["tid"]]
    around = [
        row
        for row in mine
        if wait["dur_ns"] is not None
        and row["dur_ns"] is not None
        and row["ts"] <= begin
        and begin + wait["dur_ns"] <= row["ts"] + row["dur_ns"]
    ]
    # The last one of a thread lasts until the end of the recording.
    last = max(enumerate(mine), key=lambda one: (one[1]["ts"], one[0]))[1] if mine else None
    if not around and last is not None and last["dur_ns"] is None and last["ts"] <= begin:
        return {**last, "dur_ns": FOREVER}
    # A wait of no length where two intervals adjoin is the interval of no length, if there is one.
    return min(around, key=lambda row: row["dur_ns"] != wait["dur_ns"], default=None)


def answers(
    interval: Row | None, looks: Iterable[Look]
) -> set[tuple[str, str | None] | tuple[None, None]]:
    """Returns the pairs of stack and line that the waits of an interval may have."""
    found: set[tuple[str, str | None] | tuple[None, None]] = set()
    certain = False
    for look in looks:
        if interval is None or look.tid != interval["tid"]:
            continue
        begin, end = interval["ts"], interval["ts"] + interval["dur_ns"]
        if begin <= look.ts and look.until <= end:
            found |= {(look.text(), line) for line in lines_of(look.stack)}
            certain |= look.ts < look.until or begin < look.ts < end
    return found if certain else found | {(None, None)}
