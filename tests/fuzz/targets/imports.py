"""Files of other tools, imported: a trace comes of each, or an error."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from tests.fuzz.mutation import NUMBERS, mutated, mutated_text, number
from tests.fuzz.target import target
from tests.fuzz.targets.rings import FIXTURES, format_texts, ring_page
from tests.support import foreign
from tracer.analysis.exchange.formats import import_file
from tracer.store import manifest as manifests

_EXCHANGE = FIXTURES / "exchange"


def _imported(data: bytes, folder: Path, format: str) -> None:
    (folder / "in").write_bytes(data)
    import_file(folder / "in", folder / "out.trace", format)
    manifest = manifests.read(folder / "out.trace")
    for name, facts in manifest["tables"].items():
        table = pq.ParquetFile(folder / "out.trace" / "events" / f"{name}.parquet")
        assert table.metadata.num_rows == facts["rows"]


def _real(*names: str) -> list[bytes]:
    return [(_EXCHANGE / name).read_bytes() for name in names]


def _formats_by_chance(chance: Random) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in chance.sample(sorted(format_texts()), 4):
        if name.startswith("perf:"):
            continue
        text = format_texts()[name]
        if chance.random() < 0.2:
            text = mutated_text(chance, text.encode()).decode("utf-8", "replace")
        found.setdefault(name.partition(":")[0], []).append(text)
    return {**found, **foreign.FORMATS}


def _of_pages(chance: Random) -> dict[int, list[bytes]]:
    cpus = chance.sample((0, 1, 2, 32_767, 70_000), chance.choice((1, 2)))
    return {cpu: [ring_page(chance) for _ in range(chance.choice((0, 1, 2)))] for cpu in cpus}


def _names(chance: Random) -> str:
    return "".join(f"{chance.choice(NUMBERS)} name\n" for _ in range(3))


def _dat6(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.5:
        return mutated(chance, data)
    stats = tuple(f"CPU: {n}\noverrun: {chance.choice(NUMBERS)}\n" for n in range(2))
    made = foreign.trace_dat6(
        _of_pages(chance), _formats_by_chance(chance), _names(chance), stats=stats
    )
    return mutated(chance, made[:3000]) + made[3000:] if chance.random() < 0.5 else made


def _with_text(name: str) -> list[bytes]:
    """The file, and a text: what does not begin as trace.dat does is read as one."""
    return [*_real(name), _lines("load.trace-cmd.txt")[0]]


@target(lambda: _with_text("load.v6.dat"), _dat6, tries=10)
def trace_dat_6(data: bytes, folder: Path) -> None:
    """trace.dat of version 6."""
    _imported(data, folder, "trace-cmd")


def _dat7(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.4:
        return mutated(chance, data)
    compression = chance.choice(("none", "zlib", "zstd"))
    made = foreign.trace_dat7(
        _of_pages(chance), compression, _formats_by_chance(chance), _names(chance)
    )
    return mutated(chance, made) if chance.random() < 0.5 else made


@target(lambda: _with_text("load.v7.dat"), _dat7, tries=10)
def trace_dat_7(data: bytes, folder: Path) -> None:
    """trace.dat of version 7."""
    _imported(data, folder, "trace-cmd")


def _blk_records(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.5:
        return mutated(chance, data)
    out = b""
    for n in range(chance.choice((1, 5, 40))):
        more = chance.randbytes(chance.choice((0, 0, 4, 16)))
        word = struct.Struct("<I").unpack
        size, action, tid, device, cpu = (
            word(number(chance, 4))[0] if chance.random() < 0.2 else usual
            for usual in (4096, chance.randrange(20) | 2 << 16, 77, 7 << 20, chance.randrange(3))
        )
        time = chance.choice((1000 * n, int.from_bytes(number(chance, 8), "little")))
        record = foreign.blk_io(time, n, 0, 0, size, 0, tid, cpu, more=more, device=device)
        out += record[:28] + struct.pack("<I", action) + record[32:]
    return out


@target(lambda: _real("load.blktrace.0", "load.blktrace.1"), _blk_records, tries=10)
def blktrace(data: bytes, folder: Path) -> None:
    """DEVICE.blktrace.CPU."""
    _imported(data, folder, "blktrace")


@target(lambda: _lines("load.blkparse.txt"), mutated_text, tries=10)
def blkparse(data: bytes, folder: Path) -> None:
    """Output of blkparse."""
    _imported(data, folder, "blktrace")


def _lines(*names: str) -> list[bytes]:
    """The begins and the ends of texts: short, so that many can be tried."""
    found = []
    for data in _real(*names):
        lines = data.splitlines(keepends=True)
        found += [b"".join(lines[:12]), b"".join(lines[-12:])]
    return found


@target(lambda: _lines("load.perf-script.txt"), mutated_text, tries=10)
def perf_script(data: bytes, folder: Path) -> None:
    """Output of perf script."""
    _imported(data, folder, "perf-script")


@target(lambda: _lines("load.trace-cmd.txt"), mutated_text, tries=10)
def trace_cmd_text(data: bytes, folder: Path) -> None:
    """Output of trace-cmd report."""
    _imported(data, folder, "trace-cmd")


@target(lambda: [b"ts_ns,dev,page,pages,op\n1,8:0,5,2,W\n2,8:0,5,1,R\n9,8:0,0,0,F\n"], mutated_text)
def page_csv(data: bytes, folder: Path) -> None:
    """Page operations as CSV."""
    _imported(data, folder, "csv")


@target(
    lambda: [
        b"fio version 3 iolog\n5 a add\n5 a write 0 4096\n6 a read 4096 4096\n7 a sync\n",
        b"fio version 2 iolog\n/a add\n/a write 0 4096\n/a wait 5 0\n/a trim 0 9\n",
    ],
    mutated_text,
)
def fio_iolog(data: bytes, folder: Path) -> None:
    """fio's write_iolog."""
    _imported(data, folder, "fio-iolog")


@target(
    lambda: [
        b"128166372003061629,hm,0,Read,383496192,32768,8102\n"
        b"128166372016382155,hm,1,Write,2822144,4096,1000\n"
    ],
    mutated_text,
)
def msr_csv(data: bytes, folder: Path) -> None:
    """Block traces of MSR Cambridge."""
    _imported(data, folder, "msr-csv")


@target(lambda: [struct.pack("<IQIq", n, n % 7, 4096, -1) for n in range(3)])
def oracle_general(data: bytes, folder: Path) -> None:
    """libCacheSim's oracleGeneral."""
    _imported(data, folder, "oracle-general")
