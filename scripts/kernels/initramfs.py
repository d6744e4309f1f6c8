"""The first root of a guest: busybox, modules, and a script that goes on to the real root."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from scripts.kernels.debian import Kernel
from scripts.kernels.facts import SHARED
from scripts.kernels.modules import Modules
from scripts.kernels.roots import Root

NEEDED = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "overlay")
"""Modules without which no guest starts."""
USEFUL = ("crc32c_generic", "crc32c_intel", "ext4", "xfs", "btrfs", "loop")
"""Modules that the tests use where the kernel has them. Some kernels compute CRC-32C by
themselves."""
HOST, SHARE = "host", "share"
"""Tags of the file systems that the guest gets from this machine: its root, and the folder for
results."""

_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host /over /new
$b mount -t devtmpfs none /dev
for module in /modules/*; do
    $b insmod $module || $b echo "$module cannot be loaded"
done
p9=trans=virtio,version=9p2000.L,msize=1048576
$b mount -t 9p -o ro,$p9,cache=loose {host} /host
$b mount -t tmpfs none /over
$b mkdir /over/upper /over/work
$b mount -t overlay -o lowerdir=/host{root},upperdir=/over/upper,workdir=/over/work none /new
cd /new && $b mkdir -p dev proc run sys tmp && cd /
{shared_folders}$b mount -t proc none /new/proc
$b mount -t sysfs none /new/sys
$b mount -t tracefs none /new/sys/kernel/tracing
$b mount -t bpf none /new/sys/fs/bpf
$b mount -t cgroup2 none /new/sys/fs/cgroup
$b mount --move /dev /new/dev
$b mkdir -p /new/dev/shm
$b mount -t tmpfs none /new/dev/shm
$b mount -t tmpfs none /new/run
$b mkdir -p /new{shared}
$b mount -t 9p -o rw,$p9 {share} /new{shared}
exec $b switch_root /new /bin/sh -c {command}
"""


_SHARED_FOLDER = """\
$b mkdir -p {new}
$b mount -o bind {host} {new}
"""


def write(
    path: Path,
    kernel: Kernel,
    root: Root,
    command: Sequence[str],
    folder: Path,
    more: Sequence[str] = (),
) -> None:
    """Writes an initramfs in which a kernel runs a command in a folder of a root.

    The command sees that root with all changes kept in memory. It is the guest's first process: the
    guest ends when the command does. `more`: modules that are loaded, too, where the kernel has
    them.
    """
    modules = Modules(kernel.modules)
    names = [*NEEDED, *(name for name in (*USEFUL, *more) if modules.has(name))]
    line = f"cd {shlex.quote(str(folder))} && exec {shlex.join(command)}"
    shared = [
        _SHARED_FOLDER.format(new=shlex.quote(f"/new{place}"), host=shlex.quote(f"/host{place}"))
        for place in root.shared
    ]
    init = _INIT.format(
        host=HOST,
        share=SHARE,
        shared=SHARED,
        root=shlex.quote(str(root.folder)),
        shared_folders="".join(shared),
        command=shlex.quote(line),
    )
    files = {"bin/busybox": kernel.busybox.read_bytes(), "init": init.encode()}
    for number, (name, content) in enumerate(modules.load_order(names).items()):
        files[f"modules/{number:02}-{name}.ko"] = content
    path.write_bytes(archive(files))


def archive(files: dict[str, bytes]) -> bytes:
    """Returns a cpio archive of executable files and the folders that they lie in.

    The format is `newc`: Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    folders = {str(parent): None for name in files for parent in reversed(Path(name).parents)}
    folders.pop(".", None)
    parts = [_entry(name, stat.S_IFDIR | 0o755, b"", 2) for name in folders]
    parts += [_entry(name, stat.S_IFREG | 0o755, content, 1) for name, content in files.items()]
    return b"".join([*parts, _entry("TRAILER!!!", 0, b"", 1)])


def _entry(name: str, mode: int, content: bytes, links: int) -> bytes:
    numbers = (0, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + "".join(f"{number:08X}" for number in numbers).encode()
    return _padded(head + name.encode() + b"\0") + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)
