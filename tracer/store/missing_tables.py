"""The error for tables that a trace lacks, with the way to get them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tracer.probes import gpu_calls
from tracer.probes.catalogue import ALWAYS, PROBES, SETS, TABLES
from tracer.probes.errors import BadTrace
from tracer.probes.torch_calls import TABLE as TORCH_CALLS
from tracer.store.manifest import Manifest


def missing_tables(folder: Path, manifest: Manifest, names: Sequence[str]) -> BadTrace:
    """Returns the error for tables that the trace `folder` lacks: all of them, and one mend."""
    whys = {} if "imported" in manifest else {gpu_calls.TABLE.name: [gpu_calls.ABSENT]}
    whys |= manifest["capture"].get("missing", {})
    told = [f"{name}: {', '.join(whys[name])}" if whys.get(name) else name for name in names]
    tables, them = ("table", "it") if len(names) == 1 else ("tables", "them")
    said = f"{folder} has no {tables} {', '.join(told)}"
    # Its library is looked for in processes that run.
    job = "-p PID" if TORCH_CALLS.name in names else "..."
    record = f"tracer record {_options(names)} {job}" if _options(names) else ""
    if "imported" in manifest:
        what = f"{said}: the imported file lacks {them}"
        return BadTrace(what, f"record the job itself: {record or 'tracer record ...'}")
    described = f"see what it is made from: tracer query --columns {names[0]}"
    return BadTrace(said, f"record {them}: {record}" if record else described)


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
