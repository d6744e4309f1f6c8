"""The tests that run with each capture backend."""

from __future__ import annotations

import pytest

every_backend = pytest.mark.parametrize("backend", ["ftrace", "ebpf", "perf"], scope="module")
"""The mark for tests of backend-dependent work: which events are captured, and how they are
decoded.

The views join decoded tables, which are the same for all backends: their tests use one. Tests of a
module that share a recording take it from a module's fixture, which is made once a backend.
"""
