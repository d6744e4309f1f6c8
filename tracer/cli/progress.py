"""The progress of a recording: one line on a terminal, nothing that moves elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tracer.cli.main import say
from tracer.probes.errors import TracerError
from tracer.probes.text import printable
from tracer.session.failures import SPACE
from tracer.session.options import Listener, Status
from tracer.sizes import show_size
from tracer.targets import Target

_WHY = {
    "command": "the command has ended",
    "target": "the target has ended",
    "signal": "stopped",
    "duration": "time is up",
    "size": "the trace has reached its maximum size",
    "disk": "the disk is full",
    "error": "a file could not be read or written",
}

_LITTLE_SPACE = (
    "tracer: the recording has ended, because its disk has little space left; making the tables. "
    "Free some space, or record to another disk (-o)"
)


class RecordingProgress(Listener):
    """A listener that shows a recording on stderr. `quiet`: it shows nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._quiet = quiet
        self._status = self._console.status("") if self._console.is_terminal and not quiet else None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> RecordingProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status:
            self._status.stop()
        if self._bar:
            self._bar.stop()

    def without_events(self, why: TracerError) -> None:
        """Prints what is missing, with `quiet` as well."""
        say(f"tracer: no kernel events are recorded, only marks and samples: {why}")

    def without_stacks(self, kind: str, why: TracerError) -> None:
        """Prints what is missing, with `quiet` as well."""
        say(f"tracer: no {kind} stacks are recorded: {why}")

    def without_names(self, why: TracerError) -> None:
        """Prints why the kernel's functions have no names, with `quiet` as well."""
        say(f"tracer: the functions of the kernel have no names in the call graphs: {why}")

    def started(self, targets: list[Target]) -> None:
        """Prints the names of the targets; a baseload has none."""
        names = ", ".join(_name(target) for target in targets)
        doing = f"Tracing {names}" if targets else "Sampling the idle machine"
        text = f"{doing}... Ctrl-C to end."
        self._console.print(Text(printable(text)))
        if self._status:
            self._status.start()

    def tick(self, status: Status) -> None:
        """Shows the time and the bytes captured."""
        if self._status:
            self._status.update(f"{status.elapsed_s:.0f} s, {show_size(status.bytes)} captured")

    def stopping(self, why: str) -> None:
        """Prints why the recording ended; with `quiet` as well if nobody asked for that end."""
        if self._status:
            self._status.stop()
        if why == SPACE:
            say(_LITTLE_SPACE)
        elif why not in ("command", "target") or self._console.is_terminal:
            self._console.print(f"{_WHY.get(why, why).capitalize()}; making the tables.")

    def decoding(self, done: int, pages: int) -> None:
        """Shows the progress of decoding."""
        if self._quiet:
            return
        self._bar, self._task = show_decoding(self._bar, self._task, done, pages)


def _name(target: Target) -> str:
    if target.kind == "machine":
        return "everything"
    if target.kind in ("container", "cgroup"):
        return f"{target.kind} {target.name}"
    return f"{target.name} ({target.pid})"


def show_decoding(
    bar: Progress | None, task: TaskID | None, done: int, pages: int
) -> tuple[Progress | None, TaskID | None]:
    """Updates a bar of decoded pages, and makes it at the first call; none without a terminal."""
    if not sys.stderr.isatty():
        return None, None
    if bar is None:
        bar = Progress(
            TextColumn("decoding"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        task = bar.add_task("decoding", total=pages)
    assert task is not None
    bar.start()  # again: another part of the raw data may follow one that was complete
    bar.update(task, completed=done, total=pages)
    if done >= pages:
        bar.stop()
    return bar, task


@contextlib.contextmanager
def status(doing: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current part of `doing` on a terminal's stderr."""
    from tracer.cli.output import safe

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: None
        return
    with console.status("") as shown:
        yield lambda what: shown.update(safe(f"{doing}: {what}"))


@contextlib.contextmanager
def counted(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function (done, total) that shows a counted bar on a terminal's stderr."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
