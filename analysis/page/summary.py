"""Summary of a recording: targets, machine, end, losses, and the recorder's cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tracer.digits import counted
from tracer.probes.text import shortened
from tracer.store.manifest import Manifest, duration_s, end_said, why_no_events
from tracer.store.own_cost import cost_said, headline

_MOST_TARGETS = 12
_MOST_CHARACTERS = 300
_MOST_NAME = 60


@dataclass(frozen=True)
class Tile:
    """A number in large type. `bad`: it shows a fault of the recording."""

    name: str
    value: str
    about: str
    bad: bool = False


@dataclass(frozen=True)
class Summary:
    """Tiles, names and values of facts, warnings, and notes."""

    tiles: list[Tile]
    facts: list[tuple[str, str]]
    warnings: list[str]
    notes: list[str]


def summary(manifest: Manifest, notes: list[str], losses: bool = True) -> Summary:
    """Returns the summary of a trace's manifest, with further `notes` on the trace.

    `losses`: False if the trace lacks the table of losses.
    """
    said = [note[: 2 * _MOST_CHARACTERS] for note in notes]
    return Summary(_tiles(manifest), _facts(manifest), _warnings(manifest, losses), said)


def _tiles(manifest: Manifest) -> list[Tile]:
    duration = duration_s(manifest)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    tiles = [
        Tile("Recorded", "-" if duration is None else _seconds(duration), _when(manifest)),
        Tile("Events", _count(rows), f"rows in {len(manifest['tables'])} tables"),
    ]
    lost, gaps = manifest["loss"].get("events") or 0, manifest["loss"].get("windows") or 0
    unknown = manifest["loss"].get("unknown") or 0
    if gaps or lost:
        about = f"in {counted(gaps, 'gap')}"
        if unknown:
            about += f", {unknown:,} of unknown size"
        said = _count(lost) if lost or not unknown else "unknown"
        tiles.append(Tile("Lost", said, about, bad=True))
    elif why_no_events(manifest):
        tiles.append(Tile("Lost", "-", "no kernel events were recorded"))
    elif "windows" not in manifest["loss"]:
        tiles.append(Tile("Lost", "-", "not known"))
    else:
        tiles.append(Tile("Lost", "0", "events"))
    complete = manifest["complete"]
    ended = end_said(manifest)
    tiles.append(Tile("Complete", "yes" if complete else "no", ended, bad=not complete))
    cpu, what = headline(manifest["own_cost"])
    if cpu is not None:
        share = f", {100 * cpu / duration:.1f} % of one CPU" if duration else ""
        tiles.append(Tile("The tracer itself", f"{cpu:,.2f} s CPU", what + share))
    return tiles


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for target in manifest["targets"][:_MOST_TARGETS]:
        command = " ".join(target.get("command") or [])
        status = target.get("exit_status")
        said = f"{target['kind']} {target['name']}" + (f": {command}" if command else "")
        ended = f" (exit status {status})" if status is not None else ""
        facts.append((target["role"], shortened(said, _MOST_CHARACTERS) + ended))
    if (more := len(manifest["targets"]) - _MOST_TARGETS) > 0:
        facts.append(("targets", f"{more:,} more"))
    host, kernel = manifest["host"], manifest.get("kernel", {})
    machine = [
        host.get("hostname"), host.get("cpu"), host.get("machine"),
        f"{host['cpus']} CPUs" if host.get("cpus") else None,
        f"{host['memory_bytes'] / 2**30:.1f} GiB memory" if host.get("memory_bytes") else None,
    ]  # fmt: skip
    facts.append(("machine", ", ".join(str(one) for one in machine if one) or "not known"))
    if kernel.get("release"):
        facts.append(("kernel", f"{kernel['release']} {kernel.get('version', '')}".strip()))
    disks = [
        f"{disk['name']} ({disk.get('dev', '?')}"
        + (f", {disk['bytes'] / 1e9:,.0f} GB" if disk.get("bytes") else "")
        + (f", {disk['scheduler']}" if disk.get("scheduler") else "")
        + ")"
        for disk in manifest.get("disks", [])
        if disk.get("name") and "partition_of" not in disk
    ]
    if disks:
        facts.append(("disks", ", ".join(disks)))
    if manifest["vm"]:
        said = ", ".join(f"{name} {value}" for name, value in sorted(manifest["vm"].items()))
        facts.append(("write-back settings", said))
    tool = manifest.get("tool", {})
    by = f"{tool.get('name', 'traintrace')} {tool.get('version', '')}".strip()
    why = f" ({manifest['backend_why']})" if manifest.get("backend_why") else ""
    facts.append(("recorded by", f"{by}, {manifest['backend']}{why}"))
    facts.append(("probes", ", ".join(manifest["probes"]) or "none"))
    cost = manifest["own_cost"]
    parts = cost_said(cost)
    if "bytes_written" in cost:
        parts.append(f"{cost['bytes_written'] / 2**20:,.1f} MiB written")
    if parts:
        facts.append(("the tracer's own cost", "; ".join(parts)))
    return [
        (shortened(name, _MOST_NAME), shortened(value, 2 * _MOST_CHARACTERS))
        for name, value in facts
    ]


def _warnings(manifest: Manifest, losses: bool) -> list[str]:
    found = []
    if not manifest["complete"]:
        found.append("The recording did not end normally: its last events may be missing")
    loss = manifest["loss"]
    if loss.get("events") or loss.get("windows"):
        found.append(
            "Events were lost: counts over the shaded times are too low. The table of losses"
            " names the streams"
            if losses
            else "Events were lost: counts are too low. The table of losses is missing, so the"
            " times of the gaps are not known"
        )
    return found


def _when(manifest: Manifest) -> str:
    offset = manifest["clock"].get("realtime_offset_ns")
    if offset is None:
        return ""
    try:
        when = datetime.fromtimestamp((manifest["clock"]["start_ns"] + offset) / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:,.0f} ms"
    if value < 600:  # ten minutes
        return f"{value:,.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _count(value: int) -> str:
    for size, name in ((10**9, "G"), (10**6, "M")):
        if value >= 10 * size or (value >= size and size == 10**9):
            return f"{value / size:,.1f} {name}"
    return f"{value:,}"
