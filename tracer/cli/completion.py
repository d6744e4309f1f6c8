"""Completion of verbs and options by a shell: errors of the options that Typer adds for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import takewhile

from tracer.cli.streams import STDOUT
from tracer.probes.errors import TracerError, UsageError

_OPTIONS = {"--install-completion", "--show-completion"}
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
"""The shells that Typer has a script for."""


@contextlib.contextmanager
def completion(arguments: Sequence[str]) -> Iterator[None]:
    """Raises errors of ours for those of completion, whose options stand before the verb.

    UsageError if the program was called from no shell that Typer knows; TracerError, with the home
    folder, if the script cannot be installed there.
    """
    if any(argument in _OPTIONS for argument in takewhile(_is_option, arguments)):
        _require_shell()
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError):
            why = "the shell's start file is not UTF-8"
        elif error.filename and error.filename != STDOUT:
            why = f"{error.filename}: {error.strerror}"
        else:
            raise
        raise TracerError(
            f"cannot install completion in the home folder {os.environ.get('HOME', '~')}: {why}",
            "set HOME to a folder that you may write, or add the script by yourself: "
            "tracer --show-completion",
        ) from None


def _is_option(argument: str) -> bool:
    return argument.startswith("-")


def _require_shell() -> None:
    import shellingham

    try:
        name = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        name = None
    if name not in _SHELLS:
        called = f"called from {name}" if name else "not called from a shell"
        raise UsageError(
            f"completion is for the shell that calls tracer, and it is {called}",
            f"call it at the prompt of one of {', '.join(_SHELLS)}",
        )
