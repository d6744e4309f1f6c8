"""Page faults: what the error code says of the access."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from probes.backends.ftrace import columns
from probes.backends.ftrace.event_rows import common_column
from probes.backends.ftrace.timeline import Batch
from probes.schema import AssemblyContext

_X86 = ("x86_64", "i686", "i386")
_WRITE, _INSTRUCTION = 1 << 1, 1 << 4
"""arch/x86/include/asm/trap_pf.h"""
_ACCESS = ["read", "write", "exec"]


class FaultRows:
    """One row a page_fault_user or page_fault_kernel event."""

    sees_launch = False

    def __init__(self, context: AssemblyContext) -> None:
        self.probe = context.probe
        self.schema = self.probe.table.arrow_schema()
        self.formats = [
            (event.label == "user", context.formats[event.name])
            for event in self.probe.events
            if event.name in context.formats
        ]
        self._codes_known = context.manifest["host"].get("machine") in _X86

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the faults at `of_probe`."""
        n = len(of_probe)
        if not n:
            return None
        found = {name: np.zeros(n, np.int64) for name in ("address", "ip", "error_code")}
        known = {name: np.zeros(n, np.bool_) for name in found}
        user = np.zeros(n, np.bool_)
        types = batch.type[of_probe]
        for in_user_mode, event_format in self.formats:
            places = np.flatnonzero(types == event_format.id)
            user[places] = in_user_mode
            for name in found:
                field = event_format.fields.get(name)
                if field is not None and len(places):
                    columns.integers(
                        batch, of_probe[places], field, found[name], known[name], places
                    )
        code = found["error_code"]
        access = np.where(code & _INSTRUCTION, 2, np.where(code & _WRITE, 1, 0))
        arrays = []
        for column in self.probe.table.columns:
            common = common_column(column.name, batch, of_probe)
            if common is not None:
                arrays.append(common)
            elif column.name in ("address", "ip"):
                arrays.append(pa.array(found[column.name].view(np.uint64)))
            elif column.name == "kind":
                every = np.ones(n, np.bool_)
                arrays.append(columns.encoded(np.zeros(n, np.int32), every, ["unknown"]))
            elif column.name == "access":
                valid = known["error_code"] & self._codes_known
                arrays.append(columns.encoded(access, valid, _ACCESS))
            elif column.name == "user":
                arrays.append(pa.array(user))
            else:
                none = np.zeros(n, np.bool_)
                arrays.append(columns.typed(np.zeros(n, np.int64), none, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def finish(self) -> pa.RecordBatch | None:
        """Nothing waits."""
        return None
