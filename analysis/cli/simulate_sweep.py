"""`tracer simulate --config`: every combination that a file lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tracer.analysis.cli.many import opened_here

if TYPE_CHECKING:
    import pandas as pd

    from tracer.analysis.scale.sources import Source


def simulate_sweep(
    sources: list[Source],
    config: Path,
    dev: list[str] | None,
    all_writers: bool,
    scheduler: str | None,
    html: Path | None,
    json: bool,
) -> None:
    """Simulates every combination of the file `config`, and prints or writes the rows."""
    from tracer.analysis.cli.page_output import write_page
    from tracer.analysis.cli.simulate_text import print_sweep
    from tracer.analysis.flushlayer.answers import sweep

    plan = sweep.load(config)
    frame = _rows(sources, plan, dev, all_writers, scheduler)
    if html is not None:
        from tracer.analysis.page.what_if import sweep_page

        write_page(sweep_page(str(config), frame), html)
    if json:
        from tracer.analysis.report.tables import records
        from tracer.store.trace import dump

        said = frame.attrs["assumptions"]
        typer.echo(dump({"config": str(config), "rows": records(frame), "assumptions": said}))
    elif html is None:
        print_sweep(str(config), frame)


def _rows(
    sources: list[Source],
    plan: Any,
    dev: list[str] | None,
    all_writers: bool,
    scheduler: str | None,
) -> pd.DataFrame:
    """Returns the rows of a sweep, with its assumptions.

    With several traces, the first column is the trace's name.
    """
    from functools import partial

    import pandas as pd

    from tracer.analysis.flushlayer.answers import sweep
    from tracer.analysis.scale.mapping import results
    from tracer.cli.progress import counted

    with counted("simulating") as done:
        if scheduler is None and len(sources) == 1:
            with opened_here(sources[0]) as trace:
                return sweep.run(trace, plan, dev, done, all_writers=all_writers)
        # The simulations of one trace are divided among workers; of several traces, each is a task.
        shares = 1 if len(sources) > 1 else min(16, len(plan.parts()))
        asked = [(source, n) for source in sources for n in range(shares)]
        frames = list(
            results(
                [
                    partial(
                        sweep.run,
                        plan=plan,
                        devices=dev,
                        share=(n, shares),
                        all_writers=all_writers,
                    )
                    for _, n in asked
                ],
                [source for source, _ in asked],
                scheduler,
                done,
            )
        )
        named = zip((source.name for source, _ in asked), frames, strict=True)
        said = _assumptions(sources, asked, frames)
        parts = [f if len(sources) == 1 else f.assign(trace=n)[["trace", *f]] for n, f in named]
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["assumptions"] = said
    return frame


def _assumptions(
    sources: list[Source], asked: list[tuple[Source, int]], frames: list[pd.DataFrame]
) -> list[str]:
    """Returns the assumptions of all frames; one that is not about all traces has their names."""
    of: dict[str, dict[str, None]] = {}
    for (source, _), frame in zip(asked, frames, strict=True):
        for said in frame.attrs["assumptions"]:
            of.setdefault(said, {})[source.name] = None
    return [
        said if len(names) == len(sources) else f"{', '.join(names)}: {said}"
        for said, names in of.items()
    ]
