"""The error for tables that a trace lacks, with the way to get them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tracer.probes.catalogue import ALWAYS, PROBES, SETS, TABLES
from tracer.probes.errors import BadTrace
from tracer.probes.events import gpu_calls, opens, torch_calls
from tracer.store.manifest import Manifest

_BY_LIBRARY = {torch_calls.PROBE.name, opens.PROBE.name, gpu_calls.PROBE.name}
"""Probes that are recorded only if a library is found."""


def missing_tables(folder: Path, manifest: Manifest, names: Sequence[str]) -> BadTrace:
    """Returns the error for tables that the trace `folder` lacks: all of them, and one mend."""
    whys = dict(manifest["capture"].get("missing", {}))
    if _sought_gpu(manifest):
        whys.setdefault(gpu_calls.TABLE.name, [gpu_calls.ABSENT])
    told = [f"{name}: {', '.join(whys[name])}" if whys.get(name) else name for name in names]
    tables, them = ("table", "it") if len(names) == 1 else ("tables", "them")
    said = f"{folder} has no {tables} {', '.join(told)}"
    # Its library is looked for in processes that run.
    job = "-p PID" if torch_calls.TABLE.name in names else "..."
    record = f"tracer record {_options(names)} {job}" if _options(names) else ""
    if "imported" in manifest:
        what = f"{said}: the imported file lacks {them}"
        return BadTrace(what, f"record the job itself: {record or 'tracer record ...'}")
    if list(names) == [gpu_calls.TABLE.name] and names[0] in whys:
        return BadTrace(said, gpu_calls.MEND)
    if "summaries" in manifest.get("tables", {}) and "-e " in record:
        what = f"{said}: the kernel only counted events (--summary)"
        return BadTrace(what, f"record {them} without --summary: {record}")
    described = f"see what it is made from: tracer query --columns {names[0]}"
    return BadTrace(said, f"record {them}: {record}" if record else described)


def _sought_gpu(manifest: Manifest) -> bool:
    """Returns whether the driver's library was looked for: all default probes were asked for.

    A manifest names no probe whose library was not found.
    """
    if "imported" in manifest:
        return False
    return {*SETS["default"]} - _BY_LIBRARY <= {*manifest["probes"]}


def _options(names: Sequence[str]) -> str:
    """Returns the options of `tracer record` that make these tables; "" if no option does."""
    probes: list[str] = []
    others: list[str] = []
    for name in names:
        table = TABLES.get(name)
        option = (table.option if table else "") or (f"-e {name}" if name in PROBES else "")
        if option.startswith("-e "):
            probes += option.removeprefix("-e ").split(",")
        elif option:
            others.append(option)
    if len(set(probes)) > 1:
        implied = {*ALWAYS, *(SETS["default"] if "default" in probes else ())}
        probes = [name for name in probes if name not in implied]
    chosen = [f"-e {','.join(dict.fromkeys(probes))}"] if probes else []
    return " ".join(dict.fromkeys([*chosen, *others]))
