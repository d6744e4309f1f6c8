"""The closed form of Park & Bahn 2023, section 5: flat latencies, summed.

With N page writes, of which L go into the layer and D reach the disk,

    t_without = N * t_disk
    t_with    = L * t_nvm + D * t_disk
    I         = 1 - t_with / t_without  =  1 - t_nvm / t_disk - D / N   if all go into the layer
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def improvement(
    writes: int, into_layer: Any, disk_writes: Any, medium_ns: float, disk_ns: float
) -> NDArray[np.float64]:
    """Returns I for numbers or arrays of pages; NaN without writes."""
    if writes == 0:
        return np.full(np.broadcast(into_layer, disk_writes).shape, np.nan)
    into, reaching = np.asarray(into_layer, float), np.asarray(disk_writes, float)
    return 1 - into / writes * (medium_ns / disk_ns) - reaching / writes
