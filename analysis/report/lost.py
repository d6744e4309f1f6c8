"""Description of the events that a recording lost."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from tracer.digits import counted
from tracer.probes.loss import OF_NO_EVENTS


def of_events(gaps: pd.DataFrame) -> pd.DataFrame:
    """Returns the gaps that lack events; others lack names, stacks or samples.

    `gaps`: rows of the report's table of losses.
    """
    return gaps[~gaps["stream"].isin(OF_NO_EVENTS)]


def gaps_of(loss: Mapping[str, int], gaps: pd.DataFrame | None) -> int | None:
    """Returns the number of gaps that lack events; None: not known whether there are any.

    `loss`: the numbers of the manifest. `gaps`: rows of the report's table of losses; None: the
    trace has no such table.
    """
    told = [] if gaps is None else [len(of_events(gaps))]
    if "windows" in loss:
        told.append(loss["windows"])
    return max(told, default=None)


def lost_in_words(events: int, windows: int, unknown: int, complete: bool) -> str:
    """Returns a description of the lost events and gaps, or "" if nothing was lost.

    `events`: events known to be lost. `windows`: gaps. `unknown`: gaps of unknown size.
    `complete`: True if the recording ended normally.
    """
    said = []
    if events:
        said.append(f"{events:,} events lost")
    if unknown:
        said.append(f"{counted(unknown, 'gap')} of unknown size")
    elif windows and not said:
        said.append(counted(windows, "gap"))
    if not complete:
        said.append("the recording was cut off")
    return ", ".join(said)
