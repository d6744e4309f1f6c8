"""A study: a TOML file of factors. Every combination of their values is a run.

name = "quick"
about = "host against one and four containers, in minutes"
paper = "001"
repeats = 3
scale = 0.005                  # share of the papers' samples
time_scale = 0.1               # factor for the timers of the flusher and of the journal
image = "mine:1"               # container image; default: one made from this machine
engine = "podman"              # of the containers; default: docker

[[runs]]                       # every combination of the lists is a run
model = ["lenet", "squeezenet"]
where = ["host", "1", "4"]     # host, or the number of containers at once
mode = ["train"]
workers = [4]
threads = ["share"]            # torch's: a number, or CPUs divided by the most containers at once
power_mode = [{}, {cores = 1, cpu_quota = 0.5}]   # or "machine": a selection of its own modes
memory = ["400m"]              # of the job on the host, or of each container
swap = ["1g"]                  # beside `memory`, in a swap area of the run's own
page_cluster = [0, 3]          # vm.page-cluster: log2 of the pages read around a swapped one
dirty_background_bytes = ["240m"]
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from tracer.store.files import read_bounded
from tracer.workloads import models
from tracer.workloads.containers.engines import EngineName
from tracer.workloads.containers.limits import parse_bytes
from tracer.workloads.errors import JobError
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.mode import parse as parse_mode
from tracer.workloads.options import CHECKPOINT_TIMES, CheckpointWay
from tracer.workloads.studies import media
from tracer.workloads.studies.order import in_order

FOLDER = Path(__file__).parent
_MAX_BYTES = 1 << 20
_MAX_RUNS = 10_000
_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,60}$")
_WHERE = re.compile(r"^(host|[1-9]|[1-5][0-9]|6[0-4])$")
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
_MOST_A_SECOND = 1_000_000
_MOST_CLUSTER = 8
_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("model", str, "the name of a model"),
    ("mode", str, "train, infer or serve"),
    ("dataset", str | None, "the name of a data set"),
    ("checkpoint_every", str | None, '"epoch", "end" or a number of steps'),
    ("checkpoint_way", str | None, "a way to write a checkpoint"),
    ("cpus", int | float | None, "a number of CPUs"),
    ("memory", str | None, "a size, such as 400m"),
    ("swap", str | None, "a size, such as 1g"),
    ("dirty_background_bytes", str | None, "a size, such as 240m"),
    ("seccomp", bool, "true or false"),
    ("cache", str, "dropped or kept"),
    ("medium", str, "the name of a medium"),
)
_MODES = ("train", "infer", "serve")


_SCALED = ("at_least", "at_most", "batches")
"""Factors that a study's share of the papers' samples scales, too."""
_OF_TRAINING = ("epochs", "at_least", "at_most", "checkpoint_every", "checkpoint_way")
_OPTIONS = (
    "dataset", "workers", "batch_size", "threads", "rate", "requests", "batches", *_OF_TRAINING,
)  # fmt: skip
_NOT_OF = {
    "train": ("batches",),
    "infer": _OF_TRAINING,
    "serve": (*_OF_TRAINING, "batches", "workers"),
}


@dataclass(frozen=True)
class Factors:
    """The factors of a run. None: the job's own default.

    `where`: host, or the number of containers. `cache`: dropped (the page cache is dropped before
    the run) or kept (the data is read into it). `medium`: the storage of data and output
    (`tracer.workloads.studies.media`). `checkpoint_every`: epoch, end, or a number of steps.
    `checkpoint_way`: a `CheckpointWay`. `at_least`, `at_most`: seconds of training, and `batches`:
    batches of inference, all for the papers' number of samples. `rate`, `requests`: with the mode
    serve, requests per second to each server, and their number. `power_mode` None: the machine's
    current one.
    `memory`, `swap`: sizes that the job on the host, or each container, may use; without `swap`,
    none. `page_cluster`, `dirty_background_bytes`: the sysctls of vm, the latter as a size.
    """

    model: str
    where: str = "host"
    mode: str = "train"
    dataset: str | None = None
    workers: int | None = None
    batch_size: int | None = None
    epochs: int | None = None
    at_least: float | None = None
    at_most: float | None = None
    batches: int | None = None
    checkpoint_every: str | None = None
    checkpoint_way: str | None = None
    threads: int | None = None
    cpus: float | None = None
    memory: str | None = None
    swap: str | None = None
    page_cluster: int | None = None
    dirty_background_bytes: str | None = None
    seccomp: bool = True
    cache: str = "dropped"
    medium: str = media.DISK
    rate: float | None = None
    requests: int | None = None
    power_mode: PowerMode | None = None

    @property
    def containers(self) -> int:
        """Number of containers; 0: on the host."""
        return 0 if self.where == "host" else int(self.where)

    @property
    def sets_machine(self) -> bool:
        """True if the run sets the machine, which only one study at a time can do."""
        told = (self.power_mode, self.swap, self.dirty_background_bytes)
        return any(told) or (self.memory is not None and not self.containers)

    def options(self, scale: float = 1.0) -> list[str]:
        """Returns the options of `python -m tracer.workloads` at a share of the papers' samples."""
        found = []
        for name in _OPTIONS:
            value = getattr(self, name)
            if value is not None and name in _SCALED:
                scaled = value * scale
                value = max(1, round(scaled)) if name == "batches" else scaled
            if value is not None and name not in _NOT_OF.get(self.mode, ()):
                found += [f"--{name.replace('_', '-')}", str(value)]
        return found


@dataclass(frozen=True)
class Run:
    """One run of a study: its factors, and the number of the repeat, from 0."""

    factors: Factors
    repeat: int

    @property
    def id(self) -> str:
        """Name from model, mode, place, a digest of all factors, and the repeat."""
        digest = hashlib.sha256(json.dumps(asdict(self.factors), sort_keys=True).encode())
        said = f"{self.factors.model}-{self.factors.mode}-{self.factors.where}"
        return f"{said}-{digest.hexdigest()[:8]}-{self.repeat}"


@dataclass(frozen=True)
class Study:
    """The declaration of a study, with all runs in the order in which they are made."""

    name: str
    about: str
    paper: str
    repeats: int
    scale: float
    time_scale: float
    seed: int
    record: list[str]
    longest_s: float
    image: str | None
    engine: EngineName = EngineName.DOCKER
    runs: list[Run] = field(default_factory=list)


def shipped() -> dict[str, Path]:
    """Returns the files of the studies that come with the package, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load(
    name: str,
    scale: float | None = None,
    repeats: int | None = None,
    seed: int = 0,
    time_scale: float | None = None,
    engine: str | None = None,
) -> Study:
    """Loads a shipped study by its name, or a user's study by its file. Raises JobError."""
    path = shipped().get(name) or Path(name)
    try:
        told = tomllib.loads(read_bounded(path, _MAX_BYTES, follow=True).decode())
    except FileNotFoundError:
        raise JobError(
            f"there is no study {name!r}", f"name {', '.join(shipped())}, or a TOML file"
        ) from None
    except (OSError, ValueError) as error:
        raise JobError(f"cannot read the study {path}: {error}", "correct the file") from None
    except RecursionError:
        raise JobError(
            f"cannot read the study {path}: its tables are nested too deeply", "correct the file"
        ) from None
    options = {"scale": scale, "repeats": repeats, "time_scale": time_scale, "engine": engine}
    given = {key: value for key, value in options.items() if value is not None}
    for key, (is_one, rule, example) in _NUMBERS.items():
        if key in given and not is_one(given[key]):
            option = f"--{key.replace('_', '-')}"
            raise JobError(f"{option} {given[key]} is not {rule}", f"give e.g. {example}")
    return _parse(told | given, path, seed)


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in (int, float)  # not a bool, which is an int


def _is_factor(value: object) -> bool:
    return _is_number(value) and 0 < value <= 100


def _is_repeats(value: object) -> bool:
    return type(value) is int and 1 <= value <= 1000


_FACTOR = "a number above 0, up to 100"
_NUMBERS: dict[str, tuple[Callable[[object], bool], str, str]] = {
    "scale": (_is_factor, _FACTOR, "0.01"),
    "time_scale": (_is_factor, _FACTOR, "0.1"),
    "repeats": (_is_repeats, "a whole number from 1 to 1000", "5"),
}
"""Numbers that a file or an option sets: their check, their rule, and an example."""


def _parse(told: dict[str, Any], path: Path, seed: int) -> Study:
    def wrong(what: str) -> JobError:
        return JobError(f"{path}: {what}", "workloads/studies/study.py describes the format")

    match told:
        case {"name": str(name), "runs": list(blocks)} if _NAME.fullmatch(name):
            pass
        case _:
            raise wrong("a study has a `name` of lower-case letters, digits, - or _, and [[runs]]")
    numbers: dict[str, Any] = {"scale": 1.0, "time_scale": 1.0, "repeats": 5}
    numbers |= {key: told[key] for key in numbers if key in told}
    for key, (is_one, rule, _) in _NUMBERS.items():
        if not is_one(numbers[key]):
            raise wrong(f"`{key}` is {rule}")
    scale, time_scale, repeats = numbers["scale"], numbers["time_scale"], numbers["repeats"]
    longest_s = told.get("longest_s", _DAY_S)
    if not _is_number(longest_s) or not 0 < longest_s < _YEAR_S:
        raise wrong("`longest_s` is a number of seconds above 0, below one year")
    record = told.get("record", [])
    if not isinstance(record, list) or not all(isinstance(option, str) for option in record):
        raise wrong("`record` is a list of options of `tracer record`")
    image = told.get("image")
    if image is not None and not isinstance(image, str):
        raise wrong("`image` is the name of an image")
    engine = told.get("engine", EngineName.DOCKER)
    if engine not in list(EngineName):
        raise wrong(f"`engine` is one of {', '.join(EngineName)}")
    share = _share_of_cpus(blocks)
    found: dict[Factors, None] = {}
    combinations = 0
    for block in blocks:
        if not isinstance(block, dict) or "model" not in block:
            raise wrong("each [[runs]] table names models")
        values = {key: v if isinstance(v, list) else [v] for key, v in block.items()}
        if "threads" in values:
            values["threads"] = [share if n == "share" else n for n in values["threads"]]
        if "power_mode" in values:
            values["power_mode"] = _power_modes(values["power_mode"], wrong)
        combinations += math.prod(map(len, values.values()))
        if combinations * repeats > _MAX_RUNS:
            raise wrong(f"the factors make more than {_MAX_RUNS} runs")
        for combination in itertools.product(*values.values()):
            found[_factors(dict(zip(values, combination, strict=True)), wrong)] = None
    runs = [Run(factors, repeat) for repeat in range(repeats) for factors in found]
    return Study(
        name,
        str(told.get("about", "")),
        str(told.get("paper", "")),
        repeats,
        float(scale),
        float(time_scale),
        seed,
        record,
        float(longest_s),
        image,
        EngineName(engine),
        in_order(runs, seed),
    )


def _share_of_cpus(blocks: list[Any]) -> int:
    """Returns the CPUs per job when the largest number of containers in the study run at once.

    Jobs on the host get the same number. With more threads than that, threads spin while they wait
    for CPUs, and a step takes several times as long.
    """
    most = 1
    for block in blocks:
        told = block.get("where", []) if isinstance(block, dict) else []
        for where in told if isinstance(told, list) else [told]:
            if isinstance(where, str) and _WHERE.fullmatch(where) and where != "host":
                most = max(most, int(where))
    return max(1, len(os.sched_getaffinity(0)) // most)


def _power_modes(told: list[Any], wrong: Any) -> list[PowerMode | None]:
    found: list[PowerMode | None] = []
    for one in told:
        if one == "machine":
            found += Machine().modes()
        elif isinstance(one, dict):
            try:
                found.append(parse_mode(one))
            except JobError as error:
                raise wrong(f"`power_mode`: {error}") from None
        else:
            raise wrong(f'`power_mode` is a table of settings, or "machine", not {one!r}')
    return found


def _factors(told: dict[str, Any], wrong: Any) -> Factors:
    if type(every := told.get("checkpoint_every")) is int:
        told = {**told, "checkpoint_every": str(every)}
    try:
        factors = Factors(**told)
    except TypeError:
        unknown = sorted(set(told) - set(Factors.__dataclass_fields__))
        raise wrong(f"there is no factor {', '.join(map(repr, unknown))}") from None
    for name, kind, said in _KINDS:
        value = getattr(factors, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise wrong(f"`{name}` is {said}, not {value!r}"[:200])
    models.find_model(factors.model)
    medium = media.find_medium(factors.medium)
    if not isinstance(factors.where, str) or not _WHERE.fullmatch(factors.where):
        raise wrong(f'`where` is "host" or "1" to "64", not {factors.where!r}')
    if factors.mode not in _MODES or factors.cache not in ("dropped", "kept"):
        raise wrong('`mode` is "train", "infer" or "serve", `cache` "dropped" or "kept"')
    every, way = factors.checkpoint_every, factors.checkpoint_way
    if every is not None and not CHECKPOINT_TIMES.fullmatch(every):
        raise wrong(f'`checkpoint_every` is "epoch", "end" or a number of steps, not {every!r}')
    if way is not None and way not in list(CheckpointWay):
        raise wrong(f"`checkpoint_way` is one of {', '.join(CheckpointWay)}, not {way!r}")
    for value in (factors.rate, factors.requests):
        if (value is not None) != (factors.mode == "serve"):
            raise wrong('`rate` and `requests` are given with `mode = "serve"`, and only with it')
    rate = factors.rate
    if rate is not None and not (_is_number(rate) and 0 < rate < _MOST_A_SECOND):
        raise wrong(f"`rate` is a number of requests a second, not {rate!r}")
    for name in ("at_least", "at_most"):
        value = getattr(factors, name)
        if value is None:
            continue
        if not _is_number(value) or not 0 < value < _YEAR_S:
            raise wrong(f"`{name}` is a number of seconds above 0, below one year, not {value!r}")
    for name in ("workers", "batch_size", "epochs", "batches", "threads", "requests"):
        value = getattr(factors, name)
        if value is not None and (type(value) is not int or value < (name != "workers")):
            raise wrong(f"`{name}` is a whole number, not {value!r}")
    if not factors.containers and (factors.cpus is not None or not factors.seccomp):
        raise wrong("`cpus` and `seccomp` apply only to containers")
    for name in ("memory", "swap", "dirty_background_bytes"):
        if (size := getattr(factors, name)) is not None:
            try:
                parse_bytes(size)
            except JobError as error:
                raise wrong(f"`{name}`: {error}"[:200]) from None
    if factors.swap is not None and factors.memory is None:
        raise wrong("`swap` is given with `memory`, and only with it")
    cluster = factors.page_cluster
    if cluster is not None and (type(cluster) is not int or not 0 <= cluster <= _MOST_CLUSTER):
        raise wrong(f"`page_cluster` is a whole number up to {_MOST_CLUSTER}, not {cluster!r}")
    if cluster is not None and factors.swap is None:
        raise wrong("`page_cluster` is given with `swap`, and only with it")
    if factors.swap is not None and (medium.name == media.RAM or medium.speed is not None):
        raise wrong(f"`swap` lies on a disk; the medium {medium.name!r} is in memory or limited")
    quota = factors.power_mode is not None and factors.power_mode.cpu_quota is not None
    if quota and factors.cpus is not None:
        raise wrong("`cpus` and a power mode's `cpu_quota` limit the same time; give one of them")
    return factors
