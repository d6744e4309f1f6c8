"""Settings of the kernel's write-back, changed for one test."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import do_without


@contextlib.contextmanager
def settings(basetemp: Path) -> Iterator[Callable[..., None]]:
    """A function that sets sysctls of `vm`; the end restores them. Its users take turns."""
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

    # The processes of pytest-xdist have folders of their own in one common folder.
    with (basetemp.parent / "sysctls.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield put
        finally:
            for path, text in before.items():
                path.write_text(text)


@pytest.fixture
def sysctls(tmp_path_factory):
    """Set sysctls of `vm`, and restore them after the test: `sysctls(dirty_expire_centisecs=300)`.

    Tests that use this fixture never overlap, whichever process runs them. A test whose flusher
    must keep its settings uses it, too, and sets nothing.
    """
    with settings(tmp_path_factory.getbasetemp()) as put:
        yield put
