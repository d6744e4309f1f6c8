"""The errors that users can see, and the exit codes of `tracer`."""

from __future__ import annotations

import os
from enum import IntEnum
from pathlib import Path

from tracer.probes.text import shell_word


class ExitCode(IntEnum):
    """The exit codes of `tracer`. A recorded command's own status replaces OK."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_PERMISSION = 3
    TARGET_GONE = 4
    FEATURE_MISSING = 5
    BAD_TRACE = 6
    EVENTS_LOST = 7
    ABORTED = 130


_LONGEST = 900
"""Most characters of each part of a message. A longer part, e.g. with a path of 4,096 characters,
is cut in its middle."""
_LAST = 300
_CUT = " ... "


class TracerError(Exception):
    """An error that the user can fix. One line says what happened, to what, and how to fix it.

    Names in the message may come from anyone, so line breaks become spaces and long parts are cut.
    """

    exit_code = ExitCode.FAILURE

    def __init__(self, what: str, mend: str = "") -> None:
        self.what = _line(what)
        self.mend = _line(mend)
        super().__init__(f"{self.what}; {self.mend}" if mend else self.what)

    def replacing(self, old: str, new: str) -> TracerError:
        """Returns the same error with the path `old` replaced by `new`, quoted in the mend."""
        quoted = shell_word(Path(new))
        return type(self)(self.what.replace(old, new), self.mend.replace(old, quoted))


def _line(text: str) -> str:
    line = " ".join(text.splitlines())
    if len(line) <= _LONGEST:
        return line
    return line[: _LONGEST - _LAST - len(_CUT)] + _CUT + line[-_LAST:]


class UsageError(TracerError):
    """The command line asks for something impossible."""

    exit_code = ExitCode.USAGE


_AS_ROOT = "as root"
_REFUSED_ROOT = (
    "you are root already: a container lacks the device or the capability "
    "(docker run --privileged has all), or a security module or a network file system refuses it"
)


class PermissionMissing(TracerError):
    """The kernel or a file refuses this user.

    If the user is root already, the message names what can refuse root instead of advising root.
    """

    exit_code = ExitCode.NO_PERMISSION

    def __init__(self, what: str, mend: str = "") -> None:
        refused_root = _AS_ROOT in mend and os.geteuid() == 0
        super().__init__(what, _REFUSED_ROOT if refused_root else mend)


class TargetGone(TracerError):
    """The process to trace does not exist."""

    exit_code = ExitCode.TARGET_GONE


class FeatureMissing(TracerError):
    """The kernel or the machine lacks a feature that is needed."""

    exit_code = ExitCode.FEATURE_MISSING


class BadTrace(TracerError):
    """A trace that is missing, damaged, hostile or of a newer schema."""

    exit_code = ExitCode.BAD_TRACE


class EventsLost(TracerError):
    """Events were lost, and the user asked to fail in that case."""

    exit_code = ExitCode.EVENTS_LOST


class Interrupted(TracerError):
    """Ctrl-C, or a signal that counts as Ctrl-C, ended the verb."""

    exit_code = ExitCode.ABORTED

    def __init__(self, what: str = "interrupted before it was done", mend: str = "") -> None:
        super().__init__(what, mend)
