"""The size of an environment, by installed distribution."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

_TOOLS = {"pip", "setuptools"}
"""Parts of every virtual environment."""


def sizes(environment: Path) -> dict[str, int]:
    """Returns the bytes of each distribution's files, compiled ones included, largest first."""
    [packages] = environment.glob("lib/python3*/site-packages")
    found: dict[str, int] = {}
    for one in distributions(path=[str(packages)]):
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        if name not in _TOOLS:
            paths = {Path(str(one.locate_file(file))) for file in one.files or ()}
            found[name] = sum(path.stat().st_size for path in paths if path.is_file())
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def table(found: dict[str, int], least: int) -> list[str]:
    """Returns a Markdown table in MiB. Distributions below `least` bytes share a row."""
    large = {name: size for name, size in found.items() if size >= least}
    rows = list(large.items())
    others = len(found) - len(large)
    rows.append((f"{others} others", sum(found.values()) - sum(large.values())))
    rows.append(("all", sum(found.values())))
    lines = ["| distribution | MiB |", "| --- | --- |"]
    return lines + [f"| {name} | {size / (1 << 20):.1f} |" for name, size in rows]
