"""Packs a trace into one compressed file to send, and unpacks it.

A pack is a tar archive compressed with zstd, so `tar --zstd -xf` opens it, too. Its first member,
`pack.json`, lists the others with size and SHA-256. They follow in that order, the manifest first.
A pack may come from anybody: only the listed files of a trace are made, with the listed sizes, in
a new folder that appears only if all of it is correct.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from tracer.free_space import room_bytes
from tracer.probes.errors import BadTrace, PermissionMissing, TracerError
from tracer.store import manifest as manifests
from tracer.store.checked import Count, Listed, parsed, what_is_wrong
from tracer.store.files import create, make_folder, open_regular
from tracer.store.importing import check_output, put_in_place
from tracer.store.places import check_file
from tracer.store.trace import ALL_TABLES, Trace

SUFFIX = ".tar.zst"
LIST = "pack.json"
VERSION = 1
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_BLOCK = 512
_COPY = 1 << 20
_MOST_MEMBERS = 1 << 17
_MOST_LIST = 64 << 20
_MOST_VALUES = 8 * _MOST_MEMBERS
"""Most values in the list: parsed JSON takes up to a hundred times its bytes."""
_MOST_BYTES = 1 << 40
_MOST_RATIO = 200
_SMALL = 64 << 20
"""Bytes that a pack may hold whatever its own size."""
_RAW = re.compile(r"raw/(marks/)?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_TABLES = {f"events/{name}.parquet" for name in ALL_TABLES}
_MOST_OF_A_NAME = 50
"""Characters of at most four bytes each. This leaves room to append to a name."""
_AGAIN = "ask for it to be packed and sent again"


class Member(TypedDict):
    """One file of a pack."""

    name: str
    size: Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@with_config(ConfigDict(strict=True, extra="ignore"))
class PackList(TypedDict):
    """The first member of a pack."""

    pack: Count
    members: Annotated[Listed[Member], Field(max_length=_MOST_MEMBERS)]


def pack(folder: Path, output: Path, raw: bool = False, force: bool = False) -> int:
    """Packs the trace `folder` into the file `output`. Returns its size in bytes.

    `raw` includes the raw streams, from which tables can be made again. Raises UsageError if
    `output` exists and `force` is not given, or if the trace is still being recorded.
    """
    check_file(output, force)
    Trace(folder).close()  # finalizes a killed recorder's data and checks the tables
    members = [_member(folder, name) for name in _files(folder, raw)]
    listed = json.dumps({"pack": VERSION, "members": members}).encode()
    building = output.absolute().parent / f".{output.name}.{os.getpid()}"
    building.unlink(missing_ok=True)
    try:
        with create(building) as file, pa.CompressedOutputStream(file, "zstd") as out:
            out.write(_header(LIST, len(listed)))
            out.write(_padded(listed))
            for member in members:
                out.write(_header(member["name"], member["size"]))
                left = member["size"]
                with open_regular(folder / member["name"]) as source:
                    while left:
                        data = source.read(min(left, _COPY))
                        if not data:
                            raise BadTrace(
                                f"{folder / member['name']} shrank while it was packed", "try again"
                            )
                        left -= len(data)
                        out.write(data)
                out.write(b"\0" * (-member["size"] % _BLOCK))
            out.write(b"\0" * (2 * _BLOCK))
        building.replace(output)
    finally:
        building.unlink(missing_ok=True)
    return output.stat().st_size


def _files(folder: Path, raw: bool) -> list[str]:
    """Returns the files of a trace to pack."""
    names = [manifests.FILE, "loss.parquet", *sorted(_TABLES)]
    if raw:
        paths = chain(folder.glob("raw/*"), folder.glob("raw/marks/*"))
        found = (path.relative_to(folder).as_posix() for path in paths)
        names += sorted(name for name in found if _RAW.fullmatch(name))
    return [
        name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()
    ]


def _member(folder: Path, name: str) -> Member:
    digest = hashlib.sha256()
    size = 0
    with open_regular(folder / name) as file:
        while data := file.read(_COPY):
            digest.update(data)
            size += len(data)
    return {"name": name, "size": size, "sha256": digest.hexdigest()}


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _BLOCK)


def unpack(path: Path, output: Path, force: bool = False) -> Path:
    """Makes the trace `output` from a pack. Returns its path.

    Raises BadTrace for a file that is no pack, is cut off, altered, or too large; UsageError if
    `output` exists and `force` is not given; TracerError if the disk has no room.
    """
    building = check_output(output, force)
    try:
        make_folder(building)
        _unpack(path, building)
        manifests.read(building)
        put_in_place(building, output)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return output


@contextlib.contextmanager
def open_pack(path: Path) -> Iterator[Trace]:
    """Opens a pack's trace in a temporary folder, which goes at the end of the block."""
    name = path.name.removesuffix(SUFFIX).removesuffix(".trace").strip(".") or "pack"
    name = name[:_MOST_OF_A_NAME]
    with (
        tempfile.TemporaryDirectory(prefix="tracer-pack-") as folder,
        Trace(unpack(path, Path(folder) / f"{name}.trace")) as trace,
    ):
        yield trace


def is_pack(path: Path) -> bool:
    """Returns whether a file begins like a pack."""
    try:
        with open_regular(path, follow=True) as file:
            return file.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC
    except (OSError, ValueError):
        return False


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        raise BadTrace(
            f"there is no file {path}", "check its name; tracer pack makes packs of traces"
        ) from None
    except PermissionError:
        raise PermissionMissing(
            f"this user may not read {path}", "run as its owner, or as root"
        ) from None
    except ValueError:
        raise BadTrace(f"{path} is not a regular file", "give a pack") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "give a pack") from None


def _unpack(path: Path, folder: Path) -> None:
    try:
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(ZSTD_MAGIC)) != ZSTD_MAGIC:
                raise BadTrace(f"{path} is not a pack of a trace", "tracer pack makes one")
            file.seek(0)
            with pa.CompressedInputStream(file, "zstd") as stream:
                _members(path, stream, size, folder)
    except PermissionError as error:
        raise PermissionMissing(
            f"this user may not use {error.filename or path}", "run as its owner, or as root"
        ) from None
    except (pa.ArrowException, ValueError) as error:
        raise BadTrace(f"{path} is damaged: {error}", _AGAIN) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadTrace(f"{path} is damaged: {error}", _AGAIN) from None


def _members(path: Path, stream: Any, size: int, folder: Path) -> None:
    name, length = _next(path, stream)
    if name != LIST or length > _MOST_LIST:
        raise BadTrace(f"{path} is not a pack of a trace", "tracer pack makes one")
    text = _exactly(path, stream, length)
    try:
        listed: PackList = parsed(PackList, text, _MOST_VALUES)
    except ValueError as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", _AGAIN) from None
    _exactly(path, stream, -length % _BLOCK)
    if listed["pack"] > VERSION:
        raise BadTrace(
            f"{path} is a pack of version {listed['pack']}; this tracer knows {VERSION}",
            "upgrade: pip install -U traintrace",
        )
    _check_list(path, listed["members"], size, folder)
    for member in listed["members"]:
        if _next(path, stream) != (member["name"], member["size"]):
            raise BadTrace(f"{path} holds other files than it lists", _AGAIN)
        target = folder / member["name"]
        for above in reversed(target.relative_to(folder).parents[:-1]):
            if not (folder / above).exists():
                make_folder(folder / above)
        with create(target) as out:
            digest = _copy(path, stream, member["size"], out)
        if digest != member["sha256"]:
            raise BadTrace(f"{path}: {member['name']} was altered after packing", _AGAIN)
        _exactly(path, stream, -member["size"] % _BLOCK)
    if _exactly(path, stream, 2 * _BLOCK).strip(b"\0") or stream.read(1):
        raise BadTrace(f"{path} holds more than it lists", _AGAIN)


def _check_list(path: Path, members: list[Member], size: int, folder: Path) -> None:
    names = [member["name"] for member in members]
    if names[:1] != [manifests.FILE] or len(set(names)) != len(names):
        raise BadTrace(f"{path} is not a pack of a trace", "tracer pack makes one")
    for name in names[1:]:
        if name not in _TABLES and name != "loss.parquet" and not _RAW.fullmatch(name):
            raise BadTrace(f"{path} holds {name[:200]!r}, which no trace has", "do not trust it")
    both = {str(above) for name in names for above in PurePosixPath(name).parents} & set(names)
    if both:
        raise BadTrace(f"{path} holds {min(both)!r} as both a file and a folder", "do not trust it")
    if members[0]["size"] > manifests.MAX_BYTES:
        raise BadTrace(
            f"{path} claims a manifest of {members[0]['size']} bytes, which is too large",
            "do not trust it",
        )
    total = sum(member["size"] for member in members)
    if total > _MOST_BYTES or (total > _SMALL and total > size * _MOST_RATIO):
        raise BadTrace(
            f"{path} of {size} bytes claims to hold {total} bytes, which is too much",
            "do not trust it",
        )
    if total > room_bytes(folder):
        raise TracerError(
            f"{path} holds {total} bytes, and {folder.parent} has no room for them",
            "free space, or unpack elsewhere with -o",
        )


def _next(path: Path, stream: Any) -> tuple[str, int]:
    """Returns name and size of the next member, which must be a plain file."""
    try:
        info = tarfile.TarInfo.frombuf(_exactly(path, stream, _BLOCK), "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        raise BadTrace(f"{path} is not a pack of a trace, or is damaged", _AGAIN) from None
    if info.type != tarfile.REGTYPE or info.size < 0:
        raise BadTrace(f"{path} holds members other than plain files", "do not trust it")
    return info.name, info.size


def _exactly(path: Path, stream: Any, count: int) -> bytes:
    data: bytes = stream.read(count) if count else b""
    if len(data) != count:
        raise BadTrace(f"{path} is cut off", _AGAIN)
    return data


def _copy(path: Path, stream: Any, size: int, out: BinaryIO) -> str:
    digest = hashlib.sha256()
    while size:
        data = _exactly(path, stream, min(size, _COPY))
        digest.update(data)
        out.write(data)
        size -= len(data)
    return digest.hexdigest()
