"""Names of the files that this machine and a guest exchange, and the results in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired, TypedDict

SHARED = Path("/run/tracer/share")
"""The folder for results, in the guest."""
JOB, ALIVE, FACTS = "job.json", "alive", "facts.json"
"""Files in it: what the guest is to do (`Job`), its first sign of life, what it found (`Facts`)."""
ALL, CGROUPS, WAITING = "results", "cgroups", "waiting"
"""Names of the suites, and of their folders for what a guest hands over."""


class Job(TypedDict):
    """What a guest is to do."""

    modules: str
    """Folder that becomes /lib/modules/RELEASE."""
    sources: str
    """Folder whose entries appear in /usr/src."""
    libraries: str | None
    """Folder of Python's packages, unless the interpreter knows it."""
    backends: list[str]
    suite: str
    """What it tests (`Suite.results`)."""
    doctor: bool
    """Whether it asks `tracer doctor` first."""


class Load(TypedDict):
    """A load that ran."""

    pid: int
    status: int
    said: dict[str, Any]
    """Facts that the load found out, for example the inode of its file."""


class Recording(TypedDict):
    """An attempt to record by a backend."""

    captured: bool
    """The recorder has ended the capture, and all raw data is in the trace directory."""
    seconds: float
    error: str
    """The recorder's last words if it failed."""
    loads: dict[str, Load]


class Disk(TypedDict):
    """A disk whose file system is mounted, or the reason why it is not."""

    mount: NotRequired[str]
    dev: NotRequired[str]
    unmounted: NotRequired[str]


class Verdict(TypedDict):
    """The answer of `tracer doctor` about a backend."""

    ok: bool
    found: str


class Facts(TypedDict):
    """Everything that a guest found out."""

    release: str
    disks: dict[str, Disk]
    doctor: dict[str, Verdict]
    """Empty if it was not asked."""
    recordings: dict[str, Recording]
    tried: dict[str, Load]
    """Programs that ran beside no recording."""
