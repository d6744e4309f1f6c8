"""Export of a trace to Perfetto, Chrome's JSON, folded stacks, CSV or Parquet."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import shutil
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from tracer.analysis.exchange.chrome import ChromeWriter
from tracer.analysis.exchange.drawing import Window, draw
from tracer.analysis.exchange.folded import write_folded
from tracer.analysis.exchange.marks import LATEST_NS, Track
from tracer.analysis.exchange.perfetto import PerfettoWriter
from tracer.analysis.exchange.tables_out import write_tables
from tracer.probes.errors import UsageError
from tracer.store.files import as_invoking_user, create, make_folder
from tracer.store.places import check_file, check_folder
from tracer.store.trace import Trace

FILES = ("perfetto", "chrome", "folded")
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
    """Writes a trace to `output`: a file; for csv and parquet, a folder with one file per table.

    Writes only what lies between `start_s` and `end_s`, in seconds since the start of the
    recording: rows of tables are whole, slices and waits are cut. A file of any format is
    compressed if its name ends in .gz. Returns {"tracks" that have marks, "marks"} for a file,
    {"stacks", "waits"} for a folded one, rows by table for a folder. Raises UsageError if the
    output exists and `force` is not given. If writing fails, the partial output is removed. The
    files are made and put in place with the rights of the caller of sudo; the rows are made with
    this process's own, because the user need not be able to read the modules of Python that this
    takes.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}", f"known: {', '.join(FORMATS)}")
    window = _window(trace, start_s, end_s)
    building = output.absolute().parent / f".{output.name}.{os.getpid()}"
    with as_invoking_user():
        _check(output, format, force)
        _remove(building)
    try:
        if format in FOLDERS:
            with as_invoking_user():
                make_folder(building)
            said = write_tables(trace, building, format, window)
        else:
            with as_invoking_user():
                file = create(building)
            with file:
                said = _write_file(trace, format, file, output.suffix == ".gz", window)
        with as_invoking_user():
            _check(output, format, force)  # somebody may have put a file there meanwhile
            _remove(output)
            building.rename(output)
    finally:
        with as_invoking_user():
            _remove(building)
    return said


def _window(trace: Trace, start_s: float | None, end_s: float | None) -> Window | None:
    """Returns the window asked for; None: the whole trace."""
    for given in (start_s, end_s):
        if given is not None and not (math.isfinite(given) and abs(given) < 1e9):
            raise UsageError(
                f"{given} s is not a valid time", "give seconds since the start of the recording"
            )
    if start_s is None and end_s is None:
        return None
    if end_s is not None and end_s < 0:
        raise UsageError(
            f"--to {end_s:g} lies before the begin of the recording", "give 0 or more seconds"
        )
    clock = trace.manifest["clock"]
    begin = clock["start_ns"]
    start = 0 if start_s is None else min(LATEST_NS, max(0, begin + round(start_s * 1e9)))
    end = LATEST_NS if end_s is None else min(LATEST_NS, begin + round(end_s * 1e9))
    if end < start:
        raise UsageError("--to is before --from", "exchange the two values")
    if start_s is not None and clock["end_ns"] and start > clock["end_ns"]:
        raise UsageError(
            f"--from {start_s:g} lies after the end of the recording",
            f"give less than its {(clock['end_ns'] - begin) / 1e9:.3f} s",
        )
    return Window(start, end, min(end, clock["end_ns"] or end))


def _write_file(
    trace: Trace, format: str, file: BinaryIO, packed: bool, window: Window | None
) -> dict[str, int]:
    marks, used = 0, set[int]()
    clock = trace.manifest["clock"]
    with contextlib.ExitStack() as stack:
        out = file
        if packed:
            zipped = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0)
            out = cast(BinaryIO, stack.enter_context(zipped))
        if format == "folded":
            return write_folded(trace, out, window)
        writer: PerfettoWriter | ChromeWriter
        if format == "perfetto":
            writer = PerfettoWriter(out, clock["start_ns"], clock.get("realtime_offset_ns"))
        else:
            writer = ChromeWriter(out)
        last = clock["end_ns"] or clock["start_ns"]
        for item in draw(trace, window or Window(0, LATEST_NS, last)):
            if isinstance(item, Track):
                writer.track(item)
            else:
                writer.marks(item)
                marks += len(item)
                used.update(np.unique(item.track).tolist())
        writer.close()
    return {"tracks": writer.lines(used), "marks": marks}


def _check(output: Path, format: str, force: bool) -> None:
    """Raises UsageError unless the output is free, or one of this format and `force` is set."""
    if format in FILES:
        check_file(output, force)
        return
    check_folder(output, force)
    if output.exists():
        _refuse_foreign(output, format)


def _refuse_foreign(folder: Path, format: str) -> None:
    """Raises UsageError for a folder with other files than tables: an export did not make it."""
    for path in folder.iterdir():
        if path.suffix != f".{format}" or path.is_symlink() or not path.is_file():
            raise UsageError(
                f"{folder} contains {path.name}, which is not a table", "give another name with -o"
            )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
