"""Records the same loads as root and as users with fewer rights; prints what each can record.

Run it as root, on a machine where nothing else records. It takes some minutes. It changes
kernel.perf_event_paranoid and the group of tracefs, and takes both back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.kernels.table import FAILS, OK, Column, Result, lines
from scripts.privileges import loads
from scripts.privileges.checks import CHECKS, Recorded, answer
from scripts.privileges.users import USERS, User, machine_for
from tracer.probes.backends.choice import BACKENDS, NONE
from tracer.probes.errors import TracerError
from tracer.probes.proc import read_mounts
from tracer.store.trace import Trace

ROOT = Path(__file__).resolve().parent.parent.parent
_DOCTOR, _USABLE, _MACHINE = "this user is like", "backend {}", "the machine (-a)"
_MORE = (
    (
        "own command: Python stacks (--stacks)",
        ("--stacks",),
        "SELECT CASE WHEN count(*) > 0 THEN 'ok' ELSE 'none' END FROM python_stacks",
    ),
    (
        "own command: counters (--perf-stat)",
        ("--backend", "none", "--perf-stat"),
        "SELECT count(*) FROM counters WHERE state = 'counted'",
    ),
)
"""Titles, options, and queries for the cell. The first one records events."""
_BEGIN, _END = "<!-- table -->", "<!-- end of the table -->"
_LIMIT_S = 120


def main() -> int:
    """Returns the exit status: 0 if no exact number differs."""
    parser = argparse.ArgumentParser(prog="python -m scripts.privileges", description=__doc__)
    parser.add_argument("users", nargs="*", metavar="USER", help="names of users; default: all")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    parser.add_argument(
        "--backends", default=",".join((*BACKENDS, NONE)), help="record by these (%(default)s)"
    )
    chosen = parser.parse_args()
    backends = chosen.backends.split(",")
    for name in backends:
        if name not in (*BACKENDS, NONE):
            parser.error(f"there is no backend {name!r}")
    known = {user.name: user for user in USERS}
    for name in chosen.users:
        if name not in known:
            parser.error(f"there is no user {name!r}; choose from: {'; '.join(known)}")
    columns = []
    for name in chosen.users or known:
        sys.stderr.write(f"{name}\n")
        columns.append(_tried(known[name], backends))
    table = "\n".join(lines(columns))
    sys.stdout.write(table + "\n")
    if chosen.write is not None:
        page = chosen.write.read_text()
        before, after = page.partition(_BEGIN)[0], page.partition(_END)[2]
        chosen.write.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}")
    return int(any(column.fails for column in columns))


def _tried(user: User, backends: Sequence[str]) -> Column:
    """Makes all recordings of a user."""
    begun = time.monotonic()
    column = Column(user.name, 0.0)
    column.cells = {title: {} for title in (_DOCTOR, *map(_USABLE.format, backends))}
    with machine_for(user):
        column.cells[_DOCTOR] = {"": Result(_kind(user))}
        for backend in backends:
            _record(user, backend, column)
        _others(user, column, with_events=set(backends) != {NONE})
    column.seconds = time.monotonic() - begun
    return column


def _run(user: User, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from tracer.cli.main import main; main()", *arguments]
    return subprocess.run(
        user.command(program),
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def _kind(user: User) -> str:
    with _Folder(user) as folder:
        ran = _run(user, folder, "doctor", "--json")
    said = json.loads(ran.stdout)["this_user"]
    found = re.search(r" is like (.*?):", said)
    return found[1] if found else said


class _Folder:
    """A folder of the user's own, removed at the end."""

    def __init__(self, user: User) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="tracer-privileges-"))
        self._path.chmod(0o755)
        os.chown(self._path, user.uid, user.uid)

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path)


def _program(*arguments: object) -> list[str]:
    return [sys._base_executable, "-S", "-E", loads.__file__, *map(str, arguments)]  # type: ignore[attr-defined]


def _record(user: User, backend: str, column: Column) -> None:
    """Records the loads by a backend, and fills the column's cells."""
    with _Folder(user) as folder, _cgroup() as cgroup:
        other = User("other", USERS[-1].setpriv) if user.uid == 0 else USERS[0]
        command = _program("process", folder)
        with (
            _started(user, command) as own,
            _started(other, command) as others,
            _started(other, command) as member,
        ):
            wanted = ["-p", f"{own.pid},{others.pid}"]
            if cgroup is not None:
                (cgroup / "cgroup.procs").write_text(str(member.pid))
                wanted += ["--cgroup", str(cgroup)]
            if backend != NONE:
                wanted += ["-e", "default,sched,page_cache"]
            try:
                ran = _run(
                    user,
                    folder,
                    *("record", "--backend", backend, *wanted, "-o", "x.trace", "--"),
                    *_program("command", folder),
                )
            finally:
                (folder / loads.GO).touch()  # a command that did not run has not done so
        column.cells[_USABLE.format(backend)] = {"": _outcome(ran)}
        if ran.returncode:
            return
        said: dict[str, Any] = json.loads((folder / "said.json").read_text())
        pids = {"own": own.pid, "other": others.pid, "member": member.pid}
        with Trace(folder / "x.trace") as trace:
            recorded = Recorded(trace, said, pids)
            for check in CHECKS:
                try:
                    result = answer(check, recorded)
                except TracerError as error:
                    result = Result(FAILS, str(error))
                if result is not None:
                    column.cells.setdefault(check.title, {})[backend] = result


@contextlib.contextmanager
def _cgroup() -> Iterator[Path | None]:
    """Makes a cgroup; None if no hierarchy is mounted."""
    mounts = [mount for mount in read_mounts() if mount.kind in (b"cgroup2", b"cgroup")]
    if not mounts:
        yield None
        return
    first = min(mounts, key=lambda mount: mount.kind != b"cgroup2")
    folder = Path(os.fsdecode(first.path)) / f"tracer-privileges-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        while (folder / "cgroup.procs").read_text():
            time.sleep(0.05)
        folder.rmdir()


def _started(user: User, command: Sequence[str]) -> subprocess.Popen[bytes]:
    # `exec` all the way down, so the pid is that of the load.
    return subprocess.Popen(user.command(command))


def _others(user: User, column: Column, with_events: bool) -> None:
    """Makes the recordings that other options need."""
    if with_events:
        with _Folder(user) as folder:
            ran = _run(user, folder, "record", "-a", "-e", "syscalls", "-d", "0.5", "-o", "x.trace")
            column.cells[_MACHINE] = {"": _outcome(ran)}
    for title, options, query in _MORE if with_events else _MORE[1:]:
        with _Folder(user) as folder:
            command = _program("command", folder)
            ran = _run(user, folder, "record", *options, "-o", "x.trace", "--", *command)
            outcome = _outcome(ran)
            if not ran.returncode:
                with Trace(folder / "x.trace") as trace:
                    outcome = Result(str(trace.connection.execute(query).fetchall()[0][0]))
            column.cells[title] = {"": outcome}


def _outcome(ran: subprocess.CompletedProcess[str]) -> Result:
    if not ran.returncode:
        return Result(OK)
    words = ran.stderr.strip().splitlines() or ["no word of why"]
    return Result("no", words[-1].removeprefix("tracer: "))


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("scripts.privileges becomes other users, so it needs root: sudo ...")
    sys.exit(main())
