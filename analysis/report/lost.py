"""What a recording lost, in words."""

from __future__ import annotations


def lost_in_words(events: int, windows: int, unknown: int, complete: bool) -> str:
    """Of so many events known to be lost, so many gaps, and gaps of unknown size; "": nothing.

    `complete`: the recording ended as it should.
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
