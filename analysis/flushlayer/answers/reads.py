"""The reads that a layer behind the page cache gets: those that the page cache did not serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE, pages_of_kernel
from tracer.analysis.memory.knowledge import knowledge
from tracer.analysis.views.reading.page_uses import page_uses
from tracer.sizes import show_share
from tracer.store.devices import Devices
from tracer.store.trace import Trace

_OF_TARGETS = """
SELECT dev, coalesce(sum(accessed), 0)::BIGINT, coalesce(sum(missed), 0)::BIGINT,
    coalesce(sum(read), 0)::BIGINT
FROM page_uses WHERE target IS NOT NULL OR $everybody GROUP BY dev
"""


def page_cache(
    trace: Trace, everybody: bool, names: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """Returns the page cache's account of the reads; None: the probe page_cache is not recorded.

    With `names` (of disks, partitions or file systems), only the uses of files there count.

    Keys, in pages of 4096 bytes: used_pages (by calls and faults; each use of a page counts),
    missed_pages (those among them that were not in the cache), read_pages (brought in: missed ones,
    and those read ahead); kernel_page_bytes (the cache holds whole pages of this size);
    other_pages (uses that do not count, because the trace does not describe the device of the
    file; 0 without `names`), shared_devices (file systems that lie on other devices, too); inferred
    and unknown_share (of all devices, see `Knowledge`). Of the targets; with `everybody`, of all
    processes.
    """
    if "page_cache" not in trace.tables:
        return None
    page_uses(trace)
    devices = Devices(trace.manifest)
    places = [place for name in names or () for place in devices.places(name)]
    used = missed = read = other = 0
    shared = []
    for dev, *counts in trace.rows(_OF_TARGETS.replace("$everybody", str(everybody))):
        # Rows without a device are those of reads whose file is not known.
        in_part, whole = (True, True) if not names else devices.lies_on(dev or "", places)
        if in_part:
            used, missed, read = used + counts[0], missed + counts[1], read + counts[2]
            shared += [] if whole else [dev]
        elif not devices.describes(dev or ""):
            other += counts[0]
    known, unit = knowledge(trace), pages_of_kernel(trace)
    return {
        "used_pages": used * unit,
        "missed_pages": missed * unit,
        "read_pages": read * unit,
        "kernel_page_bytes": unit * MODEL_PAGE,
        "other_pages": other * unit,
        "shared_devices": sorted(shared),
        "inferred": known.inferred,
        "unknown_share": known.unknown,
    }


def about_reads(found: dict[str, Any] | None) -> list[str]:
    """Returns sentences on the reads of a layer, from what `page_cache` returns."""
    said = ["the layer gets the reads that reach the device: pages that missed the page cache, and"
            " those that it reads ahead"]  # fmt: skip
    if found is None:
        return [f"{said[0]} (record the probe page_cache to see those that it serves)"]
    used, missed, read = found["used_pages"], found["missed_pages"], found["read_pages"]
    if used:
        inferred = "; these are inferred from system calls" if found["inferred"] else ""
        said.append(
            f"the page cache served {show_share(1 - missed / used)} of the {used:,} page uses"
            f"{inferred}; {missed:,} pages were missed, and {read - missed:,} read ahead"
        )
    if found["kernel_page_bytes"] > MODEL_PAGE:
        said.append(
            f"the page cache holds pages of {found['kernel_page_bytes']:,} bytes: each use of one"
            f" counts as {found['kernel_page_bytes'] // MODEL_PAGE} pages of {MODEL_PAGE} bytes,"
            " even if less was used"
        )
    if found["other_pages"]:
        said.append(
            f"{found['other_pages']:,} page uses do not count: the trace does not describe the"
            " device of their files"
        )
    said += [
        f"files of {dev} lie on other devices, too: all of their page uses count"
        for dev in found["shared_devices"]
    ]
    said += [
        f"{target}: the file or the place of {show_share(share)} of the data that it read is not"
        " known, and not among these uses"
        for target, share in found["unknown_share"].items()
        if share > 0
    ]
    return said
