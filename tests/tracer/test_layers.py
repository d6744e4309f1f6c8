"""The folders of the host in which a container's files lie, and what is found there."""

import os
import shutil

import numpy as np
import pytest

from tests.support.binaries import PROGRAM, compile_c, functions_of, needs_binutils
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.mappings import MappedFile
from tracer.probes.symbols.resolver import Resolver
from tracer.store.layers import Layers

OVERLAY = (0, 99)


def container(**facts):
    return {"id": "a" * 64, "name": "a", "image": "i", "pid": 0, **facts}


def test_layers_come_from_the_uppermost_to_the_lowest_each_once():
    two = [container(upper="/u1", lower=["/l2", "/l1"]), container(upper="/u2", lower=["/l1"])]
    places = Layers(two).places(MappedFile("/opt/a", OVERLAY, 7))
    assert places == [(folder, "/opt/a") for folder in ("/u1", "/l2", "/l1", "/u2")]


def test_a_mounted_folder_holds_what_is_below_its_place():
    mounts = [
        {"type": "bind", "source": source, "path": path, "writable": True}
        for path, source in (("/data", "/srv/d"), ("/dat", "/srv/other"), ("/x", "relative"))
    ]
    layers = Layers([container(mounts=mounts)])
    assert layers.places(MappedFile("/data/a/b.so", (8, 1), 7)) == [("/srv/d", "a/b.so")]
    assert layers.places(MappedFile("/data", (8, 1), 7)) == []
    assert layers.places(MappedFile("/x/a", (8, 1), 7)) == []


def test_folders_that_are_not_there_are_none():
    nothing = [container(), container(merged=None, upper=None, lower=["relative"])]
    assert Layers(nothing).places(MappedFile("/opt/a", OVERLAY, 7)) == []


@pytest.fixture
def image(tmp_path):
    """An image's layer with the program /opt/program; the file, and an offset in `hidden`."""
    layer = tmp_path / "layer"
    (layer / "opt").mkdir(parents=True)
    program = layer / "opt/program"
    shutil.move(compile_c(tmp_path, PROGRAM), program)
    function = next(f for f in functions_of(program) if f.name == b"hidden")
    with open_elf(program) as elf:
        text = elf.section(".text")
        return program, np.array([function.address - text.address + text.offset])


def names(folder, file, offset):
    layers = Layers([container(lower=[str(folder)])])
    with Resolver(layers=layers.places) as resolver:
        return resolver.of_file(file, offset)


@needs_binutils
def test_a_file_of_a_removed_container_has_names(image):
    program, offset = image
    file = MappedFile("/opt/program", OVERLAY, program.stat().st_ino)
    assert names(program.parent.parent, file, offset) == ["hidden"]


@needs_binutils
def test_another_file_at_the_same_path_has_none(image):
    program, offset = image
    for other in (program.stat().st_ino + 1, 0):
        file = MappedFile("/opt/program", OVERLAY, other)
        assert names(program.parent.parent, file, offset) == [None]


@needs_binutils
@pytest.mark.parametrize("how", ["absolute", "relative", "folder"])
def test_no_link_leads_out_of_a_layer(image, tmp_path, how):
    """The file that the link leads to is the mapped one: only the link keeps it from being used."""
    program, offset = image
    hostile = tmp_path / "hostile"
    (hostile / "opt").mkdir(parents=True)
    if how == "folder":
        (hostile / "opt").rmdir()
        (hostile / "opt").symlink_to(program.parent)
    else:
        target = program if how == "absolute" else os.path.relpath(program, hostile / "opt")
        (hostile / "opt/program").symlink_to(target)
    file = MappedFile("/opt/program", OVERLAY, program.stat().st_ino)
    assert names(hostile, file, offset) == [None]
    above = MappedFile("/../layer/opt/program", OVERLAY, program.stat().st_ino)
    assert names(hostile, above, offset) == [None]
