"""`tracer info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace
from tracer.digits import counted

if TYPE_CHECKING:
    from tracer.store.manifest import Manifest
    from tracer.store.manifest_parts import TargetFacts

_MOST = 100
"""Most targets, missing events, arguments of a command, ... that are shown; --json has all."""
_MOST_CHARACTERS = 4000
"""Most characters of a fact: a hostile trace could fill the terminal."""


def info(trace: TracePath, json: AsJson = False) -> None:
    """Show what is in a trace: target, tables, clock, loss, the tracer's own cost.

    Look here first if a verb lacks something: the reason may be in the trace.

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
    from tracer.cli.output import console, print_fact, print_table, safe, show
    from tracer.probes.backends.choice import NONE
    from tracer.probes.text import shortened
    from tracer.sizes import show_size
    from tracer.store.left_running import left_running_said
    from tracer.store.own_cost import cost_said

    out = console()

    def fact(label: str, text: str) -> None:
        print_fact(out, *(shortened(part, _MOST_CHARACTERS) for part in (label, text)))

    def every(label: str, texts: list[str], what: str) -> None:
        for text in texts[:_MOST]:
            fact(label, text)
        if (more := len(texts) - _MOST) > 0:
            fact("", f"and {more} more {what}: tracer info --json")

    duration = facts["duration_s"]
    out.print(safe(name), style="bold")
    why = f": {facts['failure']}" if facts["failure"] else ""
    how = "complete" if facts["complete"] else f"incomplete ({facts['ended_by']}{why})"
    fact("recording", f"{show(duration)} s, {how}")
    why = f": {facts['backend_why']}" if facts["backend_why"] else ""
    fact("backend", f"{facts['backend']}{why}")
    imported = facts["imported"] or {}
    every("note", imported.get("notes", []), "notes")
    left_out = imported.get("not_understood", {}).items()
    every("left out", [f"{what}: {count}" for what, count in left_out], "kinds of lines")
    missing = facts["missing"].items()
    every("missing", [f"{probe}: {_listed(absent)}" for probe, absent in missing], "probes")
    if left := left_running_said(facts["left_running"]):
        fact("left behind", left)
    if facts["linger_s"]:
        fact("linger", f"up to {show(facts['linger_s'])} s after the targets had ended")
    if facts["cuda_sync"]:
        fact("cuda sync", "every automatic mark waited for the GPU: slower than without")
    every("unmarked", facts["unmarked"], "reasons")
    stacks = facts["stacks"] or {}
    if stacks:
        fact("stacks", ", ".join(stacks["kinds"]))
    for kind, why in stacks.get("missing", {}).items():
        fact("no stacks", f"{kind}: {why}")
    if facts["unnamed"]:
        fact("no names", f"functions of the kernel in call graphs: {facts['unnamed']}")
    sampling = facts["samples"] or {}
    absent = sampling.get("not_available", {}).items()
    every("no samples", [f"{what}: {why}" for what, why in absent], "reasons")
    for what, found in list(sampling.get("facts", {}).items())[:_MOST]:
        fact(what, found)
    every("target", [_target(target) for target in facts["targets"]], "targets")
    kernel = facts["kernel"] or {}
    host = facts["host"]
    if not imported:
        memory = show_size(host.get("memory_bytes") or 0)
        fact("machine", f"Linux {kernel.get('release')}, {host.get('cpus')} CPUs, {memory}")
    since = "" if imported else ", ns since boot"
    fact("clock", f"{facts['clock'].get('name')}{since}")
    cost = facts["own_cost"]
    for number, said in enumerate(cost_said(cost)):
        fact("" if number else "own cost", said)
    if "bytes_written" in cost:
        fact("", f"{show_size(cost['bytes_written'])} written")
    loss = facts["loss"]
    lost = "not known"
    if "events" in loss or "windows" in loss:
        gaps = counted(loss["windows"], "gap") if "windows" in loss else "- gaps"
        lost = f"{loss.get('events', '-')} events in {gaps}"
    if facts["backend"] == NONE and not loss.get("windows"):
        lost = "no kernel events were recorded"
    if loss.get("unknown"):
        lost += f", {loss['unknown']} of them of unknown size"
    if others := loss.get("others"):
        lost += f"; names, stacks or samples: {counted(others, 'gap')}"
    print_fact(out, "lost", lost, style="red" if loss.get("windows") else None)
    out.print()
    print_table(
        out,
        "",
        ("table", "rows", "bytes"),
        [(n, t.get("rows"), t.get("bytes")) for n, t in facts["tables"].items()],
        left=("table",),
    )


def _listed(names: list[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = [f"and {len(names) - _MOST} more"] if len(names) > _MOST else []
    return ", ".join([*names[:_MOST], *more])


def _target(target: TargetFacts) -> str:
    """Returns the kind, name and role of a target, and its pid, image and command if known."""
    of_a_kind = f"{target['kind']} {target['name']}"
    about = [f"role {target['role']}"]
    if target["pid"]:
        about.append(f"pid {target['pid']}")
    if "container" in target:
        about.append(f"id {target['container'][:12]}")
        about += [f"{key} {target[key]}" for key in ("engine", "image") if target.get(key)]
    words = target.get("command") or []
    command = " ".join(words[:_MOST])
    if len(words) > _MOST:
        command += f" and {len(words) - _MOST} more arguments"
    return f"{of_a_kind} ({', '.join(about)}){': ' if command else ''}{command}"
