"""A process whose command line has 384 MiB: any process may place its own anywhere it wants."""

from __future__ import annotations

import subprocess
import sys

import pytest

BYTES = 384 << 20
"""Not more: other programs read the command lines of all processes."""
NAME = "containerd-shim"
"""The longest name that the kernel keeps: for such a name psutil reads the command line, too."""

_SOURCE = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_uint64
size = int(sys.argv[1])
args = ctypes.c_void_p(), ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long()
start = libc.mmap(*args)  # private, anonymous, without swap space reserved
told = open("/proc/self/stat").read().rpartition(")")[2].split()
code, end_code, stack, data, end_data, brk = (int(told[n - 3]) for n in (26, 27, 28, 45, 46, 47))
environment = int(told[50 - 3]), int(told[51 - 3])
# struct prctl_mm_map: include/uapi/linux/prctl.h
wanted = struct.pack("=12QII", code, end_code, data, end_data, brk, libc.sbrk(0), stack,
                     start, start + size, *environment, 0, 0, 0xFFFFFFFF)
failed = libc.prctl(35, 14, wanted, ctypes.c_ulong(len(wanted)), 0)  # PR_SET_MM, PR_SET_MM_MAP
libc.prctl(15, sys.argv[2].encode())  # PR_SET_NAME
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def long_command():
    """The pid of the process."""
    command = [sys.executable, "-S", "-E", "-c", _SOURCE, str(BYTES), NAME]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        if process.stdout.readline() != b"0\n":
            pytest.skip("this kernel has no PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)")
        yield process.pid
        process.stdin.close()
