"""A trace out to what others read: Perfetto, Chrome's JSON, CSV, Parquet."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import shutil
from pathlib import Path
from typing import BinaryIO, cast

from analysis.exchange.chrome import ChromeWriter
from analysis.exchange.drawing import Window, draw
from analysis.exchange.marks import LATEST_NS, Track
from analysis.exchange.perfetto import PerfettoWriter
from analysis.exchange.tables_out import write_tables
from probes.errors import UsageError
from tracer.store.files import create, make_folder
from tracer.store.trace import Trace

FILES = ("perfetto", "chrome")
FOLDERS = ("csv", "parquet")
FORMATS = (*FILES, *FOLDERS)


def export(
    trace: Trace,
    format: str,
    output: Path,
    force: bool = False,
    start_s: float | None = None,
    end_s: float | None = None,
) -> dict[str, int]:
    """Write a trace to `output`: a file, of csv and parquet a folder with a file a table.

    Only what lies between `start_s` and `end_s`, in seconds since the begin of the recording. A
    chrome file is compressed where its name ends in .gz. Returns {"tracks", "marks"} of a file,
    rows by table of a folder. Raises UsageError where the output exists and `force` is not given;
    nothing is left behind where writing fails.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}", f"known: {', '.join(FORMATS)}")
    window = _window(trace, start_s, end_s)
    if output.is_symlink() or (output.exists() and not force):
        raise UsageError(f"{output} exists", "give another name with -o, or --force")
    if output.exists() and output.is_dir() != (format in FOLDERS):
        raise UsageError(f"{output} is not what a {format} export makes", "give another name")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {output.absolute().parent}", "make it first")
    building = output.absolute().parent / f".{output.name}.{os.getpid()}"
    _remove(building)
    try:
        if format in FOLDERS:
            make_folder(building)
            said = write_tables(trace, building, format, window)
        else:
            with create(building) as file:
                said = _write_file(trace, format, file, output.suffix == ".gz", window)
        if output.is_dir():
            _refuse_foreign(output, format)
        _remove(output)
        building.rename(output)
    finally:
        _remove(building)
    return said


def _window(trace: Trace, start_s: float | None, end_s: float | None) -> Window | None:
    """What is asked for; None: all of it."""
    for given in (start_s, end_s):
        if given is not None and not (math.isfinite(given) and abs(given) < 1e9):
            raise UsageError(f"{given} s cannot be", "give seconds since the begin")
    if start_s is None and end_s is None:
        return None
    clock = trace.manifest["clock"]
    begin = clock["start_ns"]
    start = 0 if start_s is None else max(0, begin + round(start_s * 1e9))
    end = LATEST_NS if end_s is None else begin + round(end_s * 1e9)
    if end < start:
        raise UsageError("--to lies before --from", "give them the other way round")
    return Window(start, end, min(end, clock["end_ns"] or end))


def _write_file(
    trace: Trace, format: str, file: BinaryIO, packed: bool, window: Window | None
) -> dict[str, int]:
    counts = {"tracks": 0, "marks": 0}
    clock = trace.manifest["clock"]
    with contextlib.ExitStack() as stack:
        out = file
        if packed:
            zipped = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0)
            out = cast(BinaryIO, stack.enter_context(zipped))
        writer: PerfettoWriter | ChromeWriter
        if format == "perfetto":
            writer = PerfettoWriter(out, clock["start_ns"], clock.get("realtime_offset_ns"))
        else:
            writer = ChromeWriter(out)
        last = clock["end_ns"] or clock["start_ns"]
        for item in draw(trace, window or Window(0, LATEST_NS, last)):
            if isinstance(item, Track):
                writer.track(item)
                counts["tracks"] += 1
            else:
                writer.marks(item)
                counts["marks"] += len(item)
        writer.close()
    return counts


def _refuse_foreign(folder: Path, format: str) -> None:
    """A folder with anything but tables is not one that we made: it is not replaced."""
    for path in folder.iterdir():
        if path.suffix != f".{format}" or path.is_symlink() or not path.is_file():
            raise UsageError(f"{folder} holds {path.name}, no table", "give another name with -o")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
