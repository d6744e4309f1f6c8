"""The rings of a recording: on each CPU one for minor faults, one for major faults and mappings.

If tracepoints tell of faults too, the rings hold minor faults of kernel mode only: those of user
mode are what is left (`FaultRows`).
"""

from __future__ import annotations

from pathlib import Path

from tracer.probes.backends.perf_events import records
from tracer.probes.backends.perf_events.attributes import MAJOR_FAULTS, MINOR_FAULTS
from tracer.probes.backends.perf_events.ring import Ring
from tracer.probes.errors import FeatureMissing, PermissionMissing

_MAPS_BYTES = 1 << 20
_LEAST_BYTES = 64 << 10


class FaultRings:
    """Opened rings, and why there are none where there are none."""

    def __init__(self, raw: Path, cpus: list[int], kib: int, alone: bool) -> None:
        """Opens them, switched off: `kib` for the minor faults of each CPU.

        `alone`: no tracepoint tells of faults.
        """
        self.rings: list[Ring] = []
        self.unavailable: str | None = None
        size = _LEAST_BYTES
        while size * 2 <= kib << 10:
            size *= 2
        for cpu in cpus:
            path = raw / f"perf-faults-cpu{cpu}.raw"
            self.rings.append(Ring(records.MINOR, MINOR_FAULTS, cpu, path, size, user=alone))
            path = raw / f"perf-maps-cpu{cpu}.raw"
            self.rings.append(Ring(records.MAJOR, MAJOR_FAULTS, cpu, path, _MAPS_BYTES, True))
        try:
            for ring in self.rings:
                ring.open()
        except (FeatureMissing, PermissionMissing) as error:
            # Faults are recorded without it, only not told apart.
            self.unavailable = str(error)
            self.close()
            for ring in self.rings:
                ring.path.unlink(missing_ok=True)
            self.rings = []
        except BaseException:
            self.close()
            raise

    @property
    def formats(self) -> dict[str, str]:
        """Formats of the records that the rings hold."""
        if not self.rings:
            return {}
        return {name: records.format_text(name) for name in records.NAMES}

    def start(self) -> None:
        """Starts recording: mappings first, because every fault lies in a mapping."""
        for ring in sorted(self.rings, key=lambda r: not r.mappings):
            ring.start()

    def stop(self) -> None:
        """Stops recording."""
        for ring in self.rings:
            ring.stop()

    def close(self) -> None:
        """Close all rings."""
        for ring in self.rings:
            ring.close()
