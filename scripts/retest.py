"""Runs the tests that the last `make test` saw failing once more, alone. Called by CI.

Kernel, Docker and browser tests observe the one live machine, on which anything else may run at
that moment. A fault of ours fails a test twice; another's work seldom does. Nothing is tried again
if a test failed that observes only its own input, or if more than MOST tests failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
OF_THE_MACHINE = ("tests/kernel/", "tests/docker/", "tests/browser/")
MOST = 5


def say(words: str) -> None:
    """Prints a line at once, before what pytest prints next."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> int:
    """Returns the exit status: 0 if every test that failed passes now."""
    try:
        failed = sorted(json.loads(FAILED.read_text()))
    except (FileNotFoundError, ValueError):
        failed = []
    if not failed:
        say("No test failed: the tests could not be run.")
        return 1
    if len(failed) > MOST or not all(name.startswith(OF_THE_MACHINE) for name in failed):
        say(f"{len(failed)} failed tests are not tried again.")
        return 1
    say("\n  ".join(["Failed beside other tests, now tried alone:", *failed]))
    command = [sys.executable, "-m", "pytest", "--numprocesses", "0", *failed]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    say("They passed alone." if status == 0 else "A test failed twice.")
    return status


if __name__ == "__main__":
    sys.exit(main())
