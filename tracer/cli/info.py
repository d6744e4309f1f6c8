"""`tracer info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace

if TYPE_CHECKING:
    from tracer.store.manifest import Manifest
    from tracer.store.manifest_parts import TargetFacts

_MOST = 400
"""Most characters of the names of series that have no samples, and of the reason."""


def info(trace: TracePath, json: AsJson = False) -> None:
    """Show what is in a trace: target, tables, clock, loss, the tracer's own cost.

    [bold]Example[/bold]

      tracer info run.trace --json
    """
    from tracer.store.trace import dump

    with open_trace(trace) as opened:
        facts = _facts(opened.manifest)
    if json:
        typer.echo(dump(facts))
        return
    _print(str(trace), facts)


def _facts(manifest: Manifest) -> dict[str, Any]:
    from tracer.store.manifest import duration_s

    return {
        "schema": manifest["schema"],
        "complete": manifest["complete"],
        "ended_by": manifest.get("ended_by"),
        "failure": manifest.get("failure"),
        "duration_s": duration_s(manifest),
        "clock": manifest["clock"],
        "backend": manifest["backend"],
        "backend_why": manifest.get("backend_why"),
        "imported": manifest.get("imported"),
        "missing": manifest["capture"].get("missing") or {},
        "cuda_sync": manifest.get("cuda_sync", False),
        "linger_s": manifest.get("linger_s", 0.0),
        "unmarked": manifest.get("unmarked", []),
        "probes": manifest["probes"],
        "command": manifest.get("command"),
        "targets": manifest["targets"],
        "left_running": manifest.get("left_running"),
        "containers": manifest.get("containers"),
        "tables": manifest["tables"],
        "samples": manifest.get("samples"),
        "stacks": manifest.get("stacks"),
        "unnamed": manifest.get("perf", {}).get("unnamed"),
        "loss": manifest["loss"],
        "own_cost": manifest["own_cost"],
        "host": manifest["host"],
        "kernel": manifest.get("kernel"),
        "tool": manifest.get("tool"),
        "vm": manifest["vm"],
    }


def _print(name: str, facts: dict[str, Any]) -> None:
    from tracer.cli.output import console, print_table, safe, show
    from tracer.probes.backends.choice import NONE
    from tracer.sizes import show_size
    from tracer.store.left_running import left_running_said
    from tracer.store.own_cost import cost_said

    out = console()
    duration = facts["duration_s"]
    out.print(safe(name), style="bold")
    why = f": {facts['failure']}" if facts["failure"] else ""
    how = "complete" if facts["complete"] else f"incomplete ({facts['ended_by']}{why})"
    out.print(safe(f"  recording   {show(duration)} s, {how}"[:300]))
    why = f": {facts['backend_why']}" if facts["backend_why"] else ""
    out.print(safe(f"  backend     {facts['backend']}{why}"))
    imported = facts["imported"] or {}
    for note in imported.get("notes", []):
        out.print(safe(f"  note        {note}"[:300]))
    for what, count in imported.get("not_understood", {}).items():
        out.print(safe(f"  left out    {what}: {count}"[:300]))
    for probe, absent in facts["missing"].items():
        out.print(safe(f"  missing     {probe}: {', '.join(absent)}"[:300]))
    if left := left_running_said(facts["left_running"]):
        out.print(safe(f"  left behind {left}"))
    if facts["linger_s"]:
        out.print(f"  linger      up to {show(facts['linger_s'])} s after the targets had ended")
    if facts["cuda_sync"]:
        out.print("  cuda sync   every automatic mark waited for the GPU: slower than without")
    for note in facts["unmarked"]:
        out.print(safe(f"  unmarked    {note}"[:300]))
    stacks = facts["stacks"] or {}
    if stacks:
        out.print(f"  stacks      {', '.join(stacks['kinds'])}")
    for kind, why in stacks.get("missing", {}).items():
        out.print(safe(f"  no stacks   {kind}: {why}"[:300]))
    if facts["unnamed"]:
        said = f"  no names    functions of the kernel in call graphs: {facts['unnamed']}"
        out.print(safe(said[:300]))
    sampling = facts["samples"] or {}
    for what, why in sampling.get("not_available", {}).items():
        out.print(safe(f"  no samples  {what[:_MOST]}: {why[:_MOST]}"))
    for what, found in sampling.get("facts", {}).items():
        out.print(safe(f"  {what:<11} {found}"[:200]))
    for target in facts["targets"]:
        out.print(safe(f"  target      {_target(target)}"[:200]))
    kernel = facts["kernel"] or {}
    host = facts["host"]
    if not imported:
        out.print(
            safe(
                f"  machine     Linux {kernel.get('release')}, {host.get('cpus')} CPUs, "
                f"{show_size(host.get('memory_bytes') or 0)}"
            )
        )
    since = "" if imported else ", ns since boot"
    out.print(safe(f"  clock       {facts['clock'].get('name')}{since}"))
    cost = facts["own_cost"]
    for number, said in enumerate(cost_said(cost)):
        out.print(f"  {'' if number else 'own cost':<11} {said}")
    if "bytes_written" in cost:
        out.print(f"              {show_size(cost['bytes_written'])} written")
    loss = facts["loss"]
    lost = "not known"
    if "events" in loss or "windows" in loss:
        lost = f"{loss.get('events', '-')} events in {loss.get('windows', '-')} gaps"
    if facts["backend"] == NONE and not loss.get("windows"):
        lost = "no kernel events were recorded"
    if loss.get("unknown"):
        lost += f", {loss['unknown']} of them of unknown size"
    if others := loss.get("others"):
        lost += f"; names, stacks or samples: {others} gaps"
    out.print(f"  lost        {lost}", style="red" if loss.get("windows") else None)
    out.print()
    print_table(
        out,
        "",
        ("table", "rows", "bytes"),
        [(n, t.get("rows"), t.get("bytes")) for n, t in facts["tables"].items()],
        left=("table",),
    )


def _target(target: TargetFacts) -> str:
    """Returns the kind, name and role of a target, and its pid, image and command if known."""
    of_a_kind = f"{target['kind']} {target['name']}"
    about = [f"role {target['role']}"]
    if target["pid"]:
        about.append(f"pid {target['pid']}")
    if "container" in target:
        about.append(f"id {target['container'][:12]}")
        about += [f"{key} {target[key]}" for key in ("engine", "image") if target.get(key)]
    command = " ".join(target.get("command") or [])
    return f"{of_a_kind} ({', '.join(about)}){': ' if command else ''}{command}"
