"""What has to be said about the devices of a trace."""

from __future__ import annotations

from tracer.store.devices import Devices
from tracer.store.manifest import Manifest


def notes(manifest: Manifest, written: set[str]) -> list[str]:
    """Sentences on devices that count twice, and on what cannot be told apart.

    `written` are the disks (MAJOR:MINOR) with write-backs, as block events name them.
    """
    devices = Devices(manifest)
    said = []
    for disk in sorted(written):
        for name, below in devices.below(disk).items():
            if not written.isdisjoint(below):
                said.append(
                    f"{disk} lies on {_called(name, below)}: what is written to the one is written"
                    " to the other again, and counts twice"
                )
    for disk in sorted(written):
        if parts := devices.without_place(disk):
            said.append(
                f"the trace does not tell where {', '.join(parts)} begin on {disk}: of write-backs"
                " there, file, dirtier and reason may not be known"
            )
    known = {disk.get("dev") for disk in manifest.get("disks", [])}
    if any(devices.names(dev).fs not in known for dev in manifest["own_files"]):
        said.append(
            "the trace lay on a file system whose device number is no block device's (btrfs,"
            " overlay, network): the tracer's own writes could not be told apart"
        )
    return said


def _called(name: str, disks: list[str]) -> str:
    """A device with its disks, where it goes by another name than they."""
    return name if disks == [name] else f"{name} (on {', '.join(disks)})"
