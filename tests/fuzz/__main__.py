"""`python -m tests.fuzz`: inputs by chance for all that reads what others made; see `make fuzz`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to run; all without")
    parser.add_argument("--minutes", type=float, help="how long to run each target")
    parser.add_argument("--inputs", type=int, help="how many inputs of each target to run")
    parser.add_argument("--seed", type=int, default=0, help="another number: other inputs")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="folder to keep")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this input alone")
    parser.add_argument("--list", action="store_true", help="say what each target reads")
    chosen = parser.parse_args()
    # Compiled loops that check every index they use, kept apart from those that do not.
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
