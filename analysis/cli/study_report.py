"""`tracer study report`: the papers' claims, judged by the runs of a study."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a study that was run.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge the papers' claims by the runs of a study, claim by claim.

    Each has the paper's value, what the runs give with a 95 % interval, and a
    verdict: agrees, differs, undecided, or not measured and why. Power modes
    have the epoch times measured and predicted, and the Pareto front. Example:

      tracer study report quick.study
    """
    from analysis.cli.power_modes import as_json, print_power_modes
    from analysis.studies.claims import judge
    from analysis.studies.power_modes import power_modes
    from analysis.studies.runs import read_runs
    from tracer.cli.output import console, print_table, safe, show
    from tracer.store.trace import dump

    study, runs, failed = read_runs(folder)
    verdicts = judge(runs, study.get("paper"))
    modes = power_modes(runs)
    if json:
        typer.echo(
            dump(
                {
                    "study": study.get("name"),
                    "runs": len(runs),
                    "failed": failed,
                    "claims": [asdict(verdict) for verdict in verdicts],
                    "power_modes": as_json(modes),
                }
            )
        )
        return
    out = console()
    out.print(safe(f"{study.get('name')}: {len(runs)} runs, {len(failed)} failed"), style="bold")
    for run in failed:
        out.print(safe(f"failed: {run['id']}: {run['reason']}"[:300]))
    out.print()
    print_table(
        out,
        "Claims",
        ["id", "measured", "paper", "here", "low", "high", "n", "verdict"],
        [
            [
                v.id,
                v.measured or v.claim,
                v.paper_value,
                v.value,
                v.low,
                v.high,
                v.values,
                v.verdict,
            ]
            for v in verdicts
        ],
        left=("id", "measured", "paper", "verdict"),
        note="; ".join(f"{v.id}: {v.why}" for v in verdicts if v.why),
    )
    out.print(safe(f"{show(len(verdicts))} claims"))
    if modes is not None:
        print_power_modes(out, modes)
