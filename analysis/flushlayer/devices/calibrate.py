"""The calibration of the user's own device: a catalogue entry measured by fio."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from tracer.analysis.flushlayer.devices import PAGE
from tracer.digits import show_digits
from tracer.free_space import room_bytes
from tracer.probes.errors import FeatureMissing, PermissionMissing, TracerError, UsageError

Kind = Literal["disk", "ssd", "nvm"]
KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
_LARGE = 128 << 10
_BLOCK = 512  # bytes: the unit of st_blocks
_SLOWEST_PER_S = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Point:
    """The result of fio for one pattern of access."""

    op: Literal["read", "write"]
    order: Literal["random", "sequential"]
    size: int
    """Bytes per access."""
    depth: int
    """Accesses in flight at once."""
    per_s: float
    mean_ns: float
    p99_ns: float

    def __str__(self) -> str:
        mean, p99 = (show_digits(ns / 1e3, 4) for ns in (self.mean_ns, self.p99_ns))
        return (
            f"{self.order} {self.op} of {self.size} B, {self.depth} at once:"
            f" {show_digits(self.per_s, 6)} a second, mean {mean} us, p99 {p99} us"
        )


def calibrate(
    target: Path,
    name: str,
    kind: Kind,
    *,
    size: int = 1 << 30,
    seconds: float = 10.0,
    depth: int = 32,
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> str:
    """Measures the device of `target` and returns a catalogue entry as TOML text.

    `target` is a new file (of `size` bytes, removed afterwards), or, with `overwrite`, an existing
    file or block device whose content is lost. fio first writes it once, because reads of blocks
    that were never written do not reach the device. Then each of ten patterns runs for `seconds`,
    past the page cache: 4 KiB reads and writes, random and sequential, 1 and `depth` at once, and
    sequential 128 KiB reads and writes, `depth` at once. The results include the effect of the
    device's volatile cache. Finally fio measures flushes: an fdatasync after each random write of
    4 KiB. A block device that is mounted or otherwise in use is always refused.

    Raises UsageError, PermissionMissing, FeatureMissing (no fio), or TracerError if fio fails.
    """
    _check_numbers(name, size, seconds, depth)
    fio = shutil.which("fio")
    if fio is None:
        raise FeatureMissing("the command fio is not installed", "apt-get install fio")
    made = _check_target(target, size, overwrite)
    say = progress or (lambda _: None)
    runs = _Fio(fio, target, size, seconds)
    points = []
    try:
        say(f"writing {target} once")
        runs.fill()
        for op, order, access, at_once in _patterns(depth):
            say(f"{order} {op} of {access} B, {at_once} at once")
            points.append(runs.point(op, order, access, at_once))
        say("flushes: fdatasync after each random write")
        flush_ns = runs.flush_ns()
    finally:
        if made:
            target.unlink(missing_ok=True)
    return entry(name, kind, points, flush_ns, depth)


def _patterns(depth: int) -> list[tuple[Any, Any, int, int]]:
    small = [
        (op, order, PAGE, at_once)
        for order in ("random", "sequential")
        for at_once in (1, depth)
        for op in ("write", "read")
    ]
    return [*small, ("write", "sequential", _LARGE, depth), ("read", "sequential", _LARGE, depth)]


def _check_numbers(name: str, size: int, seconds: float, depth: int) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"a device cannot be called {name!r}", "use letters, digits, - and _")
    if not 1 << 20 <= size <= 1 << 40:
        raise UsageError(f"a size of {size} bytes cannot be measured", "give 1 MiB to 1 TiB")
    if not (math.isfinite(seconds) and 0.1 <= seconds <= 3600):
        raise UsageError(f"a pattern of {seconds} s cannot be measured", "give 0.1 to 3600")
    if not 2 <= depth <= 1024:
        raise UsageError(f"{depth} accesses at once cannot be measured", "give 2 to 1024")


def _check_target(target: Path, size: int, overwrite: bool) -> bool:
    """Returns whether the target has to be made.

    Raises UsageError for a target that may hold data, is in use or cannot be measured.
    """
    try:
        mode = target.stat()
    except FileNotFoundError:
        if target.is_symlink():  # fio would replace the link, and measure the link's own folder
            raise UsageError(
                f"{target} is a link to a file that does not exist", "name that file itself"
            ) from None
        if not target.parent.is_dir():
            raise UsageError(
                f"{target.parent} is not a folder", "name a file in an existing folder"
            ) from None
        if not os.access(target.parent, os.W_OK):
            raise UsageError(
                f"{target.parent} is not writable", "name a file in a folder that you can write to"
            ) from None
        _require_room(target.parent, size)
        return True
    except OSError as error:
        raise UsageError(f"cannot look at {target}: {error.strerror}", "name a file") from None
    if not (stat.S_ISREG(mode.st_mode) or stat.S_ISBLK(mode.st_mode)):
        raise UsageError(
            f"{target} is neither a file nor a block device", "name a file or a block device"
        )
    if stat.S_ISBLK(mode.st_mode):
        _check_unused(target, size)
    if not overwrite and (stat.S_ISBLK(mode.st_mode) or mode.st_size > 0):
        raise UsageError(
            f"{target} may hold data, and the measurement destroys it",
            "name a new file, or give --overwrite",
        )
    if stat.S_ISREG(mode.st_mode):
        _require_room(target.parent, size - mode.st_blocks * _BLOCK)
    return False


def _require_room(folder: Path, more: int) -> None:
    if more > 0 and more > room_bytes(folder):
        raise UsageError(f"{folder} has no room for {more} bytes", "give a smaller size") from None


def _check_unused(device: Path, size: int) -> None:
    # The kernel refuses an exclusive open of a block device that is mounted, used for swap or part
    # of another device, and of a disk with such a partition.
    try:
        opened = os.open(device, os.O_RDONLY | os.O_EXCL)
    except PermissionError:
        raise PermissionMissing(f"cannot open {device}", "run as root") from None
    except OSError as error:
        raise UsageError(f"{device} cannot be measured: {error.strerror}", "unmount it") from None
    try:
        has = os.lseek(opened, 0, os.SEEK_END)
    finally:
        os.close(opened)
    if has < size:
        raise UsageError(f"{device} has only {has} bytes", "give this size or a smaller one")


@dataclass(frozen=True)
class _Fio:
    """The fio command on one target."""

    command: str
    target: Path
    size: int
    seconds: float

    def fill(self) -> None:
        """Writes the whole target once."""
        options = ("--rw=write", "--bs=1M", "--iodepth=8", "--end_fsync=1")
        self._job(options, 600 + self.size / _SLOWEST_PER_S)

    def point(self, op: Any, order: Any, access: int, depth: int) -> Point:
        """Measures one pattern of access; raises TracerError if fio fails or finishes no access."""
        rw = f"--rw={'rand' if order == 'random' else ''}{op}"
        job = self._timed((rw, f"--bs={access}", f"--iodepth={depth}"))
        with _understood():
            point = Point(
                op,
                order,
                access,
                depth,
                float(job[op]["iops"]),
                float(job[op]["lat_ns"]["mean"]),
                float(job[op]["clat_ns"]["percentile"]["99.000000"]),
            )
        if not (point.per_s > 0 and point.mean_ns > 0):
            raise TracerError(f"fio finished no {order} {op}", "measure for longer")
        return point

    def flush_ns(self) -> float:
        """Returns the mean time in ns of an fdatasync after a random write of a page, one at a
        time."""
        job = self._timed(("--rw=randwrite", f"--bs={PAGE}", "--iodepth=1", "--fdatasync=1"))
        with _understood():
            times = job["sync"]["lat_ns"]  # its total_ios stays 0
            flushes, mean_ns = int(times["N"]), float(times["mean"])
        if flushes == 0:
            raise TracerError("fio finished no flush", "measure for longer")
        return mean_ns

    def _timed(self, options: tuple[str, ...]) -> Any:
        lasting = ("--time_based", f"--runtime={round(self.seconds * 1000)}ms", "--randseed=1")
        return self._job((*options, *lasting), self.seconds + 600)

    def _job(self, options: tuple[str, ...], patience_s: float) -> Any:
        # fio splits a name at unescaped colons.
        name = str(self.target.absolute()).replace("\\", "\\\\").replace(":", "\\:")
        file = (f"--filename={name}", f"--size={self.size}", "--ioengine=libaio", "--direct=1")
        # --thread: a job in a process of its own would continue after fio is killed.
        told = ("--thread", "--output-format=json")
        command = [self.command, "--name=calibrate", *file, *options, *told]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=patience_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise TracerError(
                f"fio on {self.target} did not end in time", "check the device for errors"
            ) from None
        if done.returncode != 0:
            lines = (line.strip() for line in done.stderr.splitlines())
            said = next((line for line in lines if line), "no reason given")
            raise TracerError(f"fio failed on {self.target}: {said[:200]}", "see the manual of fio")
        with _understood():
            # fio may print warnings before its JSON.
            return json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise TracerError(
            f"the output of fio is not understood: {error!r}", "check that fio is version 3"
        ) from None


def entry(name: str, kind: Kind, points: list[Point], flush_ns: float, depth: int) -> str:
    """Returns a catalogue entry, as TOML text, of the measured values.

    Latencies are means of random accesses of 4 KiB, one at a time; for kind nvm, less the transfer.
    Rates (ssd) and channels (nvm) come from random accesses of 4 KiB, `depth` at once; bandwidths
    from sequential accesses of 128 KiB. A rate is at least the rate of one access at a time, and a
    bandwidth at least the bytes that the rate moves. A device of kind disk gets flat latencies,
    because fio measures no seek curve.
    """
    fact = f"fio on {platform.node() or 'this machine'}, {datetime.now(UTC):%Y-%m-%d}"
    lines = [f"[{name}]", f'kind = "{kind}"', f"doc = {json.dumps('measured by ' + fact)}"]
    lines += [f"# {point}" for point in points]

    def say(parameter: str, value: float, unit: str, how: str) -> None:
        source = json.dumps(f"{fact}: {how}")
        lines.append(
            f'{parameter} = {{ value = {value:.6g}, unit = "{unit}", confidence = "measured",'
            f" source = {source} }}"
        )

    channels = 1
    for op in ("read", "write"):
        alone, many = (
            next(
                p
                for p in points
                if (p.op, p.order, p.size, p.depth) == (op, "random", PAGE, at_once)
            )
            for at_once in (1, depth)
        )
        run = next(p for p in points if p.op == op and p.size == _LARGE)
        latency = alone.mean_ns
        # On a busy machine, several accesses at once may be slower than one alone. A rate below
        # that of one access at a time would contradict the latency.
        rate = max(many.per_s, 1e9 / latency)
        bandwidth = max(run.per_s * run.size, rate * PAGE)
        if kind == "nvm":
            latency = max(0.0, latency - PAGE / bandwidth * 1e9)
        say(f"{op}_latency", latency, "ns", "random 4 KiB, one at a time, mean")
        say(
            f"bandwidth_{op}",
            bandwidth,
            "B/s",
            f"sequential 128 KiB, {depth} at once, or random 4 KiB",
        )
        if kind == "ssd":
            say(f"iops_{op}", rate, "/s", f"random 4 KiB, {depth} at once, or one at a time")
        # Little's law: accesses in service = rate x latency of one access alone.
        channels = max(channels, round(many.per_s * alone.mean_ns / 1e9))
    say("flush_latency", flush_ns, "ns", "fdatasync after a random write of 4 KiB, mean")
    if kind == "nvm":
        say("channels", channels, "requests", f"rate of {depth} at once x latency of one alone")
    else:
        say("queue_depth", depth, "requests", "the accesses at once in the measurement")
    return "\n".join(lines) + "\n"
