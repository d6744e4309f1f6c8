"""The errors of a job that its user can fix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

USAGE = 2
FAILURE = 1

MEND_WRITE = "free some space, or name another --output folder"


_LONGEST = 900
_LAST = 300


class JobError(Exception):
    """An error in one line: what happened, to what, and how to fix it. Exits with USAGE.

    The text may come from a study file that a stranger wrote: line breaks become spaces, and long
    text is cut.
    """

    exit_code = USAGE

    def __init__(self, what: str, mend: str = "") -> None:
        super().__init__(f"{_line(what)}; {_line(mend)}" if mend else _line(what))


def _line(text: str) -> str:
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - _LAST]} ... {line[-_LAST:]}"


class BrokenJobError(JobError):
    """A failure of a running job, not a mistake in its command line. Exits with FAILURE."""

    exit_code = FAILURE


def took_too_long(longest_s: float | None) -> str:
    """Returns the reason for the failure of a job that exceeded its time."""
    return f"killed: it took longer than {longest_s:g} s; a job with too little memory may do so"


@contextmanager
def explained(what: str, mend: str) -> Iterator[None]:
    """Turns an OSError of the block into a JobError with `what`, the system's reason and `mend`."""
    try:
        yield
    except OSError as error:
        raise JobError(f"{what}: {error.strerror or error}", mend) from error
