"""The tests that run with each capture backend."""

from __future__ import annotations

import pytest

_OTHERS = ["ebpf", "perf"]

every_backend = pytest.mark.parametrize("backend", ["auto", *_OTHERS], scope="module")
"""The mark for tests of backend-dependent work: which events are captured, and how they are
decoded. `auto` is ftrace here, beside BPF programs that record system calls and page faults.

The views join decoded tables, which are the same for all backends: their tests use one. Tests of a
module that share a recording take it from a module's fixture, which is made once a backend.
"""

every_backend_of_calls = pytest.mark.parametrize(
    "backend", ["auto", "ftrace", *_OTHERS], scope="module"
)
"""The same for tests of system calls and page faults, which `ftrace` records by itself."""
