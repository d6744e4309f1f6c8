"""Uprobes of our own in tracefs: a group named for its owner, registered, swept, removed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.kernel import find_tracefs, process_alive, process_start_time, tracefs

_GROUP = re.compile(
    r"^[pr]\d*:(?P<group>tracer_(?P<pid>\d{1,10})_(?P<start>\d{1,20}))/(?P<name>\w+)"
)


class Group:
    """The uprobes of this process. `close` removes them; the instances using them must be gone."""

    def __init__(self) -> None:
        """Raises FeatureMissing or PermissionMissing where this kernel takes none."""
        owner = os.getpid()
        self.name = f"tracer_{owner}_{process_start_time(owner)}"
        self._file = tracefs() / "uprobe_events"
        if not self._file.exists():
            raise FeatureMissing("this kernel has no uprobes", "it needs CONFIG_UPROBE_EVENTS=y")

    def add(self, event: str, fd: int, offset: int, arguments: str = "") -> None:
        """An event where the file of `fd` is run at `offset`; one event can have many places.

        Raises FeatureMissing or PermissionMissing where the kernel refuses.
        """
        # By its descriptor: a path may hold anything, and be another file meanwhile.
        line = f"p:{self.name}/{event} /proc/self/fd/{fd}:{offset:#x} {arguments}".rstrip()
        try:
            _write(self._file, line)
        except PermissionError:
            raise PermissionMissing("uprobes may not be made", "run as root") from None
        except OSError as error:
            raise FeatureMissing(
                f"an uprobe could not be made: {error.strerror}", "see `tracer doctor`"
            ) from None

    def close(self) -> None:
        """Remove the group, more than once without harm."""
        remove(self.name)


@dataclass(frozen=True)
class LeftGroup:
    """A group by our naming, and whether its owner still lives."""

    name: str
    owner: int
    owner_alive: bool


def ours() -> Iterator[LeftGroup]:
    """Every group that a `tracer` made."""
    seen = set()
    for match in _listed():
        if match["group"] not in seen:
            seen.add(match["group"])
            pid = int(match["pid"])
            alive = process_alive(pid, int(match["start"]))
            yield LeftGroup(match["group"], pid, alive)


def remove(group: str) -> None:
    """Remove the events of a group of ours; PermissionMissing or FeatureMissing where it fails."""
    path = find_tracefs()
    names = {match["name"] for match in _listed() if match["group"] == group}
    for name in sorted(names):
        assert path is not None
        try:
            _write(path / "uprobe_events", f"-:{group}/{name}")
        except FileNotFoundError:
            continue  # somebody else removed it
        except PermissionError:
            raise PermissionMissing(
                f"uprobes of {group} may not be removed", "run as root"
            ) from None
        except OSError as error:
            raise FeatureMissing(
                f"the uprobe {group}/{name} cannot be removed: {error.strerror}",
                "end what traces with it, then run `tracer clean`",
            ) from None


def _listed() -> list[re.Match[str]]:
    path = find_tracefs()
    if path is None:
        return []
    with contextlib.suppress(OSError):
        lines = (path / "uprobe_events").read_text(errors="replace").splitlines()
        return [match for line in lines if (match := _GROUP.match(line))]
    return []


def _write(file: Path, line: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)
