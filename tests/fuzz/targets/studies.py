"""Files of studies: what users write, and what a study leaves in its folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.json_mutation import mutated_json, mutated_toml
from tests.fuzz.parts import joined, mutated_parts, parted
from tests.fuzz.target import target
from tests.fuzz.verbs import called
from tests.support.studies import make_study
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.devices import device
from tracer.analysis.studies import measures
from tracer.probes.errors import UsageError
from tracer.workloads.errors import JobError
from tracer.workloads.studies import one_run, runner, study

_RUNS = ("host-0", "host-1", "1-0", "1-1", "failed")


_READ = ("run.json", measures.FILE, "extracts.json")


@cache
def _study() -> dict[str, bytes]:
    """The files that the report of a study with measured runs reads, by path."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        make_study(folder, reported=True)
        paths = [folder / "study.json", *(folder / "runs" / r / n for r in _RUNS for n in _READ)]
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths if p.exists()}


def _files(*names: str) -> dict[str, bytes]:
    """The files of these names, of each run that has them, and study.json."""
    wanted = ("study.json", *names)
    return {path: data for path, data in _study().items() if path.rpartition("/")[2] in wanted}


def _laid_out(data: bytes, folder: Path) -> Path:
    for name, content in parted(data).items():
        path = folder / "study" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "study"


def _json(chance: Random, name: str, data: bytes) -> bytes:
    return mutated_json(chance, data)


def _mutate(chance: Random, data: bytes) -> bytes:
    return mutated_parts(chance, data, _json)


@target(lambda: [joined(_files("run.json", measures.FILE))], _mutate, tries=3)
def study_runs(data: bytes, folder: Path) -> None:
    """study.json, run.json and measures of a study's folder, judged claim by claim."""
    place = _laid_out(data, folder)
    called("study", "report", place, *(["--json"] if len(data) % 2 else []))


@target(lambda: [joined(_files(*_READ))], _mutate, tries=2)
def study_report(data: bytes, folder: Path) -> None:
    """The same and the extracts, as one page and as markdown."""
    place = _laid_out(data, folder)
    with _without_programs():
        called("study", "report", place, "-o", folder / f"x.{'md' if len(data) % 8 else 'html'}")


@contextlib.contextmanager
def _without_programs() -> Iterator[None]:
    """Hides Chromium, which hangs in as little memory as an input may take."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = ""  # without PATH, the usual folders are searched
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _one_line(error: JobError) -> UsageError:
    """The error as one of ours, which is a line that can be read."""
    assert len(str(error).splitlines()) == 1 and len(str(error)) < 2000, "an error of many lines"
    return UsageError(str(error))


_STUDY = b"""name = "quick"
about = "small"
repeats = 2
record = ["-b", "4m"]
[[runs]]
model = ["lenet"]
where = ["host", "2"]
workers = [0, 2]
threads = ["share"]
power_mode = [{}, {cores = 1, cpu_quota = 0.5}]
[[runs]]
model = ["lenet"]
mode = "serve"
rate = 5.0
requests = 10
"""


def _study_files() -> list[bytes]:
    return [_STUDY, *(path.read_bytes() for path in study.shipped().values())]


@target(_study_files, mutated_toml)
def study_files(data: bytes, folder: Path) -> None:
    """A study as a user writes it (TOML)."""
    (folder / "s.toml").write_bytes(data)
    try:
        study.load(str(folder / "s.toml"))
    except JobError as error:
        raise _one_line(error) from None


def _resumed_seed() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.toml"
        path.write_bytes(_STUDY)
        loaded = study.load(str(path))
        (Path(folder) / "f").mkdir()
        runner._declare(loaded, Path(folder) / "f")
        told = (Path(folder) / "f" / runner.STUDY).read_bytes()
    run = json.dumps({"state": "done", "reason": None, "summaries": []}).encode()
    return joined({"study.json": told, f"runs/{loaded.runs[0].id}/run.json": run})


@target(lambda: [_resumed_seed()], _mutate, tries=30)
def study_resumed(data: bytes, folder: Path) -> None:
    """A study's folder that tracer study run goes on in."""
    place = _laid_out(data, folder)
    (folder / "s.toml").write_bytes(_STUDY)
    loaded = study.load(str(folder / "s.toml"))
    try:
        runner._progress(loaded, place, None, None)
        for run in loaded.runs:
            one_run.read(place, run)
        runner._declare(loaded, place)
    except JobError as error:
        raise _one_line(error) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


_SWEEP = b"""model = "curve"
capacity = ["64K", 0.5]
policy = ["lru", "arc"]
medium = ["pcm-paper"]
disk = ["hdd-paper"]
identity = ["block", "file"]
"""
_TIMED = b"""model = "timed"
capacity = ["1M"]
destage = ["lazy", "age"]
replay = ["open"]
"""


@target(lambda: [_SWEEP, _TIMED], mutated_toml)
def sweep_files(data: bytes, folder: Path) -> None:
    """A sweep for tracer simulate --config (TOML)."""
    (folder / "sweep.toml").write_bytes(data)
    sweep.load(folder / "sweep.toml")


def _device_files() -> list[bytes]:
    ours = Path(device.__file__).with_name("devices.toml").read_bytes()
    return [ours[:1500].rpartition(b"\n[")[0]]


@target(_device_files, mutated_toml)
def device_files(data: bytes, folder: Path) -> None:
    """Devices of a user's own (TOML)."""
    (folder / "devices.toml").write_bytes(data)
    for one in device.load(folder / "devices.toml").values():
        for bound in ("low", "middle", "high"):
            told = one.at(bound)
            for name in told.parameters:
                told.value(name), told.interval(name)
