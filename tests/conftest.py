"""Fixtures of all tests."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from functools import cache, partial
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import browser, leftovers
from tests.support.kernel_settings import priorities_across_sessions
from tests.support.turns import take_priority, turn_of
from tests.support.warm import Tracer
from tracer.probes.doctor import check, verdict

ROOT = Path(__file__).resolve().parent.parent
NEEDS = ("kernel", "docker", "browser")
"""Folders of tests that need the real thing, and the marks of those tests."""


for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    # A shell ignores SIGINT for its background jobs; the tests' recorders must receive it.
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@cache
def why_no_kernel() -> str | None:
    """The one reason for which kernel tests cannot run here, or None."""
    findings = check()
    if not verdict(findings):
        return None
    return "; ".join(f"{f.name}: {f.found} ({f.mend})" for f in findings if not f.ok and f.fatal)


@cache
def why_no_docker() -> str | None:
    """The one reason for which no Docker daemon can be started here, or None."""
    missing = [name for name in ("dockerd", "containerd", "runc") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not found (apt-get install docker.io)"
    return why_no_kernel()


@cache
def why_no_browser() -> str | None:
    """The one reason for which no page can be looked at here, or None."""
    return None if browser.find() else "no Chromium is installed (apt-get install chromium)"


def pytest_configure(config: pytest.Config) -> None:
    """Begin with a machine on which no killed run has left a file system.

    If other tests run beside those of the live machine, priorities count across sessions.
    """
    if hasattr(config, "workerinput") or os.geteuid() != 0:
        return
    leftovers.take_down()
    if config.getoption("numprocesses", None) and "not kernel" not in config.option.markexpr:
        held = contextlib.ExitStack()
        held.enter_context(priorities_across_sessions())
        config.add_cleanup(held.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects the tests; what is there then is left out of all collections of garbage.

    Each of these would go through thousands of tests and all that they import.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of a folder with what they need."""
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    if folder in NEEDS:
        item.add_marker(folder)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Makes pytest-xdist run the tests of a room one after another, in one process."""
    return Rooms(config, log)


class Rooms(LoadScopeScheduling):
    """Gives a process a whole room at a time: a file, all pages, or all that observes the machine.

    Kernel and Docker tests disturb each other: they count events and lost events, change settings
    and time things on the one kernel. (The mark `xdist_group` would say the same, but
    pytest-xdist 3.8 ignores it under pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/kernel/beside/"):
            return nodeid.partition("::")[0]
        _, folder, *_ = nodeid.split("/")
        if folder in ("kernel", "docker"):
            return "machine"
        return folder if folder in NEEDS else nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Runs a test, with its fixtures, in its turn."""
    take_priority(item)
    with turn_of(item):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose real thing is out of reach, or fail it where that was forbidden."""
    if item.get_closest_marker("kernel") is not None:
        do_without("the kernel", "TRACER_REQUIRE_KERNEL", why_no_kernel())
    if item.get_closest_marker("docker") is not None:
        do_without("Docker", "TRACER_REQUIRE_DOCKER", why_no_docker())
    if item.get_closest_marker("browser") is not None:
        do_without("a browser", "TRACER_REQUIRE_BROWSER", why_no_browser())


def do_without(what: str, forbidden: str, reason: str | None) -> None:
    """Skip where there is a reason to; fail instead where the environment forbids to skip."""
    if reason is None:
        return
    if os.environ.get(forbidden) == "1":
        pytest.fail(f"{forbidden}=1, but {what} is out of reach: {reason}")
    pytest.skip(f"{what} is out of reach: {reason}")


class Ran:
    """A finished `tracer`: status, stdout, stderr."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @classmethod
    def of(cls, ended: subprocess.CompletedProcess[str]) -> Ran:
        """The result of `subprocess.run`."""
        return cls(ended.returncode, ended.stdout, ended.stderr)

    @property
    def json(self):
        """stdout as one JSON value; NaN and infinities are refused."""

        def refuse(constant):
            raise ValueError(f"{constant} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


def tracer_command(*arguments: object) -> list[str]:
    """The command line of `tracer` as this interpreter's environment has it."""
    return [sys.executable, "-c", "from tracer.cli.main import main; main()", *map(str, arguments)]


def run_tracer(*arguments, status: int | None = 0, input: str | None = None, **options) -> Ran:
    """Run `tracer` with arguments; `options` are those of `Tracer`."""
    with Tracer(*arguments, **options) as process:
        try:
            out, err = process.communicate(input, timeout=300)
        except BaseException:
            process.kill()
            raise
    ended = Ran(process.returncode, out, err)
    assert "Traceback" not in ended.err, ended.err
    assert "tracer's own" not in ended.err, ended.err
    if status is not None:
        assert ended.status == status, (ended.status, ended.err, ended.out)
    return ended


@pytest.fixture
def tracer(tmp_path):
    """Run `tracer` with arguments in an empty folder."""
    return partial(run_tracer, cwd=tmp_path)
