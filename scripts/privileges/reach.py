"""Lets every user run this Python, in a mount namespace of its own.

An interpreter often lies in a folder that only its owner may enter.
"""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

_OTHERS_ENTER = stat.S_IXOTH
_ASIDE = "/mnt"
"""A folder of every system, hidden for a moment."""


def reachable() -> list[str]:
    """Returns shell commands that let others reach this interpreter, for a private namespace."""
    commands = []
    for place in dict.fromkeys((Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve())):
        closed = [folder for folder in place.parents if not _others_enter(folder)]
        if closed:
            # The outermost one hides all others.
            commands += _opened(closed[-1], place)
    return commands


def _others_enter(folder: Path) -> bool:
    return bool(folder.stat().st_mode & _OTHERS_ENTER)


def _opened(closed: Path, place: Path) -> list[str]:
    """Puts an open folder in the place of a closed one, with nothing but `place` in it."""
    hidden, shown = shlex.quote(str(closed)), shlex.quote(str(place))
    return [
        f"mount -t tmpfs tmpfs {_ASIDE} && mkdir {_ASIDE}/python",
        f"mount --bind {shown} {_ASIDE}/python",
        f"mount -t tmpfs -o mode=755 tmpfs {hidden}",
        f"mkdir -p {shown} && mount --bind {_ASIDE}/python {shown}",
        f"umount --lazy --recursive {_ASIDE}",
    ]


def in_mounts_of_its_own(changes: Sequence[str], command: Sequence[str]) -> list[str]:
    """Returns a command line that runs `command` where shell commands have changed the mounts."""
    script = " && ".join([*changes, f"exec {shlex.join(command)}"])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
