"""A frequency that the kernel keeps between two limits, which are two files of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracer.workloads.errors import JobError
from tracer.workloads.modes.mechanism import Before, read, write

_NEAR = 0.02
"""Tolerance for rounded frequencies in papers and data sheets: 1200 MHz is 1190.4 on a Jetson."""
_STEPS = 4


@dataclass(frozen=True)
class Limits:
    """The files of the lowest and highest allowed frequency, and of the available frequencies.

    `per_mhz`: units of the files per MHz. `bounds`: files of the hardware's own limits, used if the
    hardware does not list its frequencies.
    """

    low: Path
    high: Path
    available: Path
    per_mhz: float
    bounds: tuple[Path, Path] | None = None

    def now(self) -> float:
        """Returns the highest allowed frequency in MHz."""
        return int(read(self.high)) / self.per_mhz

    def all(self) -> list[int]:
        """Returns all frequencies in the files' unit, the lowest first.

        If the hardware does not list them, returns some frequencies between the bounds.
        """
        if self.available.exists():
            found = sorted({int(word) for word in read(self.available).split()})
            if found:
                return found
        if self.bounds is None:
            return [int(read(self.high))]
        lowest, highest = (int(read(path)) for path in self.bounds)
        return [lowest + (highest - lowest) * n // (_STEPS - 1) for n in range(_STEPS)]

    def some(self) -> list[float]:
        """Returns a few frequencies in MHz, spread from the lowest to the highest."""
        return [value / self.per_mhz for value in spread(self.all())]

    def hold(self, mhz: float) -> None:
        """Sets both limits to `mhz`. Raises JobError if there is no such frequency."""
        value = self._nearest(mhz)
        # The kernel never accepts a lower limit above the upper limit, so the order matters.
        below = value < int(read(self.low))
        for path in (self.low, self.high) if below else (self.high, self.low):
            write(path, str(value))

    def remember(self) -> Before:
        """Returns both limits, the upper one first, since they must be restored in that order."""
        return {str(path): read(path) for path in (self.high, self.low)}

    def _nearest(self, mhz: float) -> int:
        wanted = mhz * self.per_mhz
        every = self.all()
        if not self.available.exists() and every[0] <= wanted <= every[-1]:
            return round(wanted)
        nearest = min(every, key=lambda value: abs(value - wanted))
        if abs(nearest - wanted) > _NEAR * wanted:
            told = ", ".join(f"{value / self.per_mhz:g}" for value in every)
            raise JobError(f"{self.high.parent} has no {mhz:g} MHz", f"choose one of {told}")
        return nearest


def spread(values: list[int]) -> list[int]:
    """Returns a few of the sorted values, from the lowest to the highest."""
    places = {round(n * (len(values) - 1) / (_STEPS - 1)) for n in range(_STEPS)}
    return [values[place] for place in sorted(places)]


def put_back(before: Before) -> None:
    """Restores the noted content of files. Raises JobError."""
    for path, text in before.items():
        write(Path(path), text)
