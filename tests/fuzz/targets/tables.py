"""Tables of a trace, as Parquet, and every verb that reads a trace."""

from __future__ import annotations

import atexit
import io
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutation import NUMBERS, mutated
from tests.fuzz.parts import joined, parted
from tests.fuzz.target import target
from tests.fuzz.verbs import called
from tests.support.hostile import NAMES, make_harmful
from tests.support.studies import make_study
from tracer.analysis.views.catalogue import VIEWS
from tracer.analysis.views.in_phase import IN_PHASE, SUFFIX
from tracer.probes.schema import Column, Table, Type
from tracer.store.trace import ALL_TABLES, Trace

_BITS = {Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_TEXTS = ("8:0", "7:0", "W", "WS", "R", "FWFSM", "start", "written", "bio_queue", "issue",
          "complete", "insert", "target", "job", "step", "train", "fsync", "periodic", "x" * 70_000,
          *NAMES)  # fmt: skip
_QUERIED = (*ALL_TABLES, *VIEWS, *(name + SUFFIX for name in IN_PHASE))

_Verb = Callable[[Path, Path], object]


def _queries(trace: Path, _: Path) -> None:
    """Ask for some tables and views, by chance of the folder's bytes."""
    size = sum(path.stat().st_size for path in (trace / "events").iterdir())
    for name in Random(size).sample(_QUERIED, 3):
        called("query", trace, f"SELECT * FROM {name}", "--json")


def _packed(trace: Path, folder: Path) -> None:
    called("pack", trace, "-o", folder / "t.tar.zst")
    called("unpack", folder / "t.tar.zst", "-o", folder / "back.trace")
    called("info", folder / "t.tar.zst")


def _simulated(*more: str) -> _Verb:
    return lambda trace, _: called("simulate", trace, "--json", *more)


def _exported(format: str) -> _Verb:
    return lambda trace, out: called("export", trace, "--format", format, "-o", out / "x")


def _compared(trace: Path, folder: Path, *more: object) -> None:
    shutil.copytree(trace, folder / "b.trace")
    called("compare", trace, folder / "b.trace", *more)


_VERBS: dict[str, _Verb] = {
    "info": lambda trace, _: called("info", trace),
    "report": lambda trace, _: called("report", trace),
    "report json": lambda trace, _: called("report", trace, "--json", "--by", "phase"),
    "report page": lambda trace, out: called("report", trace, "--html", out / "x.html"),
    "compare": _compared,
    "compare json": lambda trace, out: _compared(trace, out, "--json"),
    "compare page": lambda trace, out: _compared(trace, out, "--html", out / "x.html"),
    "query": _queries,
    "query csv": lambda t, _: called("query", t, "SELECT * FROM flushes", "--csv"),
    "simulate paper": _simulated("--capacity", "64K"),
    "simulate curve": _simulated("--model", "curve", "--identity", "file", "--wanted", "0.5"),
    "simulate timed": _simulated("--model", "timed", "--capacity", "64K", "--destage", "age"),
    "export perfetto": _exported("perfetto"),
    "export chrome": _exported("chrome"),
    "export csv": _exported("csv"),
    "export parquet": _exported("parquet"),
    "pack": _packed,
}


_OFTEN = [1 if name.startswith(("report", "compare")) else 4 for name in _VERBS]
"""The share of inputs of each: some take a second."""


_BASES = ("usual", "harmful")


@cache
def _traces() -> dict[str, Path]:
    """A trace of ordinary rows, and one of every table and values at their limits."""
    folder = Path(tempfile.mkdtemp(prefix="tracer-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_study(folder / "study")
    make_harmful(folder / "harmful.trace", 11).close()
    return {"usual": folder / "study/runs/4-1/run.trace", "harmful": folder / "harmful.trace"}


def _file_of(trace: Path, table: str) -> Path:
    return trace / f"{table}.parquet" if table == "loss" else trace / f"events/{table}.parquet"


def _tables(trace: Path) -> list[str]:
    return [name for name in ALL_TABLES if _file_of(trace, name).exists()]


def _value(chance: Random, column: Column) -> Any:
    if column.nullable and chance.random() < 0.15:
        return None
    match column.type:
        case Type.TEXT:
            return chance.choice(_TEXTS)
        case Type.BOOL:
            return chance.random() < 0.5
        case Type.FLOAT64:
            return chance.choice((0.0, -1.0, 1e308, float("nan"), float("-inf"), 3.5))
        case Type.UINT64:
            return chance.choice((0, 1, 7, abs(chance.choice(NUMBERS)) & (1 << 64) - 1))
    half = 1 << _BITS[column.type] - 1
    usual = chance.choice((0, 1, 7, 8, 9, 1000, 10**9))
    number = usual if chance.random() < 0.7 else chance.choice(NUMBERS)
    return (number + half) % (2 * half) - half


def _changed_rows(chance: Random, table: Table, rows: pa.Table) -> pa.Table:
    """Some values are others: columns of all rows, or single ones."""
    told = rows.to_pydict()
    for column in chance.sample(table.columns, min(len(table.columns), chance.choice((1, 2, 9)))):
        if column.name not in told:
            continue
        often = chance.choice((0.1, 1.0))
        told[column.name] = [
            _value(chance, column) if chance.random() < often else old for old in told[column.name]
        ]
    return pa.table(told, rows.schema)


def _changed_schema(chance: Random, rows: pa.Table) -> pa.Table:
    name = chance.choice(rows.column_names)
    at = rows.column_names.index(name)
    match chance.randrange(5):
        case 0:
            return rows.drop_columns([name])
        case 1:
            return rows.append_column(chance.choice((name, name.upper())), rows[name])
        case 2:
            return rows.set_column(at, name, pa.nulls(len(rows), rows.schema.field(name).type))
        case 3:
            kinds = (pa.int8(), pa.string(), pa.list_(pa.int64()), pa.timestamp("ns"), pa.binary())
            return rows.set_column(at, name, pa.nulls(len(rows), chance.choice(kinds)))
    return rows.rename_columns([chance.choice((c, c, c, "", "\0")) for c in rows.column_names])


def _table(chance: Random, name: str, data: bytes) -> bytes:
    if chance.random() < 0.3:
        return mutated(chance, data)
    rows = pq.read_table(io.BytesIO(data))
    if len(rows) and chance.random() < 0.5:
        order = [chance.randrange(len(rows)) for _ in range(chance.choice((1, 5, 40, 200)))]
        rows = rows.take(pa.array(order))
    rows = rows.slice(0, 300)
    if chance.random() < 0.2:
        rows = _changed_schema(chance, rows)
    else:
        rows = _changed_rows(chance, ALL_TABLES[name], rows)
    out = io.BytesIO()
    pq.write_table(rows, out, compression=chance.choice(("none", "zstd", "snappy")),
                   use_dictionary=chance.random() < 0.5)  # fmt: skip
    return out.getvalue()


def _mutate(chance: Random, data: bytes) -> bytes:
    """Another verb, another trace, one or two tables of it changed."""
    verb = parted(data)["verb"]
    if verb:
        verb = chance.choices(list(_VERBS), _OFTEN)[0].encode()
    base = chance.choice(_BASES)
    trace = _traces()[base]
    changed = {
        name: _table(chance, name, _file_of(trace, name).read_bytes())
        for name in chance.sample(_tables(trace), chance.choice((1, 1, 2)))
    }
    return joined({"verb": verb, "base": base.encode(), **changed})


def _laid_out(data: bytes, folder: Path) -> tuple[str, Path]:
    """The verb, and the trace with the tables of the input."""
    files = parted(data)
    verb, base = files.pop("verb").decode(), files.pop("base").decode()
    trace = folder / "t.trace"
    shutil.copytree(_traces()[base], trace)
    for name, content in files.items():
        _file_of(trace, name).write_bytes(content)
    return verb, trace


def _every_verb() -> list[bytes]:
    """Each verb with a trace that it can read: one that lacks no table for queries."""
    bases = {"query": b"harmful"}
    return [joined({"verb": n.encode(), "base": bases.get(n, b"usual")}) for n in _VERBS]


@target(_every_verb, _mutate, tries=4)
def verbs(data: bytes, folder: Path) -> None:
    """Tables of a trace, and a verb that reads it."""
    verb, trace = _laid_out(data, folder)
    _VERBS[verb](trace, folder)


@target(lambda: [joined({"verb": b"", "base": name.encode()}) for name in _BASES], _mutate, tries=8)
def tables(data: bytes, folder: Path) -> None:
    """Tables of a trace, read as they are."""
    names = [name for name in parted(data) if name not in ("verb", "base")]
    _, trace = _laid_out(data, folder)
    with Trace(trace) as opened:
        for name in names:
            opened.arrow(f'SELECT * FROM "{name}"').validate(full=True)
