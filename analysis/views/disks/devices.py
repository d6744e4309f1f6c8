"""Notes on the devices of a trace."""

from __future__ import annotations

from tracer.store.devices import IN_MEMORY, Devices
from tracer.store.manifest import Manifest


def notes(manifest: Manifest, written: set[str], once: bool = False) -> list[str]:
    """Returns notes on writes that count twice and on writes that cannot be told apart.

    `written`: the disks (MAJOR:MINOR) with write-backs, as block events name them. `once`: what a
    stacked device hands on is left out where that is known.
    """
    devices = Devices(manifest)
    said = []
    for disk in sorted(written):
        known = {one.name for one in devices.carrying([disk])} if once else set()
        for name, below in devices.below(disk).items():
            if name not in known and not written.isdisjoint(below):
                said.append(
                    f"{disk} lies on {_called(name, below)}: each write to {disk} is also a write"
                    f" to {name}, and is counted twice"
                )
    for disk in sorted(written):
        if parts := devices.without_place(disk):
            said.append(
                f"the trace does not say where {', '.join(parts)} begin on {disk}: the file, the"
                " dirtier and the reason of write-backs there may be unknown"
            )
    known = {disk["dev"] for disk in manifest.get("disks", []) if "dev" in disk}
    known |= {m["dev"] for m in manifest.get("mounts", []) if m["type"] in IN_MEMORY}
    if any(devices.names(dev).fs not in known for dev in manifest["own_files"]):
        said.append(
            "the trace was recorded to a file system whose device number is not that of a block"
            " device (btrfs, overlay, network): the tracer's own writes could not be left out"
        )
    return said


def _called(name: str, disks: list[str]) -> str:
    """Returns the name of a device, followed by its disks if their names differ."""
    return name if disks == [name] else f"{name} (on {', '.join(disks)})"
