"""Small programs made with gcc, and what binutils say of any program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

needs_binutils = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "as", "ld", "readelf", "objcopy", "strip"))),
    reason="gcc and binutils are not installed (scripts/setup.sh installs them)",
)

PROGRAM = """
int counter = 3;
static int __attribute__((noinline)) hidden(int x) { return x * 7 + counter; }
int __attribute__((noinline)) visible(int x) { return hidden(x) + 1; }
int __attribute__((weak)) _weak_alias(int x) __attribute__((alias("visible")));
int main(int argc, char **argv) { return visible(argc) == 11; }
"""


def run(*command: object) -> str:
    """stdout of a command that must succeed; bytes that are no UTF-8 as surrogates."""
    ended = subprocess.run(list(map(str, command)), capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    return ended.stdout.decode("utf-8", "surrogateescape")


def compile_c(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """A program of one C file."""
    code = folder / f"{name}.c"
    code.write_text(source)
    program = folder / name
    run("gcc", "-O1", "-Wl,--build-id", *flags, "-o", program, code)
    return program


def assemble(folder: Path, source: str, *, bits: int = 64, link: tuple[str, ...] = ()) -> Path:
    """A program of one assembler file, without the C library."""
    code = folder / "program.s"
    code.write_text(source)
    run("as", f"--{bits}", "-o", folder / "program.o", code)
    program = folder / "program"
    emulation = "elf_x86_64" if bits == 64 else "elf_i386"
    run("ld", "-m", emulation, *link, "-o", program, folder / "program.o")
    return program


class Function(NamedTuple):
    """A symbol that `readelf` calls a function; the name without its version."""

    address: int
    size: int
    binding: str
    name: bytes


def functions_of(path: Path, *, dynamic: bool = False) -> list[Function]:
    """Every sized function that is defined in a file, by readelf."""
    found = []
    # readelf says @ for versions, and "[<other>: 88]" in between
    pattern = re.compile(
        r"\s*\d+:\s+([0-9a-f]+)\s+(\d+|0x[0-9a-f]+)\s+(?:FUNC|IFUNC)\s+(\w+)\s+\w+\s+"
        r"(?:\[.*?\]\s+)?(\d+)\s(.*)"
    )
    # Without --unicode=hex, readelf cuts letters of several bytes in two.
    which = "--dyn-syms" if dynamic else "-s"
    for line in run("readelf", "-W", "--unicode=hex", which, path).split("\n"):
        match = pattern.fullmatch(line) if "FUNC" in line else None
        if match and int(match[2], 0):
            raw = match[5].strip().partition("@")[0].encode("utf-8", "surrogateescape")
            if b"<" in raw:
                raw = re.sub(
                    rb"<0x([0-9a-f]+)>", lambda letter: bytes.fromhex(letter[1].decode()), raw
                )
            found.append(Function(int(match[1], 16), int(match[2], 0), match[3], raw))
    return found
