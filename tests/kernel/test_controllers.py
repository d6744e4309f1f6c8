"""A controller of cgroup v2 is switched off again, but never takes other groups' settings away."""

import contextlib
import secrets
from pathlib import Path

import pytest

from tests.conftest import do_without
from tracer.workloads.modes.cgroups import mounts, remove
from tracer.workloads.modes.controllers import CONTROL

pytestmark = pytest.mark.quiet

LIMITS = {"hugetlb": ("hugetlb.2MB.max", "2097152"), "pids": ("pids.max", "1000")}
"""A limit of each controller that stops nothing here."""


@pytest.fixture
def off():
    """The root of v2 and a controller that is off below it; it is off again at the end."""
    for mount in mounts():
        if not mount.unified:
            continue
        on = (mount.path / CONTROL).read_text().split()
        for controller in sorted((mount.controllers & LIMITS.keys()) - {*on}):
            try:
                yield mount.path, controller
            finally:
                with contextlib.suppress(OSError):
                    (mount.path / CONTROL).write_text(f"-{controller}")
            return
    do_without("cgroups of v2", "TRACER_REQUIRE_KERNEL", f"none has one of {[*LIMITS]} to spare")


@pytest.fixture
def group(off):
    """A group of another program below the root."""
    root, _ = off
    made = root / f"others-{secrets.token_hex(4)}"
    made.mkdir()
    try:
        yield made
    finally:
        for below in made.glob("*/"):
            below.rmdir()
        made.rmdir()


def switched_on(off):
    """Switches the controller on, as a job with a limit does; returns the plan to undo it."""
    root, controller = off
    (root / CONTROL).write_text(f"+{controller}")
    return {"made": {}, "enabled": [[str(root / CONTROL), controller]]}


def is_on(off):
    root, controller = off
    return controller in (root / CONTROL).read_text().split()


def test_it_is_switched_off_if_no_group_has_a_setting_of_it(off, group):
    groups = {*Path(off[0]).iterdir()}
    remove(switched_on(off))
    assert not is_on(off)
    assert {path for path in Path(off[0]).iterdir() if path.is_dir()} <= groups


def test_it_stays_on_while_another_group_has_a_limit_of_it(off, group):
    planned = switched_on(off)
    name, limit = LIMITS[off[1]]
    (group / name).write_text(limit)
    remove(planned)
    assert is_on(off)
    assert (group / name).read_text().strip() == limit
    group.rmdir()  # hugetlb shows a limit that was lifted in another way than one never set
    group.mkdir()
    remove(planned)
    assert not is_on(off)


def test_it_stays_on_while_another_group_has_it_switched_on(off, group):
    planned = switched_on(off)
    (group / CONTROL).write_text(f"+{off[1]}")
    remove(planned)
    assert is_on(off)
    (group / CONTROL).write_text(f"-{off[1]}")
    remove(planned)
    assert not is_on(off)
    remove(planned)  # nothing to do
