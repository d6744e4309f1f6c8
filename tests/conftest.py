"""What every test may use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from probes.doctor import check, verdict

ROOT = Path(__file__).resolve().parent.parent


@cache
def why_no_kernel() -> str | None:
    """The one reason for which kernel tests cannot run here, or None."""
    findings = check()
    if not verdict(findings):
        return None
    return "; ".join(f"{f.name}: {f.found} ({f.mend})" for f in findings if not f.ok and f.fatal)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a kernel test where the kernel is out of reach, or fail it where that was forbidden."""
    if item.get_closest_marker("kernel") is None:
        return
    reason = why_no_kernel()
    if reason is None:
        return
    if os.environ.get("TRACER_REQUIRE_KERNEL") == "1":
        pytest.fail(f"TRACER_REQUIRE_KERNEL=1, but the kernel is out of reach: {reason}")
    pytest.skip(f"the kernel is out of reach: {reason}")


class Ran:
    """A finished `tracer`: status, stdout, stderr."""

    def __init__(self, ended: subprocess.CompletedProcess[str]) -> None:
        self.status = ended.returncode
        self.out = ended.stdout
        self.err = ended.stderr

    @property
    def json(self):
        """stdout as one JSON value; NaN and infinities are refused."""

        def refuse(constant):
            raise ValueError(f"{constant} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


def tracer_command(*arguments: object) -> list[str]:
    """The command line of `tracer` as this interpreter's environment has it."""
    return [sys.executable, "-c", "from tracer.cli.main import main; main()", *map(str, arguments)]


@pytest.fixture
def tracer(tmp_path):
    """Run `tracer` with arguments in an empty folder."""

    def run(*arguments, status: int | None = 0, **options) -> Ran:
        options.setdefault("cwd", tmp_path)
        ended = Ran(
            subprocess.run(
                tracer_command(*arguments),
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
                **options,
            )
        )
        assert "Traceback" not in ended.err, ended.err
        assert "tracer's own" not in ended.err, ended.err
        if status is not None:
            assert ended.status == status, (ended.status, ended.err, ended.out)
        return ended

    return run
