"""Shared parts of benchmarks: loads, a training job, tools that can be switched on and off.

Import this package before ours: it makes `analysis` the package, not the benchmark of that name.
"""

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parents[1]
if sys.path[0] == str(_BENCHMARKS):
    sys.path[0] = str(_BENCHMARKS.parent)
    sys.path.append(str(_BENCHMARKS))
