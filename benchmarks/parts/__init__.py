"""What benchmarks share: loads, a training job, tools that can be switched on and off.

To be imported before our packages: see that `analysis` is the package, not the benchmark so called.
"""

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parents[1]
if sys.path[0] == str(_BENCHMARKS):
    sys.path[0] = str(_BENCHMARKS.parent)
    sys.path.append(str(_BENCHMARKS))
