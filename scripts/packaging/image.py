"""`python -m scripts.packaging.image`: makes a container image of the tracer; see `make image`.

The image is a minimal Debian with the wheel in it, given to the Docker daemon without a registry.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.packaging.distributions import build
from scripts.packaging.errors import CannotPackage
from scripts.packaging.tree import ENVIRONMENT, PATH, debian, installed
from scripts.packaging.wheel import CACHE, ROOT, say
from tracer.version import VERSION

FOLDER = "/out"
"""Working directory in the image: a folder of the host is mounted there."""
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/log", "var/lib/apt/lists")
_CHANGES = (
    f'ENTRYPOINT ["{ENVIRONMENT}/bin/tracer"]',
    'CMD ["--help"]',
    f"ENV PATH={PATH}",
    "ENV LANG=C.UTF-8",
    f"WORKDIR {FOLDER}",
)


def main() -> int:
    """Returns the exit status: 0 if the daemon has the image."""
    parser = argparse.ArgumentParser(prog="python -m scripts.packaging.image", description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for Debian (%(default)s)")
    parser.add_argument("--tag", default=f"traintrace:{VERSION}", help="name (%(default)s)")
    parser.add_argument(
        "--extras", default="stacks,studies", metavar="A,B", help="extras (%(default)s)"
    )
    parser.add_argument(
        "--packages", default="", metavar="A,B", help="Debian packages, such as linux-perf"
    )
    chosen = parser.parse_args()
    cache = chosen.cache.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        if shutil.which("docker") is None:
            raise CannotPackage("there is no docker; apt-get install docker.io")
        with tempfile.TemporaryDirectory(prefix="tree-", dir=cache) as folder:
            wheel = build(ROOT, cache, Path(folder)).wheel
            base = debian(cache, _words(chosen.packages))
            tree = installed(base, Path(folder) / "root", wheel, _words(chosen.extras))
            say(f"{chosen.tag}: {_imported(tree.folder, chosen.tag)}")
    except CannotPackage as error:
        say(str(error))
    except KeyboardInterrupt:
        say("aborted")
    else:
        return 0
    return 1


def _words(listed: str) -> list[str]:
    return [word for word in listed.split(",") if word]


def _imported(folder: Path, tag: str) -> str:
    """Gives the folder to the daemon as an image. Returns the image's id."""
    for name in _UNUSED:
        shutil.rmtree(folder / name, ignore_errors=True)
    archive = ["tar", "--numeric-owner", "--sort=name", "-C", str(folder), "-c", "."]
    changes = [word for change in _CHANGES for word in ("--change", change)]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as writing:
        done = subprocess.run(
            ["docker", "import", *changes, "-", tag],
            stdin=writing.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode or writing.returncode:
        raise CannotPackage(f"docker import failed: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
