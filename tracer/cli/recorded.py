"""A recording that has ended, in words on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.cli.main import say
from tracer.digits import counted

if TYPE_CHECKING:
    from tracer.session.options import Outcome
    from tracer.store.manifest import Manifest
    from tracer.store.manifest_parts import LossFacts


def say_left_running(manifest: Manifest) -> None:
    """Names the processes that the targets have left and that still run now."""
    from tracer.probes.kernel import process_alive
    from tracer.store.left_running import left_running_said

    left = manifest.get("left_running")
    if not left or not left["count"]:
        return
    named = left["processes"]
    now = [process for process in named if process_alive(process["pid"], process["start_time"])]
    count = left["count"] - len(named) + len(now)
    if not count:
        return
    said = left_running_said({"count": count, "processes": now})
    pids = [str(process["pid"]) for process in now] if count == len(now) else ["PID", ".."]
    if manifest["ended_by"] in ("signal", "duration"):
        mend = f"the end of the command has not ended them: kill {' '.join(pids)}"
    else:
        mend = f"record them with -p {','.join(pids)}, or give --linger SECONDS to record longer"
    say(f"tracer: {said}; {mend}")


_RAN_PYTORCH = "SELECT pid FROM page_faults WHERE ip_file LIKE '%/libtorch_cpu.so'"
# A process of a container that ended before its marks were translated has no pid.
_WITH_PHASES = """SELECT target FROM processes
    WHERE pid IN (SELECT pid FROM phases) OR EXISTS (SELECT 1 FROM phases WHERE pid IS NULL)"""


def say_without_phases(outcome: Outcome) -> None:
    """Names the awaited containers that ran PyTorch and have no phases.

    A page fault in PyTorch's library tells that it ran: without these nothing is said.
    """
    manifest = outcome.manifest
    awaited = {c["id"] for c in manifest.get("containers", []) if c.get("arrived")}
    targets = {t["name"] for t in manifest["targets"] if t.get("container") in awaited}
    if not targets or "page_faults" not in manifest["tables"]:
        return
    from tracer.store.trace import Trace

    with Trace(outcome.folder) as trace:
        trace.empty_if_missing("phases")
        found = trace.rows(
            f"SELECT DISTINCT target FROM processes WHERE pid IN ({_RAN_PYTORCH}) AND target NOT IN"
            f" (SELECT target FROM ({_WITH_PHASES}) WHERE target IS NOT NULL) ORDER BY target"
        )
    for (name,) in found:
        if name in targets:
            say(
                f"tracer: no phases of container {name} are known, and it ran PyTorch: it began"
                " after uprobes were set; start it with the variables of docs/phases.md, or record"
                " it without --wait once it trains"
            )


def say_outcome(outcome: Outcome) -> None:
    """Says where the trace is, how much it has, what was lost, and what the recording cost."""
    from tracer.probes.text import shell_word
    from tracer.store.manifest import why_no_events
    from tracer.store.own_cost import cost_said

    manifest = outcome.manifest
    rows = sum(table["rows"] for table in manifest["tables"].values())
    lost = loss_said(manifest["loss"])
    if not manifest["loss"]["windows"] and why_no_events(manifest):
        lost = "no kernel events recorded"
    if manifest["loss"]["others"]:
        lost += ", some names, stacks or samples missing (tracer report)"
    say(f"{outcome.folder}: {manifest['duration_s']:.1f} s, {rows} rows, {lost}")
    if cost := cost_said(manifest["own_cost"]):
        say(f"The recording cost {'; '.join(cost)}.")
    say(f"See it: tracer report {shell_word(outcome.folder)}")


def refuse_loss(loss: LossFacts) -> None:
    """Raises EventsLost if events of a recording were lost, for --fail-on-loss."""
    from tracer.probes.errors import EventsLost

    if loss["events"] or loss["windows"]:
        raise EventsLost(
            f"{_many(loss)} were lost in {counted(loss['windows'], 'gap')}",
            "see the causes: tracer info; larger buffers (-b) help if a buffer was full",
        )


def loss_said(loss: LossFacts) -> str:
    """Returns the number of lost events of a recording, as far as it is known, and of its gaps."""
    if not loss["windows"]:
        return "0 events lost"
    return f"{_many(loss)} lost in {counted(loss['windows'], 'gap')} (tracer info)"


def _many(loss: LossFacts) -> str:
    if not loss["unknown"]:
        return f"{loss['events']} events"
    return f"at least {loss['events']} events" if loss["events"] else "an unknown number of events"
