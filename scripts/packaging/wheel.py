"""`python -m scripts.packaging.wheel`: tests the distributions; see `make test-wheel`.

Builds the sdist and the wheel, compares them with the files that git knows, installs the wheel in a
minimal Debian, and runs the verbs there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from scripts.packaging.checks import checks
from scripts.packaging.distributions import build
from scripts.packaging.errors import CannotPackage
from scripts.packaging.sizes import sizes, table
from scripts.packaging.tree import ENVIRONMENT, debian, installed

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / "build/packaging"
_LEAST_ROW = 5 << 20


def main() -> int:
    """Returns the exit status: 0 if the distributions are whole and every check passes."""
    parser = argparse.ArgumentParser(prog="python -m scripts.packaging.wheel", description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for Debian (%(default)s)")
    parser.add_argument("--only-build", action="store_true", help="install and run nothing")
    chosen = parser.parse_args()
    cache = chosen.cache.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tree-", dir=cache) as folder:
            return _tested(cache, Path(folder), chosen.only_build)
    except CannotPackage as error:
        say(str(error))
    except KeyboardInterrupt:
        say("aborted")
    return 1


def _tested(cache: Path, folder: Path, only_build: bool) -> int:
    built = build(ROOT, cache, folder)
    for path in (built.sdist, built.wheel):
        say(f"{path.name}: {path.stat().st_size / (1 << 20):.1f} MiB, the files that git knows")
    if only_build:
        return 0
    tree = installed(debian(cache), folder / "root", built.wheel)
    sys.stdout.write("\n".join(table(sizes(tree.folder / ENVIRONMENT.strip("/")), _LEAST_ROW)))
    sys.stdout.write("\n")
    failed = 0
    for name, check in checks(tree, ROOT):
        begun = time.monotonic()
        try:
            check()
        except CannotPackage as error:
            failed += 1
            say(f"fails   {name}: {error}")
        else:
            say(f"ok      {name} ({time.monotonic() - begun:.1f} s)")
    return int(failed > 0)


def say(line: str) -> None:
    """Prints a line on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
