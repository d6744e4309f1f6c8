"""Address spaces follow mappings as a dictionary of pages would."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.probes.symbols.mappings import (
    CLEAR,
    FAULT,
    MAP,
    NOWHERE,
    AddressSpaces,
    MappedFile,
    Steps,
)


def steps(rows):
    what, address, ip, file, offset = zip(*rows, strict=True)
    return Steps(
        np.array(what, np.int8),
        np.array(address, np.int64),
        np.array(ip, np.int64),
        np.array(file, np.int32),
        np.array(offset, np.int64),
    )


def step():
    place = st.integers(0, 40)
    return st.one_of(
        st.tuples(st.just(FAULT), place, place, st.just(0), st.just(0)),
        st.tuples(st.just(MAP), place, place, st.integers(0, 5), st.integers(0, 1000)),
        st.tuples(st.just(CLEAR), st.just(0), st.just(0), st.just(0), st.just(0)),
    )


@settings(deadline=None)  # the first call compiles
@given(st.lists(step(), min_size=1, max_size=60), st.integers(1, 5))
def test_like_a_dictionary_of_pages(rows, pieces):
    spaces = AddressSpaces()
    pages = {}
    expected = []
    for what, address, ip, file, offset in rows:
        if what == CLEAR:
            pages.clear()
        elif what == MAP:
            for page in range(address, ip):
                pages[page] = (file, offset + page - address)
        else:
            expected.append((*pages.get(address, (NOWHERE, 0)), *pages.get(ip, (NOWHERE, 0))))
    found = []
    for part in np.array_split(np.arange(len(rows)), pieces):
        if not len(part):
            continue
        mine = steps([rows[i] for i in part])
        places = spaces.walk(7, mine)
        for i in np.flatnonzero(mine.what == FAULT):
            found.append(
                (
                    int(places.file[i]),
                    int(places.offset[i]),
                    int(places.ip_file[i]),
                    int(places.ip_offset[i]),
                )
            )
    assert found == expected


@settings(deadline=None)
@given(st.lists(step(), min_size=1, max_size=60))
def test_a_file_keeps_its_number_as_long_as_it_is_mapped_or_held(rows):
    """Numbers are given to other files, and no fault shows another file for that."""
    spaces, pages, held = AddressSpaces(least_files=1), {}, []
    for n, (what, address, ip, _, offset) in enumerate(rows):
        file = MappedFile(f"/{n}")
        number = spaces.number(file) if what == MAP else 0
        found = int(spaces.walk(7, steps([(what, address, ip, number, offset)])).file[0])
        if what == CLEAR:
            pages.clear()
        elif what == MAP:
            pages.update(dict.fromkeys(range(address, ip), file))
        elif address in pages:
            held.append((found, pages[address]))
        else:
            assert found == NOWHERE
        assert [spaces.files[number] for number, _ in held] == [file for _, file in held]
        spaces.forget_closed(np.array([number for number, _ in held], np.int32))
    assert set(spaces.files) >= {*pages.values(), *(file for _, file in held)}


def test_files_that_come_and_go_are_not_kept():
    """Two DataLoader workers map four files in shared memory a step, for days."""
    spaces = AddressSpaces()
    for n in range(20_011):
        at = n % 16
        spaces.walk(7, steps([(MAP, at, at + 1, spaces.number(MappedFile(f"/{n}")), 0)]))
        spaces.forget_closed()
    assert len(spaces.files) == 4096
    spaces.walk(7, steps([(CLEAR, 0, 0, 0, 0)]))
    for n in range(4096):
        spaces.number(MappedFile(f"/more {n}"))
        spaces.forget_closed()
    assert len(spaces.files) == 4096


def test_a_process_that_maps_without_end_is_forgotten_and_others_are_not():
    spaces = AddressSpaces(most_mappings=1009)
    file = spaces.number(MappedFile("/x"))
    spaces.snapshot(1, [(10, 20, file, 0)])
    for n in range(3 * 1009):
        spaces.walk(2, steps([(MAP, 2 * n, 2 * n + 1, file, 0)]))
        spaces.forget_closed()
    assert spaces.forgotten == 2
    assert (where(spaces, 1, 12), where(spaces, 2, 0)) == (file, NOWHERE)


def where(spaces, pid, address):
    return int(spaces.walk(pid, steps([(FAULT, address, address, 0, 0)])).file[0])


def test_a_child_has_its_parents_mappings_and_then_its_own():
    spaces = AddressSpaces()
    spaces.snapshot(1, [(10, 20, 3, 0)])
    spaces.fork(1, 2)
    spaces.walk(2, steps([(MAP, 10, 15, 4, 0)]))
    assert (where(spaces, 1, 12), where(spaces, 2, 12), where(spaces, 2, 17)) == (3, 4, 3)
    spaces.walk(1, steps([(CLEAR, 0, 0, 0, 0)]))
    assert (where(spaces, 1, 17), where(spaces, 2, 17)) == (NOWHERE, 3)


def test_a_stack_grows_down_but_not_over_what_lies_below():
    spaces = AddressSpaces()
    stack = spaces.number(MappedFile("[stack]"))
    other = spaces.number(MappedFile("/lib/x.so"))
    top = 1 << 40
    spaces.snapshot(1, [(top - (4 << 20), top - (3 << 20), other, 0), (top, top + 8192, stack, 0)])
    assert where(spaces, 1, top - 4096) == stack
    assert where(spaces, 1, top - (2 << 20)) == stack
    assert where(spaces, 1, top - (3 << 20) - 1) == other


def test_nothing_is_known_of_a_space_never_seen():
    assert where(AddressSpaces(), 5, 4096) == NOWHERE


def test_only_files_are_looked_up():
    names = ["/lib/x.so", "[heap]", "//anon", "/memfd:a (deleted)", "/SYSV0 (deleted)", ""]
    assert [MappedFile(name).is_file for name in names] == [True] + [False] * 5


def test_a_file_without_a_place_is_the_one_with_its_inode():
    """runc executes itself by a mount without a place, where its path is "/"."""
    runc, other = MappedFile("/usr/sbin/runc", (8, 1), 7), MappedFile("/bin/sh", (8, 1), 8)
    spaces = AddressSpaces(least_files=1)
    number = spaces.number(runc)
    assert spaces.number(MappedFile("/", (8, 1), 7)) == number
    assert spaces.files[spaces.number(MappedFile("/", (8, 2), 7))].path == "/"
    spaces.forget_closed(np.array([spaces.number(other)], np.int32))
    # Its path may belong to another file by now.
    assert spaces.files[spaces.number(MappedFile("/", (8, 1), 7))].path == "/"
