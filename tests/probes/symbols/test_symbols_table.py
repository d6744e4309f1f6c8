"""A table answers as one would who looked at every symbol for every address."""

import ctypes
import os
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.probes.symbols.demangle import Demangler, shared_demangler
from tracer.probes.symbols.table import MAX_NAME, SymbolColumns, build_table, readable_names

pytestmark = pytest.mark.slow

Symbol = namedtuple("Symbol", "start end sized rank")


def columns(symbols, names=None, blob=None):
    names = [b"s%d" % i for i in range(len(symbols))] if names is None else names
    blob = b"".join(name + b"\0" for name in names)
    lengths = np.array([len(name) + 1 for name in names], dtype=np.int64)
    return SymbolColumns(
        np.array([s.start for s in symbols], dtype=np.uint64),
        np.array([s.end for s in symbols], dtype=np.uint64),
        np.array([s.sized for s in symbols], dtype=np.bool_),
        np.array([s.rank for s in symbols], dtype=np.int64),
        np.cumsum(lengths) - lengths,
        blob,
    )


def expected(symbols, address, by_rank):
    """The index of the symbol at an address by the words of `build_table`."""
    covering = [i for i, s in enumerate(symbols) if s.sized and s.start <= address < s.end]
    if covering:

        def preference(i):
            first = 0 if by_rank else symbols[i].start
            return (first, symbols[i].rank, -i)

        return max(covering, key=preference)

    def free(i):
        s = symbols[i]
        return (
            not s.sized
            and s.start < s.end
            and not any(o.sized and o.start <= s.start < o.end for o in symbols)
        )

    before = [i for i in range(len(symbols)) if free(i) and symbols[i].start <= address]
    if not before:
        return None
    start = max(symbols[i].start for i in before)
    best = max(
        (i for i in before if symbols[i].start == start), key=lambda i: (symbols[i].rank, -i)
    )
    cut = any(s.sized and start < s.start <= address and s.start < s.end for s in symbols)
    return None if cut or address >= symbols[best].end else best


@st.composite
def some_symbols(draw):
    symbols = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 40))
        length = draw(st.integers(0, 20))
        symbols.append(Symbol(start, start + length, draw(st.booleans()), draw(st.integers(0, 2))))
    return symbols


@settings(deadline=None, max_examples=400)
@given(some_symbols(), st.booleans())
def test_every_address_has_the_symbol_that_the_rules_name(symbols, by_rank):
    table = build_table([columns(symbols)], by_rank=by_rank)
    addresses = np.arange(64, dtype=np.uint64)
    wanted = [expected(symbols, a, by_rank) for a in range(64)]
    got = table.names_of(addresses)
    assert got == [None if i is None else f"s{i}" for i in wanted]
    assert (table.starts < table.ends).all()
    assert (table.starts[1:] >= table.ends[:-1]).all()


@settings(deadline=None, max_examples=50)
@given(some_symbols(), some_symbols())
def test_two_sources_are_as_one(first, second):
    apart = build_table([columns(first), columns(second, [b"t%d" % i for i in range(len(second))])])
    names = [b"s%d" % i for i in range(len(first))] + [b"t%d" % i for i in range(len(second))]
    together = build_table([columns(first + second, names)])
    addresses = np.arange(64, dtype=np.uint64)
    assert apart.names_of(addresses) == together.names_of(addresses)


def test_the_highest_addresses_are_addresses_like_others():
    top = (1 << 64) - 1
    table = build_table([columns([Symbol(top - 9, top, True, 0), Symbol(0, 5, True, 0)])])
    addresses = np.array([top - 10, top - 9, top - 1, top, 0, 4, 5], dtype=np.uint64)
    assert table.names_of(addresses) == [None, "s0", "s0", None, "s1", "s1", None]


def test_an_empty_table_knows_nothing():
    table = build_table([])
    assert len(table) == 0
    assert table.index_of(np.array([0, 7], dtype=np.uint64)).tolist() == [-1, -1]
    assert table.names_of(np.array([0, 7], dtype=np.uint64)) == [None, None]
    assert table.names_of(np.array([], dtype=np.uint64)) == []
    with pytest.raises(IndexError):
        table.name(0)


def test_index_and_name_agree_with_names_of():
    table = build_table([columns([Symbol(10, 20, True, 0), Symbol(30, 33, True, 0)])])
    index = table.index_of(np.array([9, 10, 19, 20, 32], dtype=np.uint64))
    assert index.tolist() == [-1, 0, 0, -1, 1]
    assert [table.name(0), table.name(1)] == ["s0", "s1"]
    assert table.raw_name(1) == b"s1"


@pytest.mark.parametrize(
    ("raw", "readable"),
    [
        (b"plain", "plain"),
        (b"runtime.(*spanSet).push", "runtime.(*spanSet).push"),
        ("naïve·1".encode(), "naïve·1"),
        (b"not \xff utf-8", "not \\xff utf-8"),
        (b"red\x1b[31m\nline", "red\\x1b[31m\\x0aline"),
        (b"write@plt", "write@plt"),
        (b"x" * 512, "x" * 512),
        (b"x" * 513, "x" * 511 + "…"),
        (b"x" * 513 + b"@plt", "x" * 507 + "…@plt"),
        (b"_ZN5torch8autograd6Engine7executeEv", "torch::autograd::Engine::execute()"),
        (b"_Z3fooi.constprop.0", "foo(int) [clone .constprop.0]"),
        (b"_Z3fooi@plt", "foo(int)@plt"),
        (b"_ZNotAName", "_ZNotAName"),
        (b"_Z3foo\x01i", "_Z3foo\\x01i"),
        (b"", ""),
    ],
)
def test_names_as_one_reads_them(raw, readable):
    assert readable_names([raw]) == [readable]
    assert len(readable) <= MAX_NAME


def doubling(levels):
    """A C++ name in which each argument is the one before, twice: 2**levels long."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "_Z1f1AIiiE"
    for level in range(levels):
        name += f"S_IS{digits[level]}_S{digits[level]}_E"
    return name.encode()


def test_a_name_that_stands_for_gigabytes_stays_as_it_is_and_harms_no_other():
    bomb = doubling(32)
    assert len(bomb) < 400
    demangler = Demangler()
    names = [b"_Z3onev", bomb, b"_Z3twov", doubling(3)]
    got = demangler.demangle(names)
    demangler.close()
    assert got[:3] == ["one()", None, "two()"]
    assert got[3] is not None and got[3].startswith("f(A<int, int>, A<A<int, int>, A<int, int> >")


def test_many_bombs_end_the_demangling_and_not_the_process():
    demangler = Demangler()
    bombs = [doubling(32)] * 40
    assert demangler.demangle(bombs) == [None] * 40
    assert demangler.demangle([b"_Z3onev"]) == [None]  # it has given up
    demangler.close()


def test_a_deep_name_kills_no_more_than_the_worker():
    demangler = Demangler()
    assert demangler.demangle([b"_Z1f" + b"P" * 15000 + b"i", b"_Z3onev"])[1] == "one()"
    demangler.close()


def test_a_closed_demangler_leaves_no_process_and_starts_again():
    demangler = Demangler()
    assert demangler.demangle([b"_Z3onev"]) == ["one()"]
    pid = demangler._worker.pid
    demangler.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert demangler.demangle([b"_Z3onev"]) == ["one()"]
    demangler.close()


def test_a_batch_far_beyond_a_pipe_is_answered_whole():
    count = 10007
    names = [b"_Z%d%sv" % (len(b"f%d" % i), b"f%d" % i) for i in range(count)]
    assert shared_demangler().demangle(names) == [f"f{i}()" for i in range(count)]


def test_the_demangler_says_what_the_library_itself_says():
    name = b"_ZNSt6vectorIN2at6TensorESaIS1_EE9push_backEOS1_"
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_char_p
    assert readable_names([name]) == [library.__cxa_demangle(name, None, None, None).decode()]
