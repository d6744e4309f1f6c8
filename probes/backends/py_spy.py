"""The `py-spy` command: the Python functions that the threads of another process are in.

py-spy reads the memory of the process and does not stop it. Its answer is limited in size and
time, because the process may have made its memory to harm a reader.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tracer.probes.call_graphs import TRUNCATED
from tracer.probes.errors import FeatureMissing
from tracer.probes.text import printable

MEND = "pip install 'traintrace[stacks]'"
MAX_DEPTH = 255
"""Functions kept of a stack: the innermost ones."""
_MOST_BYTES = 8 << 20
_MOST_MEMORY = 4 << 30
_PATIENCE_S = 5.0
_LONGEST_NAME = 512
_LONGEST_REASON = 200
_NAME, _FILE = ";\\(", ";\\"
"""Characters that are escaped in names of functions and of files."""


class NotRead(Exception):
    """The stacks of a process could not be read; the text says why."""


class _Frame(TypedDict):
    name: str
    filename: str
    line: int


class _Thread(TypedDict):
    os_thread_id: Annotated[int, Field(ge=1, lt=1 << 31)] | None
    frames: list[_Frame]


_THREADS = TypeAdapter(list[_Thread])


@dataclass(frozen=True)
class Answer:
    """The stacks of a process, as (thread, stack) with `python_stacks.stack` as text.

    `start` and `end` are the times (ns) of the look, `cpu_s` is the CPU time that it took.
    """

    start: int
    end: int
    cpu_s: float
    stacks: Sequence[tuple[int, str]]


def find_py_spy() -> str:
    """Returns the path of py-spy, beside this Python or on PATH. Raises FeatureMissing."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    path = shutil.which("py-spy", path=os.pathsep.join(folders))
    if path is None:
        raise FeatureMissing("there is no py-spy command, which reads Python stacks", MEND)
    return path


def version(path: str) -> str:
    """Returns what py-spy says of its version. Raises FeatureMissing if it does not run."""
    try:
        ended = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FeatureMissing(f"{path} does not run: {error}", MEND) from None
    return ended.stdout.strip()[:80]


def look(path: str, pid: int) -> Answer:
    """Returns the stacks of all Python threads of a process. Raises NotRead."""
    command = [path, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    start = time.monotonic_ns()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise NotRead(str(error)) from None
    with process:
        with contextlib.suppress(OSError):  # it has ended
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        out, err = _output(process)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    end = time.monotonic_ns()
    if process.returncode:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        said = printable(lines[0][:_LONGEST_REASON])[:_LONGEST_REASON] if lines else ""
        raise NotRead(said or f"py-spy ended with {process.returncode}")
    return Answer(start, end, usage.ru_utime + usage.ru_stime, stacks(out))


def stacks(told: bytes) -> list[tuple[int, str]]:
    """Returns (thread, stack) for each thread of `py-spy dump --json`. Raises NotRead.

    Threads whose number py-spy does not know, and threads without a function, are left out.
    """
    try:
        threads = _THREADS.validate_json(told)
    except ValidationError as error:
        raise NotRead(f"py-spy's answer is not understood: {error.errors()[0]['msg']}") from None
    return [
        (thread["os_thread_id"], _stack(thread["frames"]))
        for thread in threads
        if thread["os_thread_id"] is not None and thread["frames"]
    ]


def _stack(frames: Sequence[_Frame]) -> str:
    """Returns a stack from the root; py-spy tells the innermost function first."""
    shown = [
        f"{_escaped(one['name'], _NAME)} ({_escaped(one['filename'], _FILE)}:{one['line']})"
        for one in frames[:MAX_DEPTH]
    ]
    if len(frames) > MAX_DEPTH:
        shown.append(TRUNCATED)
    return ";".join(reversed(shown))


def _escaped(name: str, escaped: str) -> str:
    """Returns a name that cannot end its part of a function's entry in a stack."""
    return "".join(
        c if c.isprintable() and c not in escaped else f"\\x{ord(c):02x}"
        for c in name[-_LONGEST_NAME:]
    )


def _output(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Returns (stdout, stderr) of a process, which is killed beyond the limits. Raises NotRead."""
    assert process.stdout is not None and process.stderr is not None
    parts: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    out, err = parts.values()
    left = _MOST_BYTES
    deadline = time.monotonic() + _PATIENCE_S
    with selectors.DefaultSelector() as selector:
        for fd in parts:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                process.kill()
                raise NotRead(f"py-spy did not answer within {_PATIENCE_S:g} s")
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                parts[key.fd].append(data)
                left -= len(data)
                if not data:
                    selector.unregister(key.fd)
                elif left < 0:
                    process.kill()
                    raise NotRead(f"py-spy's answer has more than {_MOST_BYTES >> 20} MiB")
    return b"".join(out), b"".join(err)
