"""Names in /proc are anybody's: none of them ends a line, or a field, that is not its own."""

import mmap
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.dead_file_system import answers, dead_file_system  # noqa: F401 a fixture
from tracer.probes.kernel import find_tracefs
from tracer.probes.proc import lines, parse_maps, read_maps, read_mounts, runs_32_bits

ODD = "a\x0b\x0c\x1c\r\x85 \u2028b c\\012d"
"""Characters that Python takes for ends of lines or blanks, and text that looks like an escape."""


def test_a_mapped_file_is_one_line_whatever_it_is_called(tmp_path):
    path = tmp_path / f"{ODD}\nnext".replace("\\012", "")
    path.write_bytes(b"x" * 4096)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ):
        before = read_maps()
    found = [mapped for mapped in before if mapped.path.startswith(os.fsencode(tmp_path))]
    assert [mapped.path for mapped in found] == [os.fsencode(path)]
    status = path.stat()
    assert (found[0].inode, found[0].end - found[0].start) == (status.st_ino, 4096)
    assert not found[0].executable
    assert any(mapped.executable and mapped.path == b"[vdso]" for mapped in before)


def test_a_line_that_is_not_a_mapping_is_left_out():
    good = b"7f00-7f10 r-xp 00001000 fe:00 123                     /usr/lib/x.so (deleted)\n"
    (only,) = parse_maps(
        b"\n" + good + b"7f00-7f10 r-xp 1000 fe:00\nxx-7f10 r-xp 0 0:0 1 /x\n"
        b"7f00-7f10 r-xp 0 0:0 99999999999999999999 /x\n" + b"7f00"
    )
    assert only.path == b"/usr/lib/x.so (deleted)"
    assert (only.start, only.end, only.offset, only.device, only.inode) == (
        0x7F00, 0x7F10, 0x1000, (0xFE, 0), 123,
    )  # fmt: skip
    assert parse_maps(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0\n")[0].path == b""


def test_lines_end_at_line_feeds_alone(tmp_path):
    (tmp_path / "cgroup").write_bytes(
        f"1:cpu:/{ODD}\n0::/\udcff\n".encode("utf-8", "surrogateescape")
    )
    assert lines(tmp_path / "cgroup") == [f"1:cpu:/{ODD}", "0::/\udcff"]


def test_a_mount_cannot_pass_for_another_one(tmp_path):
    """Whoever mounts may call what is mounted anything: here, a second line."""
    if os.geteuid() != 0:
        do_without("mounts", "TRACER_REQUIRE_KERNEL", "it takes root to mount")
    folder = tmp_path / "place\rwith ends"
    folder.mkdir()
    # Blanks of other kinds, since the kernel escapes its own.
    source = "x\x0bnodev\x1f/evil\x1ftracefs\x1frw\x1f0\x1f0"
    before = find_tracefs()
    subprocess.run(["mount", "-t", "tmpfs", source, str(folder)], check=True)
    try:
        assert find_tracefs() == before
        (mine,) = [mount for mount in read_mounts() if mount.path == os.fsencode(folder)]
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert (mine.kind, mine.source) == (b"tmpfs", source.encode())


@pytest.mark.parametrize("line", ["", "x", "1 2 3:4", "a b 0:1 / / rw - x y z", "1 2 0:1 / /p rw"])
def test_a_line_that_is_not_a_mount_is_left_out(tmp_path, line):
    (tmp_path / "mountinfo").write_text(f"{line}\n")
    assert read_mounts(tmp_path / "mountinfo") == []


def test_a_program_whose_file_system_never_answers_is_told_without_it(dead_file_system):  # noqa: F811
    dead = dead_file_system(Path(shutil.which("cat")).read_bytes(), "cat")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([dead.path], **pipes) as process:
        process.stdin.write(b"all of it is in memory\n")
        process.stdin.flush()
        process.stdout.readline()
        dead.dies()
        assert answers(runs_32_bits, process.pid) == [False]
        dead.lives()
        process.kill()
