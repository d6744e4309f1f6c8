"""A guest: QEMU without any hardware support, folders of this machine, and disks."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.kernels.debian import Kernel
from scripts.kernels.errors import CannotTest
from scripts.kernels.facts import ALIVE
from scripts.kernels.initramfs import HOST, SHARE

_BOOT_S = 300.0
"""Most seconds from the start of QEMU to the first sign of life of the guest's program."""
_PARALLEL = ("-accel", "tcg,thread=multi")
_COUNTED = ("-accel", "tcg,thread=single", "-icount", "shift=4,sleep=on,align=off")
"""An instruction takes 16 ns: then the delays of this machine are short against computing."""
CONSOLE = "console.log"
"""The file in the folder for results with all that the guest printed."""


def run(
    kernel: Kernel,
    initramfs: Path,
    disks: Mapping[str, Path | str],
    share: Path,
    limit_s: float,
    parameters: str = "",
    counted: bool = False,
) -> None:
    """Boots a kernel and waits for the end of the guest. Raises CannotTest if it does not boot.

    `disks`: images, or URLs that QEMU opens, by the serial number that the guest sees. The guest is
    ended after `limit_s`: then only a part of its results is there. `parameters`: further words of
    the kernel's command line. `counted`: the guest's clock counts its instructions while it
    computes, so that computing takes no longer on a busy machine.
    """
    made = kernel.architecture
    if shutil.which(made.qemu) is None:
        raise CannotTest(f"{made.qemu} is not installed: apt-get install {made.package}")
    # A busy machine may be too slow for the kernel's check of its timer, which then is not used.
    command = [
        *(made.qemu, *made.options, *(_COUNTED if counted else _PARALLEL)),
        *("-smp", "2", "-m", "4096"),
        *("-nographic", "-no-reboot", "-kernel", kernel.image, "-initrd", initramfs),
        *("-append", f"console={made.console} panic=-1 loglevel=4 mitigations=off no_timer_check"
        f" {parameters}"),
        *("-virtfs", f"local,path=/,mount_tag={HOST},security_model=none,readonly=on,"
        "multidevs=remap"),
        *("-virtfs", f"local,path={_escaped(share)},mount_tag={SHARE},security_model=none"),
    ]  # fmt: skip
    for name, image in disks.items():
        drive = f"file={_escaped(image)},if=none,id={name},format=raw,cache=unsafe"
        command += ["-drive", drive, "-device", f"virtio-blk-pci,drive={name},serial={name}"]
    begun = time.monotonic()
    with (
        (share / CONSOLE).open("wb") as console,
        subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            while process.poll() is None:
                passed = time.monotonic() - begun
                if passed > limit_s or (passed > _BOOT_S and not (share / ALIVE).exists()):
                    break
                time.sleep(0.5)
        finally:
            process.kill()
    if not (share / ALIVE).exists():
        raise CannotTest(f"it does not boot: {_last_line(share / CONSOLE)}")


def _escaped(path: Path | str) -> str:
    """Returns a path as a value of an option of QEMU, where commas separate values."""
    return str(path).replace(",", ",,")


def _last_line(console: Path) -> str:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.read_text(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    panics = [line for line in lines if "panic" in line]
    return (panics or lines or ["nothing was printed"])[-1][-200:]
