"""`python -m tests.fuzz`: random inputs for all readers of foreign data; see `make fuzz`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="targets to run; default: all")
    parser.add_argument("--minutes", type=float, help="time to run each target")
    parser.add_argument("--inputs", type=int, help="number of inputs to run of each target")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    parser.add_argument(
        "--findings", type=Path, default=Path("findings"), help="folder for the inputs of findings"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run only this input")
    parser.add_argument("--list", action="store_true", help="list the targets")
    chosen = parser.parse_args()
    # Compiled loops that check each index, in a cache of their own.
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".venv" / "checked-loops"))

    from tests.fuzz.driver import fuzz
    from tests.fuzz.target import every_target

    known = every_target()
    if wrong := [name for name in chosen.targets if name not in known]:
        parser.error(f"there is no target {wrong[0]}; known: {', '.join(known)}")
    if chosen.list:
        for one in known.values():
            print(f"{one.name:18} {one.doc.splitlines()[0]}")
        return 0
    data = None if chosen.replay is None else chosen.replay.read_bytes()
    if data is not None and len(chosen.targets) != 1:
        parser.error("--replay needs the one target that reads it")
    minutes = chosen.minutes if chosen.minutes or chosen.inputs else 1.0
    found = 0
    for name in chosen.targets or known:
        seconds = None if minutes is None else minutes * 60
        report = fuzz(known[name], chosen.seed, chosen.inputs, seconds, chosen.findings, data)
        print(report, flush=True)
        for place, count in report.kinds.items():
            print(f"    {count:6} {place}", flush=True)
        found += len(report.findings)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
