"""`tracer study report`: compares the papers' claims, tables and figures with a study's runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.cli.main import named_path, written_path
from tracer.probes.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from tracer.analysis.studies.claims import Verdict
    from tracer.analysis.studies.power_modes import PowerModes
    from tracer.analysis.studies.runs import LeftOut

_FORMATS = (".html", ".md")
_MOST_LISTED = 100


def report(
    folder: Annotated[
        Path,
        typer.Argument(parser=named_path, metavar="DIR", help="Folder of a study that has run."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path("a report of a study is a file"),
            metavar="FILE",
            help="Write the full report: a page (.html) or Markdown (.md).",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace FILE and its figures if they exist.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare each of the papers' claims with the runs of a study.

    Each claim has the paper's value, the value of the runs with a 95 % interval,
    and a verdict: agrees, differs, undecided, or not measured with the reason.
    Power modes have measured and predicted epoch times, and the Pareto front.

    -o writes a report of the machine, the claims, and the papers' tables and
    figures with the papers' numbers beside those of the runs. It is one page that
    opens offline, or GitHub Markdown. Markdown needs a Chromium, which draws the
    figures into a folder beside FILE: quick.md links to quick/figure-3.svg.

    [bold]Examples[/bold]

      tracer study report quick.study

      tracer study report quick.study -o quick.html
    """
    if output is not None:
        _write(folder, output, force)
        return
    from tracer.analysis.cli.power_modes import as_json
    from tracer.analysis.report.tables import records
    from tracer.analysis.studies.claims import judge
    from tracer.analysis.studies.losses import losses
    from tracer.analysis.studies.power_modes import power_modes
    from tracer.analysis.studies.runs import name_of, not_begun, read_runs, said_runs
    from tracer.store.trace import dump

    study, runs, left_out = read_runs(folder)
    verdicts = judge(runs, study.get("paper"))
    modes = power_modes(runs)
    lost = losses(folder, runs)
    if json:
        told: dict[str, Any] = {"study": name_of(study), "runs": len(runs), "left_out": left_out}
        told["not_begun"] = not_begun(study, len(runs), left_out)
        told["lost"] = records(lost)
        told["claims"] = [asdict(verdict) for verdict in verdicts]
        told["power_modes"] = as_json(modes)
        typer.echo(dump(told))
        return
    said = f"{name_of(study)}: {said_runs(study, len(runs), left_out)}"
    _print(said, lost, left_out, verdicts, modes)


def _write(folder: Path, output: Path, force: bool) -> None:
    from tracer.analysis.cli.page_output import check_output
    from tracer.cli.main import say
    from tracer.store.files import as_invoking_user, unwritable, write_whole

    if output.suffix not in _FORMATS:
        raise UsageError(
            f"{output} is neither a page nor Markdown",
            f"name a file that ends in {' or '.join(_FORMATS)}",
        )
    check_output(output, force, json=False)
    try:
        text, told = (_page if output.suffix == ".html" else _markdown)(folder, output, force)
        with as_invoking_user():
            write_whole(output, text.encode("utf-8", "replace"))
    except OSError as error:
        raise unwritable(error.filename or output, error, "name another file with -o") from None
    say(f"{output}: {told}")


def _page(folder: Path, output: Path, force: bool) -> tuple[str, str]:
    from tracer.analysis.studies.report.contents import contents
    from tracer.analysis.studies.report.page import page

    found = contents(folder)
    return page(found), found.said


def _markdown(folder: Path, output: Path, force: bool) -> tuple[str, str]:
    """Returns the text, after its figures have been written, and a line about it."""
    from tracer.analysis.page.pictures import MEND, browser
    from tracer.analysis.studies.report.contents import contents
    from tracer.analysis.studies.report.markdown import markdown
    from tracer.analysis.studies.report.picture_files import check_folder, folder_of, write_pictures
    from tracer.probes.errors import FeatureMissing

    if browser() is None:
        found = contents(folder, drawn=False)
        why = "there is no Chromium to draw them"
        return markdown(found, undrawn=why), f"{found.said}; without figures: {why}; {MEND}"
    check_folder(output, force)
    found = contents(folder)
    try:
        drawn = write_pictures(found, output)
    except FeatureMissing as error:
        return markdown(found, undrawn=error.what), f"{found.said}; without figures: {error}"
    figures = sum(len(files) for files in drawn.values())
    beside = folder_of(output)
    return markdown(found, drawn, beside.name), f"{found.said}, {figures} figures in {beside}"


def _print(
    head: str,
    lost: pd.DataFrame,
    left_out: list[LeftOut],
    verdicts: list[Verdict],
    modes: PowerModes | None,
) -> None:
    from tracer.analysis.cli.power_modes import print_power_modes
    from tracer.analysis.studies.losses import said_losses
    from tracer.cli.output import console, print_table, safe, show

    out = console()
    out.print(safe(head), style="bold")
    if said := said_losses(lost):
        out.print(safe(f"Losses: {said}"))
    for run in left_out[:_MOST_LISTED]:
        out.print(safe(f"{run['state']}: {run['id']}: {run['reason']}"[:300]))
    if len(left_out) > _MOST_LISTED:
        out.print(f"{len(left_out) - _MOST_LISTED} more runs are left out: --json lists all")
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
