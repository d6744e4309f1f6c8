"""The rings of a recording: on each CPU one for minor faults, one for major faults and mappings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probes.backends.perf_events import records
from probes.backends.perf_events.attributes import DUMMY, MAJOR_FAULTS, MINOR_FAULTS
from probes.backends.perf_events.ring import Ring
from probes.errors import FeatureMissing, PermissionMissing

_MAPS_BYTES = 1 << 20
_LEAST_BYTES = 64 << 10


class FaultRings:
    """Opened rings, and why there are none where there are none."""

    def __init__(
        self, raw: Path, cpus: list[int], kib: int | None, give_to_user: Callable[[int], None]
    ) -> None:
        """Open them, switched off: `kib` for the minor faults of each CPU, None for no faults."""
        self.rings: list[Ring] = []
        self.unavailable: str | None = None
        size = _LEAST_BYTES
        while size * 2 <= (kib or 0) << 10:
            size *= 2
        self._with_faults = kib is not None
        for cpu in cpus:
            if self._with_faults:
                path = raw / f"perf-faults-cpu{cpu}.raw"
                self.rings.append(Ring(records.MINOR, MINOR_FAULTS, cpu, path, size))
            path = raw / f"perf-maps-cpu{cpu}.raw"
            config = MAJOR_FAULTS if self._with_faults else DUMMY
            self.rings.append(Ring(records.MAJOR, config, cpu, path, _MAPS_BYTES, True))
        try:
            for ring in self.rings:
                ring.open()
                give_to_user(ring.sink)
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
        names = [records.MAPPING, records.EXEC, records.FORK, records.EXIT]
        if self._with_faults:
            names += [records.MINOR, records.MAJOR]
        return {name: records.format_text(name) for name in names}

    def start(self) -> None:
        """Let records in: mappings first, since every fault lies in one."""
        for ring in sorted(self.rings, key=lambda r: not r.mappings):
            ring.start()

    def stop(self) -> None:
        """Let no more records in."""
        for ring in self.rings:
            ring.stop()

    def close(self) -> None:
        """Close all rings."""
        for ring in self.rings:
            ring.close()
