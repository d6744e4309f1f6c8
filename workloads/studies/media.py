"""Storage of a run's data and output: the machine's disk, memory, a folder, a slower medium."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tracer.workloads.containers.limits import Speed
from tracer.workloads.errors import JobError

DISK = "disk"
RAM = "ram"

_CATALOGUE = Path(__file__).parent / "reference" / "media.toml"


@dataclass(frozen=True)
class Medium:
    """A storage medium. `folder`: the user's folder, if any; `speed`: the limit, if any.

    `about` names the device that has this speed, `source` the origin of the numbers.
    """

    name: str
    folder: Path | None = None
    speed: Speed | None = None
    about: str = ""
    source: str = ""


def find_medium(name: str) -> Medium:
    """Returns the medium of this name: `disk`, `ram`, a name in reference/media.toml, or a path.

    A path is the absolute path of a folder. Raises JobError for any other name.
    """
    if name in (DISK, RAM):
        return Medium(name)
    if name.startswith("/"):
        return Medium(name, folder=Path(name))
    known = _catalogue()
    if name not in known:
        raise JobError(
            f"there is no medium {name!r}",
            f"name {DISK}, {RAM}, {', '.join(known)}, or the absolute path of a folder",
        )
    told = known[name]
    speed = Speed(**{field.name: int(told[field.name]) for field in fields(Speed)})
    return Medium(name, speed=speed, about=told["about"], source=told["source"])


def _catalogue() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_CATALOGUE.read_text())
