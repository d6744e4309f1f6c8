"""Shell commands that hide features of this machine, and what `doctor` says of a feature.

The fixtures `hidden` and `unable` run the commands in a mount namespace of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.conftest import Ran
from tracer.probes.backends.choice import kernel_headers
from tracer.probes.backends.ebpf import library
from tracer.probes.kernel import find_tracefs

READ_ONLY = f"mount -o remount,bind,ro {find_tracefs()}"
NO_BTF = "mount --bind EMPTY /sys/kernel/btf"
"""Without the kernel's types there are no programs of our own for system calls."""
NO_BCC = f"mount --bind EMPTY {library.folder()}"
NO_HEADERS = f"mount --bind EMPTY {kernel_headers()}"
NO_PY_SPY = f"mount --bind /dev/null {Path(sys.executable).parent / 'py-spy'}"
NO_NAMES = "mount --bind /dev/null /proc/kallsyms"
NOT_NEEDED = {
    "BTF": NO_BTF,
    "kernel headers": NO_HEADERS,
    "bcc": NO_BCC,
    "perf": "mount --bind /dev/null $(command -v perf)",
    "py-spy": f"for path in {Path(sys.executable).parent}/py-spy $(command -v py-spy);"
    " do [ ! -e $path ] || mount --bind /dev/null $path; done",
    "kernel functions": NO_NAMES,
    "Docker": "mount --bind /dev/null $(command -v docker);"
    " [ ! -S /var/run/docker.sock ] || mount --bind /dev/null /var/run/docker.sock",
}
"""Features that ftrace does without, and what hides each."""
CALLS = ("-e", "syscalls", "-o", "x.trace", "--", "true")
"""The least that is recorded, for tests that only ask by which backend."""


def checks(ran: Ran) -> dict[str, Any]:
    """Returns the checks of `doctor --json` by name."""
    return {check["name"]: check for check in ran.json["checks"]}
