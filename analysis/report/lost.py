"""Description of the events that a recording lost."""

from __future__ import annotations

import pandas as pd

from tracer.probes.loss import OF_NO_EVENTS


def of_events(gaps: pd.DataFrame) -> pd.DataFrame:
    """Returns the gaps that lack events; others lack names, stacks or samples.

    `gaps`: rows of the report's table of losses.
    """
    return gaps[~gaps["stream"].isin(OF_NO_EVENTS)]


def lost_in_words(events: int, windows: int, unknown: int, complete: bool) -> str:
    """Returns a description of the lost events and gaps, or "" if nothing was lost.

    `events`: events known to be lost. `windows`: gaps. `unknown`: gaps of unknown size.
    `complete`: True if the recording ended normally.
    """
    said = []
    if events:
        said.append(f"{events:,} events lost")
    if unknown:
        said.append(f"{unknown:,} {'gap' if unknown == 1 else 'gaps'} of unknown size")
    elif windows and not said:
        said.append(f"{windows:,} {'gap' if windows == 1 else 'gaps'}")
    if not complete:
        said.append("the recording was cut off")
    return ", ".join(said)
