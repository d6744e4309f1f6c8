"""Root writes for the caller of sudo with that user's id, group and further groups.

The user and its groups are real: the programs run where other files lie over /etc/passwd and
/etc/group.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attacker import NOBODY

USER, OWN_GROUP, TEAM, OTHERS = 47_001, 47_002, 47_003, 47_004
"""A user who is one of the group TEAM, and not of OTHERS."""
ROOTS = [0, OTHERS]
"""The further groups of root's own process."""

LENET = Path(__file__).parents[3] / "fixtures/lenet.trace"
WRITE = """
import sys
from pathlib import Path
from tracer.store.files import as_invoking_user, write_whole
with as_invoking_user():
    write_whole(Path(sys.argv[1]), b"1")
"""
SAID = """
import ctypes, json, os, threading
from tracer.store.files import as_invoking_user
libc = ctypes.CDLL(None)
told = {}
def rights(): return [libc.setfsuid(-1), libc.setfsgid(-1), os.getgroups()]
def tell(name): told[name] = rights()
begin, end = threading.Event(), threading.Event()
def other():
    begin.wait()
    tell("another thread")
    end.set()
beside = threading.Thread(target=other)
beside.start()
tell("before")
try:
    with as_invoking_user():
        tell("in the block")
        with as_invoking_user():
            pass
        tell("after an inner block")
        begin.set()
        end.wait()
        raise OSError
except OSError:
    tell("after an error")
beside.join()
print(json.dumps(told))
"""

NOT_READABLE = """
import sys
from pathlib import Path
from tracer.probes.errors import PermissionMissing
from tracer.store.files import writing
sys.path.insert(0, sys.argv[1])
try:
    with writing(Path("x")):
        import only_roots
except PermissionMissing as error:
    print(error)
"""
IMPORTED = """
import ctypes, json, sys
libc = ctypes.CDLL(None)
imported = []
def look(event, found):
    if event == "import" and libc.setfsuid(-1) != 0: imported.append(found[0])
sys.addaudithook(look)
from tracer.cli.main import main
try:
    main()
finally:
    print(json.dumps(imported))
"""


@pytest.fixture
def by_sudo(tmp_path):
    """Run a program as root does that the user has called by sudo."""
    (tmp_path / "passwd").write_text(
        f"root:x:0:0::/root:/bin/sh\nann:x:{USER}:{OWN_GROUP}::/:/bin/sh\n"
    )
    (tmp_path / "group").write_text(f"ann:x:{OWN_GROUP}:\nteam:x:{TEAM}:root,ann\n")

    def run(source: str, *arguments: object, user: int = USER) -> subprocess.CompletedProcess[str]:
        groups = ",".join(map(str, ROOTS))
        program = [sys.executable, "-c", source, *map(str, arguments)]
        script = " && ".join(
            [f"mount --bind {shlex.quote(str(tmp_path / name))} /etc/{name}"
             for name in ("passwd", "group")]
            + [f"exec setpriv --groups {groups} {shlex.join(program)}"]
        )  # fmt: skip
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            env={**os.environ, "SUDO_UID": str(user), "SUDO_GID": str(OWN_GROUP)},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def folder(place: Path, group: int) -> Path:
    """A folder of root's in which the group may write, and nobody else."""
    made = place / "shared"
    made.mkdir()
    os.chown(made, 0, group)
    made.chmod(0o775)
    return made


@pytest.mark.parametrize("group", ROOTS)
def test_a_group_of_roots_alone_gives_the_user_no_right_to_write(place, by_sudo, group):
    ran = by_sudo(WRITE, folder(place, group) / "x")
    assert "PermissionError" in ran.stderr
    assert not (place / "shared/x").exists()


def test_a_further_group_of_the_user_gives_the_right_to_write(place, by_sudo):
    ran = by_sudo(WRITE, folder(place, TEAM) / "x")
    assert ran.returncode == 0, ran.stderr
    status = (place / "shared/x").stat()
    assert (status.st_uid, status.st_gid) == (USER, OWN_GROUP)


def test_only_the_thread_of_the_block_has_the_users_rights_and_only_until_its_end(by_sudo):
    ran = by_sudo(SAID)
    assert ran.returncode == 0, ran.stderr
    theirs, roots = [USER, OWN_GROUP, [OWN_GROUP, TEAM]], [0, 0, ROOTS]
    assert json.loads(ran.stdout) == {
        "before": roots,
        "in the block": theirs,
        "after an inner block": theirs,
        "another thread": roots,
        "after an error": roots,
    }


def test_a_user_without_a_name_has_the_group_of_sudo_alone(by_sudo):
    ran = by_sudo(SAID, user=NOBODY)
    assert json.loads(ran.stdout)["in the block"] == [NOBODY, OWN_GROUP, [OWN_GROUP]]


@pytest.mark.parametrize("format", ["perfetto", "chrome", "csv", "parquet"])
def test_an_export_needs_no_module_of_python_that_the_user_may_not_read(place, by_sudo, format):
    """Python may lie in a folder of root's."""
    output = folder(place, TEAM) / "x"
    ran = by_sudo(IMPORTED, "export", LENET, "--format", format, "-o", output)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
    made = [output, *output.glob("*")]
    assert {path.stat().st_uid for path in made} == {USER}
    assert len(made) > 10 or output.is_file()


def test_a_module_that_the_user_may_not_read_is_named_with_the_mend(place, by_sudo):
    (place / "root's/only_roots.py").touch()
    ran = by_sudo(NOT_READABLE, place / "root's")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"user {USER} may not read the Python module only_roots, or it")
