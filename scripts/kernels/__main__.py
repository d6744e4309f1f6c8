"""`python -m scripts.kernels`: tests the tracer on Debian's kernels; see `make test-kernels`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from scripts.kernels import machine
from scripts.kernels.boot import boot
from scripts.kernels.checks import DOCTOR
from scripts.kernels.debian import KERNELS, kernel_of
from scripts.kernels.disks import make
from scripts.kernels.errors import CannotTest
from scripts.kernels.facts import FACTS, Facts, Verdict
from scripts.kernels.recorded import Failed, Recorded, Skipped
from scripts.kernels.roots import PROJECT
from scripts.kernels.suites import ALL, CGROUPS, WAITING, Suite
from scripts.kernels.table import FAILS, OK, SKIPPED, Column, Result, lines
from tracer.probes.backends.choice import BACKENDS
from tracer.probes.errors import TracerError

_BOOT = "boots"
_SECONDS = "seconds"


def main() -> int:
    """Returns the exit status: 0 if every kernel boots and no check fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.kernels", description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"all: {' '.join(KERNELS)}")
    parser.add_argument(
        "--backends", default=",".join(BACKENDS), help="backends to record with (%(default)s)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=PROJECT / "build/kernels",
        help="folder for kernels and traces",
    )
    parser.add_argument(
        "--minutes", type=float, default=60, help="most minutes of one guest (%(default)s)"
    )
    parser.add_argument(
        "--again", action="store_true", help="boot nothing; check the last recordings again"
    )
    parser.add_argument(
        "--cgroups",
        action="store_const",
        dest="suite",
        const=CGROUPS,
        default=ALL,
        help="test cgroups of version 2 in place of everything else",
    )
    parser.add_argument(
        "--waiting",
        action="store_const",
        dest="suite",
        const=WAITING,
        help="test reads of files and kernel stacks of sleeps in place of everything else",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as a page")
    chosen = parser.parse_args()
    kernels, backends = chosen.kernels or list(KERNELS), chosen.backends.split(",")
    for name, known in [*((k, KERNELS) for k in kernels), *((b, BACKENDS) for b in backends)]:
        if name not in known:
            parser.error(f"there is no {name!r}; choose from {', '.join(known)}")
    cache = chosen.cache.absolute()
    columns = []
    for name in kernels:
        column = _tested(name, cache, chosen.suite, backends, chosen.minutes * 60, chosen.again)
        columns.append(column)
        _say(f"{name}: {'fails' if column.fails else 'passes'} after {column.seconds:.0f} s")
    table = "\n".join(lines(columns))
    sys.stdout.write(table + "\n")
    if chosen.write is not None:
        chosen.write.write_text(chosen.suite.page.format(command=_command(chosen), table=table))
    return int(any(column.fails for column in columns))


def _command(chosen: argparse.Namespace) -> str:
    """Returns the command that makes such a table."""
    words = [*chosen.kernels, *chosen.suite.options]
    if chosen.backends != ",".join(BACKENDS):
        words += ["--backends", chosen.backends]
    return "make test-kernels" + (f' KERNELS_ARGS="{" ".join(words)}"' if words else "")


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def _tested(
    name: str, cache: Path, suite: Suite, backends: list[str], limit_s: float, again: bool
) -> Column:
    """Tests one kernel, unless its last recordings are to be checked again."""
    share = cache / name / suite.results
    column = Column(name, 0.0)
    begun = time.monotonic()
    try:
        kernel = kernel_of(name, cache)
        column.kernel = kernel.release
        if not again:
            _say(f"{name}: {kernel.release} records; see {share / machine.CONSOLE}")
            disks = make(cache / name)
            job = {"backends": backends, "suite": suite.results, "doctor": suite.asks_doctor}
            boot(kernel, cache / name, share, "scripts.kernels.guest", job, disks, limit_s)
        _check(column, share, suite, backends)
    except CannotTest as error:
        column.cells = {_BOOT: {"": Result(FAILS, str(error))}}
    column.seconds = time.monotonic() - begun
    taken = share / _SECONDS
    if again and taken.exists():
        column.seconds = float(taken.read_text())
    elif share.exists():
        taken.write_text(f"{column.seconds:.0f}")
    return column


def _check(column: Column, share: Path, suite: Suite, backends: list[str]) -> None:
    """Fills a column with the results of all checks."""
    if not (share / FACTS).exists():
        raise CannotTest(f"the guest found out nothing; see {share / machine.CONSOLE}")
    facts: Facts = json.loads((share / FACTS).read_text())
    asked = (DOCTOR,) if suite.asks_doctor else ()
    column.cells = {title: {} for title in (*asked, *(check.title for check in suite.checks))}
    for backend in backends:
        recording = facts["recordings"].get(backend)
        if recording is None:
            result = Result(FAILS, f"the guest was ended before it recorded by {backend}")
            for cells in column.cells.values():
                cells[backend] = result
            continue
        error = _last(recording["error"])
        if suite.asks_doctor:
            told = _told(facts["doctor"][backend], recording["captured"], error)
            column.cells[DOCTOR][backend] = told
        if not recording["captured"]:
            outcome = SKIPPED if suite.asks_doctor else FAILS
            for check in suite.checks:
                reason = f"no recording by {backend}: {error}"
                column.cells[check.title][backend] = Result(outcome, reason)
            continue
        for title, result in _looked(share, facts, suite, backend).items():
            column.cells[title][backend] = result


def _told(verdict: Verdict, captured: bool, error: str) -> Result:
    """Returns whether `tracer doctor` told that a backend can record."""
    if verdict["ok"] == captured:
        return Result(OK)
    return Result(
        FAILS, f"it can, but: {error}" if verdict["ok"] else f"it cannot: {verdict['found']}"
    )


def _looked(share: Path, facts: Facts, suite: Suite, backend: str) -> dict[str, Result]:
    """Returns the results of the checks of one recording."""
    try:
        recorded = Recorded.open(share, facts, backend, suite.views)
    except TracerError as error:
        return {check.title: Result(FAILS, f"no tables: {error}") for check in suite.checks}
    found = {}
    with recorded.trace:
        for check in suite.checks:
            try:
                found[check.title] = Result(OK, check.look(recorded) or "")
            except Skipped as reason:
                found[check.title] = Result(SKIPPED, str(reason))
            except Failed as reason:
                found[check.title] = Result(FAILS, f"{backend}: {reason}")
    return found


def _last(error: str) -> str:
    """Returns the last line of a program's error messages."""
    return (error.splitlines() or ["no word of why"])[-1].strip()


if __name__ == "__main__":
    sys.exit(main())
