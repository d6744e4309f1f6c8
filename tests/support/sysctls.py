"""Settings of the kernel's write-back, changed for one test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import do_without


@contextlib.contextmanager
def settings() -> Iterator[Callable[..., None]]:
    """A function that sets sysctls of `vm`; the end restores them. Its users are `settings`."""
    before: dict[Path, str] = {}

    def put(**values: object) -> None:
        for name, value in values.items():
            path = Path("/proc/sys/vm", name)
            earlier = path
            if name.endswith("_bytes") and int(path.read_text()) == 0:
                # It cannot be set to 0: the limit as a ratio replaces it.
                earlier = path.with_name(f"{name.removesuffix('bytes')}ratio")
            before.setdefault(earlier, earlier.read_text())
            try:
                path.write_text(str(value))
            except OSError:
                do_without(f"a {name} to be set", "TRACER_REQUIRE_KERNEL", "the kernel refuses it")

    try:
        yield put
    finally:
        for path, text in before.items():
            path.write_text(text)


@pytest.fixture
def sysctls(request):
    """Set sysctls of `vm`, and restore them after the test: `sysctls(dirty_expire_centisecs=300)`.

    A test that uses this fixture has the mark `settings`, so that no other one sets them meanwhile.
    A test whose flusher must keep its settings has the mark, too.
    """
    assert request.node.get_closest_marker("settings"), "mark it: pytest.mark.settings"
    with settings() as put:
        yield put
