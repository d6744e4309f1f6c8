"""`make test-kernels` without a kernel: the parts that prepare a guest, and the table."""

from __future__ import annotations

import io
import lzma
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.kernels import initramfs
from scripts.kernels.architectures import ARCHITECTURES
from scripts.kernels.checks import DOCTOR
from scripts.kernels.debian import Kernel, kernel_of
from scripts.kernels.errors import CannotTest
from scripts.kernels.initramfs import NEEDED, USEFUL, archive
from scripts.kernels.modules import Modules
from scripts.kernels.roots import PROJECT, Root, root_of
from scripts.kernels.suites import ALL, CGROUPS, WAITING
from scripts.kernels.table import FAILS, OK, SKIPPED, Column, Result, lines


def listed(content):
    """Returns the names, modes and contents in a cpio archive of the kind `newc`."""
    read, found = io.BytesIO(content), []

    def take(size):
        part = read.read(size)
        read.seek(-read.tell() % 4, io.SEEK_CUR)
        return part

    while True:
        head = read.read(110)
        assert head[:6] == b"070701"
        fields = [int(head[at : at + 8], 16) for at in range(6, 110, 8)]
        name = read.read(fields[11])[:-1].decode()
        read.seek(-read.tell() % 4, io.SEEK_CUR)
        if name == "TRAILER!!!":
            return found
        found.append((name, oct(fields[1]), take(fields[6])))


def test_an_archive_has_folders_before_the_files_in_them():
    found = listed(archive({"init": b"#!", "a/b/c": b"12345"}))
    assert found == [
        ("a", "0o40755", b""),
        ("a/b", "0o40755", b""),
        ("init", "0o100755", b"#!"),
        ("a/b/c", "0o100755", b"12345"),
    ]


@pytest.fixture
def modules(tmp_path, load_module):
    """Three modules, the last of which needs the others; one is compressed, one is built in."""
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "lib-crc.ko").write_bytes(load_module(""))
    (folder / "journal.ko.xz").write_bytes(lzma.compress(load_module("lib-crc")))
    (folder / "disk.ko").write_bytes(load_module("journal,lib-crc,core"))
    (tmp_path / "modules.builtin").write_text("kernel/core/core.ko\n")
    return Modules(tmp_path)


@pytest.fixture
def load_module(tmp_path):
    """Makes an object file like a kernel module that depends on others."""

    def make(depends):
        source, made = tmp_path / "module.c", tmp_path / "module.o"
        source.write_text(
            'static const char info[] __attribute__((section(".modinfo"), used)) = '
            f'"license=GPL\\0depends={depends}\\0name=x";\n'
        )
        subprocess.run(["gcc", "-c", "-o", made, source], check=True)
        return made.read_bytes()

    return make


def test_a_module_comes_after_those_that_it_needs(modules):
    assert list(modules.load_order(["disk"])) == ["lib_crc", "journal", "disk"]
    assert modules.load_order(["core"]) == {}
    assert modules.has("core") and modules.has("lib_crc") and not modules.has("xfs")


def test_an_unknown_module_is_an_error(modules):
    with pytest.raises(CannotTest, match="no module xfs"):
        modules.load_order(["xfs"])


def test_the_table_names_backends_that_differ_and_numbers_each_reason_once():
    every = {backend: Result(OK) for backend in ("ftrace", "perf")}
    skipped = {backend: Result(SKIPPED, "no module xfs") for backend in every}
    old = Column("5.10", 61.3, {"calls": every, "xfs": skipped})
    new = Column("7.2", 9.8, {"calls": {**every, "perf": Result(FAILS, "perf: 3, not 4")}})
    assert lines([old, new]) == [
        "| check   | 5.10        | 7.2                       |",
        "| ------- | ----------- | ------------------------- |",
        "| calls   | ok          | ok ftrace; FAILS perf [1] |",
        "| xfs     | skipped [2] | -                         |",
        "| seconds | 61          | 10                        |",
        "",
        "1. perf: 3, not 4",
        "2. no module xfs",
    ]
    assert not old.fails
    assert new.fails


def test_a_kernel_without_any_result_fails():
    assert Column("6.1", 1.0).fails


@pytest.fixture
def foreign(modules, tmp_path):
    """A kernel of an architecture that is not this machine's; all modules are built in."""
    built_in = "".join(f"kernel/{name}.ko\n" for name in (*NEEDED, *USEFUL))
    (tmp_path / "modules.builtin").write_text(built_in)
    (architecture,) = (known for known in ARCHITECTURES.values() if not known.is_here)
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF")
    return Kernel(architecture, "sid", "6.1", tmp_path / "vmlinuz", tmp_path, tmp_path, busybox)


def test_a_guest_of_another_architecture_sees_shared_folders_in_a_root_of_its_own(
    foreign, tmp_path
):
    shared = tmp_path / "a project"
    root = Root(tmp_path / "guest", Path("/usr/bin/python3"), Path("/opt"), (shared,))
    initramfs.write(tmp_path / "initramfs", foreign, root, ["true"], shared)
    found = {name: content for name, _, content in listed((tmp_path / "initramfs").read_bytes())}
    assert list(found) == ["bin", "bin/busybox", "init"]
    script = found["init"].decode()
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    lines = script.splitlines()
    (overlay,) = (line for line in lines if "-t overlay" in line)
    assert f"lowerdir=/host{tmp_path}/guest,upperdir=/over/upper" in overlay
    assert f"$b mount -o bind '/host{shared}' '/new{shared}'" in lines
    assert shlex.split(shlex.split(lines[-1])[-1]) == ["cd", str(shared), "&&", "exec", "true"]


def test_a_guest_of_this_architecture_has_the_root_of_this_machine(tmp_path):
    (architecture,) = (known for known in ARCHITECTURES.values() if known.is_here)
    place = tmp_path / "x"
    kernel = Kernel(architecture, "sid", "6.1", place, place, place, place)
    root = root_of(kernel, place)
    assert (root.folder, root.shared, place.exists()) == (Path("/"), (), False)


def test_a_kernel_that_was_unpacked_in_part_is_an_error_with_the_folder_to_remove(tmp_path):
    (tmp_path / "sid/root/usr/lib/modules/7.2/kernel").mkdir(parents=True)
    (tmp_path / "sid/unpacked").touch()
    with pytest.raises(CannotTest, match=f"built-in modules: remove {tmp_path}/sid$"):
        kernel_of("sid", tmp_path)


@pytest.mark.parametrize(
    ("suite", "page"), [(ALL, "kernels.md"), (CGROUPS, "cgroups.md"), (WAITING, "waiting.md")]
)
def test_a_page_has_the_words_of_its_suite_and_a_row_for_each_check(suite, page):
    text = (PROJECT / "docs" / page).read_text()
    command = next(line for line in text.splitlines() if line.startswith("    make"))
    before, _ = suite.page.format(command=command.strip(), table="|").split("|", 1)
    assert text.startswith(before)
    assert set(suite.options) <= {*re.findall(r"--\w+", command)}
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    titles = [*([DOCTOR] if suite.asks_doctor else []), *(check.title for check in suite.checks)]
    assert rows == ["check", rows[1], *titles, "seconds"]
