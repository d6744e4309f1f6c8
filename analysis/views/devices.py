"""What has to be said about the devices of a trace."""

from __future__ import annotations

from tracer.store.manifest import Manifest


def notes(manifest: Manifest, written: set[str]) -> list[str]:
    """Sentences on devices that count twice, and on own files that cannot be told apart.

    `written` are the devices (MAJOR:MINOR) with write-backs.
    """
    said = []
    for disk in manifest.get("disks", []):
        for below in disk.get("on", []):
            if disk.get("dev") in written and below in written:
                said.append(
                    f"{disk['dev']} lies on {below}: what is written to the one is written to the"
                    " other again, and counts twice"
                )
    known = {disk.get("dev") for disk in manifest.get("disks", [])}
    if any(dev not in known for dev in manifest["own_files"]):
        said.append(
            "the trace lay on a file system whose device number is no block device's (btrfs,"
            " overlay, network): the tracer's own writes could not be told apart"
        )
    return said
