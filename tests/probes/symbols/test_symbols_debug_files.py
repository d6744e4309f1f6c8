"""A stripped file gets its names from its debug file, and from no other."""

import os
import shutil

import numpy as np
import pytest

from tests.support.binaries import PROGRAM, compile_c, functions_of, needs_binutils, run
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.files import SymbolCache

pytestmark = needs_binutils


@pytest.fixture
def split(tmp_path):
    """A stripped program, its debug file, and its functions before."""
    program = compile_c(tmp_path, PROGRAM)
    functions = functions_of(program)
    debug = tmp_path / "apart" / "program.debug"
    debug.parent.mkdir()
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", "--strip-all", program)
    return program, debug, functions


def names(program, functions, root):
    with open_elf(program) as elf:
        text = elf.section(".text")
    offsets = np.array([f.address - text.address + text.offset for f in functions])
    with SymbolCache(debug_root=root) as cache:
        return cache.resolve(program, offsets), cache.problems


def place_by_build_id(program, debug, root):
    with open_elf(program) as elf:
        place = root / ".build-id" / elf.build_id[:2] / f"{elf.build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    shutil.copy(debug, place)
    return place


def wanted(functions):
    return [f.name.decode() for f in functions]


def test_without_a_debug_file_there_are_no_names(split, tmp_path):
    program, _, functions = split
    found, problems = names(program, functions, tmp_path / "nowhere")
    assert "hidden" not in found
    assert "main" not in found
    assert problems == []


def test_by_build_id(split, tmp_path):
    program, debug, functions = split
    place_by_build_id(program, debug, tmp_path / "root")
    found, problems = names(program, functions, tmp_path / "root")
    assert {"main", "hidden", "visible"} <= set(found)
    for name, function in zip(found, functions, strict=True):
        assert name in {f.name.decode() for f in functions if f.address == function.address}
    assert problems == []


def test_a_debug_file_of_another_build_is_refused(split, tmp_path):
    program, debug, functions = split
    place = place_by_build_id(program, debug, tmp_path / "root")
    other = compile_c(tmp_path, PROGRAM.replace("7", "8"), name="other")
    shutil.copy(other, place)
    found, problems = names(program, functions, tmp_path / "root")
    assert "main" not in found
    assert len(problems) == 1
    assert "another build" in problems[0]


@pytest.mark.parametrize("where", ["beside", ".debug", "root"])
def test_by_link_and_checksum(split, tmp_path, where):
    program, debug, functions = split
    run("objcopy", "--remove-section=.note.gnu.build-id", program)
    run("objcopy", f"--add-gnu-debuglink={debug}", program)
    root = tmp_path / "root"
    folder = {
        "beside": tmp_path,
        ".debug": tmp_path / ".debug",
        "root": root / tmp_path.relative_to("/"),
    }[where]
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / debug.name
    shutil.copy(debug, place)
    found, problems = names(program, functions, root)
    assert {"main", "hidden"} <= set(found)
    assert problems == []

    # One bit of the debug file that no symbol needs: the checksum is wrong.
    with place.open("r+b") as file:
        file.seek(9)
        file.write(b"\x01")
    found, problems = names(program, functions, root)
    assert "main" not in found
    assert "another build" in problems[0]


def test_a_link_to_the_file_itself_leads_nowhere(split, tmp_path):
    program, debug, functions = split
    link = debug.with_name(program.name)
    debug.rename(link)
    run("objcopy", "--remove-section=.note.gnu.build-id", program)
    run("objcopy", f"--add-gnu-debuglink={link}", program)
    found, problems = names(program, functions, tmp_path / "root")
    assert "main" not in found
    assert "another build" in problems[0]


def test_a_debug_file_that_is_a_pipe_is_not_opened(split, tmp_path):
    program, debug, functions = split
    place = place_by_build_id(program, debug, tmp_path / "root")
    place.unlink()
    os.mkfifo(place)
    found, problems = names(program, functions, tmp_path / "root")
    assert "main" not in found
    assert problems == [f"{place} is not a regular file"]


def test_a_debug_file_that_is_no_elf_file_is_named(split, tmp_path):
    program, debug, functions = split
    place = place_by_build_id(program, debug, tmp_path / "root")
    place.write_text("nothing of the sort\n" * 10)
    found, problems = names(program, functions, tmp_path / "root")
    assert "main" not in found
    assert f"the debug file of {program} is not an ELF file" in problems[0]
