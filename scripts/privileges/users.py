"""The users that are compared, and what makes this process's child such a user."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.privileges.reach import in_mounts_of_its_own, reachable
from tracer.probes.kernel import find_tracefs
from tracer.probes.rights import NEEDED

NOBODY = 65534
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_AS_NOBODY = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@dataclass(frozen=True)
class User:
    """A user: a column of the table."""

    name: str
    setpriv: tuple[str, ...] = ()
    paranoid: int | None = None
    """The value of kernel.perf_event_paranoid; None: the machine's own."""
    of_group: bool = False
    """The user's group may read tracefs."""
    mounts: tuple[str, ...] = ()
    """Shell commands that change the mounts that it sees."""

    @property
    def uid(self) -> int:
        """The user's number."""
        return NOBODY if _AS_NOBODY[0] in self.setpriv else 0

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns the command line that runs `command` as this user. Root starts it."""
        return in_mounts_of_its_own(
            [*reachable(), *self.mounts], ["setpriv", *self.setpriv, *command]
        )


def _of_root(*names: str) -> tuple[str, ...]:
    listed = ",".join(["-all", *(f"+{name}" for name in names)])
    return (f"--bounding-set={listed}", f"--inh-caps={listed}")


def _with(*names: str) -> tuple[str, ...]:
    listed = ",".join(f"+{name}" for name in names)
    return (*_AS_NOBODY, f"--inh-caps={listed}", f"--ambient-caps={listed}")


USERS = (
    User("root"),
    User("root, five capabilities", _of_root(*NEEDED)),
    User("root, no capability", _of_root()),
    User("container's root", _of_root(), mounts=(f"umount -l {find_tracefs()}",)),
    # As contrib/tracer-record.service has it.
    User("user, five capabilities", (*_of_root(*NEEDED)[:1], "--no-new-privs", *_with(*NEEDED))),
    User("user, three capabilities", _with("perfmon", "bpf", "dac_read_search")),
    User("user, paranoid -1, group", _AS_NOBODY, -1, True),
    User("user, paranoid -1", _AS_NOBODY, -1),
    User("user, paranoid 0, group", _AS_NOBODY, 0, True),
    User("user, paranoid 1, group", _AS_NOBODY, 1, True),
    User("user", _AS_NOBODY),
)
"""The columns of the table. The users with the most rights come first."""


@contextlib.contextmanager
def machine_for(user: User) -> Iterator[None]:
    """Changes the settings of the machine for a user, and takes them back."""
    tracefs = find_tracefs()
    paranoid = _PARANOID.read_text()
    status = tracefs.stat() if tracefs else None
    try:
        if user.paranoid is not None:
            _PARANOID.write_text(str(user.paranoid))
        if user.of_group and tracefs:
            _remount(tracefs, 0o750, NOBODY)
        yield
    finally:
        _PARANOID.write_text(paranoid)
        if user.of_group and tracefs and status:
            _remount(tracefs, status.st_mode & 0o777, status.st_gid)


def _remount(tracefs: Path, mode: int, gid: int) -> None:
    options = f"remount,mode={mode:o},gid={gid}"
    subprocess.run(["mount", "-o", options, str(tracefs)], check=True)
