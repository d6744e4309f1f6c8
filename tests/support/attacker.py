"""A real second user, who acts while root works for it, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534
SECRET = "root:$6$not for everybody"
BY_SUDO = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}


@pytest.fixture
def place():
    """A folder that everybody may pass through, with `theirs`, which is the attacker's."""
    folder = Path(tempfile.mkdtemp(prefix="tracer-test-"))
    folder.chmod(0o755)
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", NOBODY, NOBODY)
    (folder / "root's").mkdir(mode=0o700)
    (folder / "root's/secret").write_text(SECRET)
    (folder / "root's/secret").chmod(0o600)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def attack(place):
    """Run a shell command as the attacker, in its folder; returns whether it succeeded."""

    def run(script: str) -> bool:
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        ended = subprocess.run(
            [*command, "sh", "-c", script], cwd=place / "theirs", capture_output=True, check=False
        )
        return ended.returncode == 0

    return run
