"""Kernel modules: their files, in the order in which they can be loaded."""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterable
from pathlib import Path

from elftools.elf.elffile import ELFFile

from scripts.kernels.errors import CannotTest


class Modules:
    """The modules of an unpacked kernel, which no depmod has indexed."""

    def __init__(self, folder: Path) -> None:
        """Reads the names of the modules in `folder` and of those that the kernel contains."""
        self._files = {_name(path): path for path in sorted(folder.rglob("*.ko*"))}
        names = (folder / "modules.builtin").read_text().split()
        self._built_in = {_name(Path(name)) for name in names}

    def has(self, name: str) -> bool:
        """Returns whether there is such a module, or the kernel contains it."""
        return name in self._files or name in self._built_in

    def load_order(self, names: Iterable[str]) -> dict[str, bytes]:
        """Returns the contents of the named modules, each after those that it depends on.

        Modules that the kernel contains are left out. Raises CannotTest for an unknown module.
        """
        ordered: dict[str, bytes] = {}
        for name in names:
            self._add(name, ordered)
        return ordered

    def _add(self, name: str, ordered: dict[str, bytes]) -> None:
        if name in ordered or (name in self._built_in and name not in self._files):
            return
        if name not in self._files:
            raise CannotTest(f"the kernel has no module {name}")
        content = _content(self._files[name])
        for needed in _dependencies(content):
            self._add(needed, ordered)
        ordered[name] = content


def _name(path: Path) -> str:
    return path.name.partition(".ko")[0].replace("-", "_")


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix != ".ko":
        raise CannotTest(f"{path} is compressed in a way that is not known here")
    return content


def _dependencies(module: bytes) -> list[str]:
    """Reads the field `depends` of a module's section .modinfo."""
    section = ELFFile(io.BytesIO(module)).get_section_by_name(".modinfo")
    fields = section.data().split(b"\0") if section is not None else []
    depends = [field.partition(b"=")[2] for field in fields if field.startswith(b"depends=")]
    return [name.replace("-", "_") for name in b",".join(depends).decode().split(",") if name]
