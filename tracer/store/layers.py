"""The folders of the host that hold the files of containers, also after a container is removed.

The layers of an image stay when a container of it is removed. A file in a container is found by
its path there, in the folder that is mounted at the path or in one of the layers. The caller must
compare the inode: the same path may lead to another file in another container.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from tracer.probes.symbols.mappings import MappedFile
from tracer.store.manifest_parts import ContainerFacts

_MOST_PLACES = 512
"""Most folders in which one file is searched for. An image has at most 128 layers."""


class Layers:
    """The folders of containers: layers, the uppermost first, and folders mounted from the host."""

    def __init__(self, containers: Iterable[ContainerFacts]) -> None:
        layers: dict[str, None] = {}
        mounts: dict[tuple[str, str], None] = {}
        for container in containers:
            upper = container.get("upper")
            for folder in ([upper] if upper else []) + container.get("lower", []):
                layers.setdefault(folder)
            for mount in container.get("mounts", []):
                mounts.setdefault((mount["path"], mount["source"]))
        self._layers = [folder for folder in layers if folder.startswith("/")]
        self._mounts = [pair for pair in mounts if pair[1].startswith("/")]

    def places(self, file: MappedFile) -> list[tuple[str, str]]:
        """Returns the folders in which a mapped file may lie, each with the path below it."""
        path = PurePosixPath(file.path)
        found = [
            (source, str(path.relative_to(inside)))
            for inside, source in self._mounts
            if path != PurePosixPath(inside) and path.is_relative_to(inside)
        ]
        return [*found, *((folder, file.path) for folder in self._layers)][:_MOST_PLACES]
