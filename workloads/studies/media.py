"""Where data and output of a run lie: the machine's disk, memory, a folder, a slower medium."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workloads.containers.limits import Speed
from workloads.errors import JobError

DISK = "disk"
RAM = "ram"

_CATALOGUE = Path(__file__).parent / "reference" / "media.toml"


@dataclass(frozen=True)
class Medium:
    """A medium by its name: `folder` of the user's, or none; `speed` to limit it to, or none.

    `about` and `source` say what the speed is of.
    """

    name: str
    folder: Path | None = None
    speed: Speed | None = None
    about: str = ""
    source: str = ""


def find(name: str) -> Medium:
    """`disk`, `ram`, one of reference/media.toml, or a folder by its whole path; else JobError."""
    if name in (DISK, RAM):
        return Medium(name)
    if name.startswith("/"):
        return Medium(name, folder=Path(name))
    known = _catalogue()
    if name not in known:
        raise JobError(
            f"there is no medium {name!r}",
            f"take {DISK}, {RAM}, {', '.join(known)}, or a folder by its whole path",
        )
    told = known[name]
    speed = Speed(**{field.name: int(told[field.name]) for field in fields(Speed)})
    return Medium(name, speed=speed, about=told["about"], source=told["source"])


def _catalogue() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_CATALOGUE.read_text())
