"""System calls of 32-bit programs, whose numbers are others."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tracer.probes.kernel import compat_syscall_names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is one for x86"),
]

BASE = 0x08048000
CODE = bytes.fromhex(
    "b80300000031db89e1ba01000000cd80"  # read(0, stack, 1)
    "bf11000000"  # mov edi, 17
    "b840000000cd80"  # getppid
    "4f75f6"  # dec edi; jnz to the call
    "b802000000cd80"  # fork
    "85c0"  # test eax, eax
    "7513"  # jnz to the parent's part
    "b814000000cd80"  # getpid
    "b801000000"
    "31dbcd80"  # exit(0)
    "90909090"
    "b807000000bbffffffff31c931d2cd80"  # waitpid(-1, 0, 0)
    "b801000000"
    "31dbcd80"  # exit(0)
)
CALLS = {"read": 1, "getppid": 17, "fork": 1, "waitpid": 1, "getpid": 1, "exit": 2}
"""Calls of the program and its child."""


def program_of_32_bits() -> bytes:
    size = 52 + 32 + len(CODE)
    ident = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, BASE + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, BASE, BASE, size, size, 5, 4096)
    return ident + header + segment + CODE


@pytest.fixture
def narrow(tmp_path):
    """The path of a 32-bit program."""
    if not compat_syscall_names():
        pytest.skip("libseccomp does not know the calls of 32-bit programs here")
    path = tmp_path / "narrow"
    path.write_bytes(program_of_32_bits())
    path.chmod(0o755)
    return path


def calls_of(trace, where="true"):
    return dict(
        trace.rows(
            "SELECT name, count(*) FROM syscalls JOIN processes USING (tid)"
            f" WHERE comm = 'narrow' AND {where} GROUP BY name"
        )
    )


def test_a_program_that_is_executed_has_names_of_its_own(record, load, narrow):
    source = f"""
import os
with open({str(narrow)!r}) as program:
    for call in ({str(narrow)!r}, program.fileno()):
        if os.fork() == 0:
            os.execve(call, ["narrow"], dict())
        os.wait()
"""
    trace = record(load(source), "-e", "syscalls")
    assert calls_of(
        trace,
        "name NOT LIKE 'exec%' AND ts > (SELECT coalesce(max(ts), 0) FROM syscalls s"
        " WHERE s.pid = syscalls.pid AND s.name LIKE 'exec%')",
    ) == {n: 2 * c for n, c in CALLS.items()}
    execs = trace.rows(
        "SELECT name, ret, dur_ns > 0 FROM syscalls"
        " WHERE name LIKE 'execv%' AND ret = 0 ORDER BY ts"
    )
    assert execs[-2:] == [("execve", 0, True), ("execveat", 0, True)]


def test_a_program_that_was_there_has_names_of_its_own(record, narrow):
    with subprocess.Popen([narrow], stdin=subprocess.PIPE) as process:
        wait_for(lambda: "read" in Path(f"/proc/{process.pid}/wchan").read_text(), "the program")
        # The recording ends with its command; the program's end comes before that.
        state = f"/proc/{process.pid}/status"
        ended = f"until grep -q '^State:.*Z' {state}; do sleep 0.02; done"
        command = ["sh", "-c", f"echo > /proc/{process.pid}/fd/0; {ended}"]
        trace = record(command, "-e", "syscalls", "-p", str(process.pid))
        assert process.wait(timeout=60) == 0
    # Its first call began before the recording.
    assert calls_of(trace) == {name: n for name, n in CALLS.items() if name != "read"}
