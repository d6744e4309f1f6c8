"""The errors of a job that its user can mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

USAGE = 2
FAILURE = 1

MEND_WRITE = "free some space, or name another --output folder"


_LONGEST = 900
_LAST = 300


class JobError(Exception):
    """What happened, to what, and the mend, in one line. The command line exits with USAGE.

    A study file may be anybody's: line breaks become spaces, and what is long is cut.
    """

    exit_code = USAGE

    def __init__(self, what: str, mend: str = "") -> None:
        super().__init__(f"{_line(what)}; {_line(mend)}" if mend else _line(what))


def _line(text: str) -> str:
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - _LAST]} ... {line[-_LAST:]}"


class BrokenJobError(JobError):
    """The job broke while it ran, by no mistake in its command line. Exits with FAILURE."""

    exit_code = FAILURE


def took_too_long(longest_s: float | None) -> str:
    """Why a job failed that did not end."""
    return f"killed: it took longer than {longest_s:g} s, as a job without enough memory may"


@contextmanager
def explained(what: str, mend: str) -> Iterator[None]:
    """Turn an OSError of the block into a JobError: `what`, the system's reason, `mend`."""
    try:
        yield
    except OSError as error:
        raise JobError(f"{what}: {error.strerror or error}", mend) from error
