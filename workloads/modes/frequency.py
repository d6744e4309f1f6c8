"""A frequency that the kernel keeps between two limits, in two files of one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.errors import JobError
from workloads.modes.mechanism import Before, read, write

_NEAR = 0.02
"""Papers and data sheets round: 1200 MHz is 1190.4 on a Jetson."""
_STEPS = 4


@dataclass(frozen=True)
class Limits:
    """Files of the lowest and the highest frequency allowed, and of those that there are.

    `per_mhz`: how many of the files' units make a MHz. `bounds`: files of the hardware's own
    limits, for where it does not list its frequencies.
    """

    low: Path
    high: Path
    available: Path
    per_mhz: float
    bounds: tuple[Path, Path] | None = None

    def now(self) -> float:
        """The highest that is allowed, in MHz."""
        return int(read(self.high)) / self.per_mhz

    def all(self) -> list[int]:
        """Every frequency, in the files' unit, the lowest first; else some between the bounds."""
        if self.available.exists():
            found = sorted({int(word) for word in read(self.available).split()})
            if found:
                return found
        if self.bounds is None:
            return [int(read(self.high))]
        lowest, highest = (int(read(path)) for path in self.bounds)
        return [lowest + (highest - lowest) * n // (_STEPS - 1) for n in range(_STEPS)]

    def some(self) -> list[float]:
        """A few of them, spread from the lowest to the highest, in MHz."""
        return [value / self.per_mhz for value in spread(self.all())]

    def hold(self, mhz: float) -> None:
        """Make it the lowest and the highest. Raises JobError where there is no such frequency."""
        value = self._nearest(mhz)
        # The kernel refuses a lowest above the highest, at every moment.
        below = value < int(read(self.low))
        for path in (self.low, self.high) if below else (self.high, self.low):
            write(path, str(value))

    def remember(self) -> Before:
        """Both limits, the highest first: that is the order in which they can be put back."""
        return {str(path): read(path) for path in (self.high, self.low)}

    def _nearest(self, mhz: float) -> int:
        wanted = mhz * self.per_mhz
        every = self.all()
        if not self.available.exists() and every[0] <= wanted <= every[-1]:
            return round(wanted)
        nearest = min(every, key=lambda value: abs(value - wanted))
        if abs(nearest - wanted) > _NEAR * wanted:
            told = ", ".join(f"{value / self.per_mhz:g}" for value in every)
            raise JobError(f"{self.high.parent} has no {mhz:g} MHz", f"take one of {told}")
        return nearest


def spread(values: list[int]) -> list[int]:
    """A few of sorted values, from the lowest to the highest; all where they are few."""
    places = {round(n * (len(values) - 1) / (_STEPS - 1)) for n in range(_STEPS)}
    return [values[place] for place in sorted(places)]


def put_back(before: Before) -> None:
    """Write files as they were. Raises JobError."""
    for path, text in before.items():
        write(Path(path), text)
