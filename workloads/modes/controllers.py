"""Controllers of cgroup v2, which a root has switched on for the groups below it."""

from __future__ import annotations

import contextlib
import errno
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

CONTROL = "cgroup.subtree_control"
_NO_SETTINGS = (".pressure", ".peak")
"""Ends of files that can be written but tell what happened."""


def switch_off(root: Path, controller: str) -> None:
    """Switches a controller off for the groups below `root`, unless one of them needs it.

    A group would lose its settings, such as a limit. A group that has switched the controller on
    for groups of its own keeps it on (EBUSY). Raises OSError.
    """
    control = root / CONTROL
    if controller not in control.read_text().split() or _has_settings(root, controller):
        return
    try:
        control.write_text(f"-{controller}")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


def _has_settings(root: Path, controller: str) -> bool:
    """Returns whether a group below `root` differs from a new one in a file that can be written."""
    with _new_group(root) as new:
        usual = {
            path.name: path.read_text()
            for path in new.glob(f"{controller}.*")
            if not path.name.endswith(_NO_SETTINGS) and _is_setting(path)
        }
        for group in root.iterdir():
            if group == new or not group.is_dir():
                continue
            for name, text in usual.items():
                try:
                    if (group / name).read_text() != text:
                        return True
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ENODEV):  # the group has just ended
                        raise
    return False


def _is_setting(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & stat.S_IWUSR and mode & stat.S_IRUSR)


@contextlib.contextmanager
def _new_group(root: Path) -> Iterator[Path]:
    group = root / f"traintrace-{secrets.token_hex(8)}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()
