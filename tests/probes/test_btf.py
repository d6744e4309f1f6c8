"""The kernel's types. The layout is that of Documentation/bpf/btf.rst, written here by hand."""

import struct

import pytest

from tracer.probes.backends.own_bpf.btf import STRUCT, TYPEDEF, Types
from tracer.probes.errors import FeatureMissing

INT, PTR, ARRAY, UNION, ENUM, FWD, FUNC, FUNC_PROTO, VAR, DATASEC, DECL_TAG, ENUM64 = (
    *(1, 2, 3, 5, 6, 7, 12, 13, 14, 15, 17, 19),
)


class Writer:
    """Types in the order in which they are added; their ids begin with 1."""

    def __init__(self):
        self.types = b""
        self.strings = b"\0"

    def name(self, text):
        if not text:
            return 0
        if (found := self.strings.find(b"\0" + text.encode() + b"\0")) < 0:
            found = len(self.strings) - 1
            self.strings += text.encode() + b"\0"
        return found + 1

    def add(self, kind, name="", size=0, parts=0, flag=0, more=b""):
        info = flag << 31 | kind << 24 | parts
        self.types += struct.pack("=III", self.name(name), info, size) + more

    def members(self, *members):
        return b"".join(struct.pack("=III", self.name(n), t, o) for n, t, o in members)

    def write(self, path):
        head = struct.pack(
            "=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings)
        )
        path.write_bytes(head + self.types + self.strings)
        return Types(path)


@pytest.fixture
def types(tmp_path):
    made = Writer()
    made.add(INT, "u64", 8, more=struct.pack("=I", 64))  # 1
    made.add(PTR, size=1)
    made.add(ARRAY, more=struct.pack("=III", 1, 1, 31))
    made.add(ENUM, "some", 4, 2, more=bytes(16))
    made.add(ENUM64, "more", 8, 2, more=bytes(24))
    made.add(FUNC_PROTO, size=1, parts=3, more=bytes(24))
    made.add(FUNC, "sys_enter", 6)
    made.add(VAR, "counter", 1, more=bytes(4))
    made.add(DATASEC, ".data", 8, 1, more=bytes(12))
    made.add(DECL_TAG, "tag", 1, more=bytes(4))  # 10
    made.add(STRUCT, "", 24, 2, more=made.members(("regs", 3, 0), ("sp", 1, 31 * 64)))
    made.add(UNION, "", 24, 2, more=made.members(("user", 2, 0), ("", 11, 0)))  # 12
    made.add(FWD, "pt_regs")  # a name alone
    inside = made.members(("first", 1, 0), ("", 12, 64), ("last", 1, 4096))
    made.add(STRUCT, "pt_regs", 600, 3, more=inside)  # 14
    # With a size in the highest byte of each offset: three bits, then a whole word.
    fields = made.members(("few", 1, 3 << 24 | 64), ("pid", 1, 128))
    made.add(STRUCT, "task_struct", 40, 2, flag=1, more=fields)
    made.add(TYPEDEF, "btf_trace_sys_enter", 2)  # 16
    return made.write(tmp_path / "btf")


def test_types_are_numbered_from_1_whatever_is_between(types):
    assert types.number("u64", INT) == 1
    assert types.number("pt_regs", FWD) == 13
    assert types.number("pt_regs", STRUCT) == 14
    assert types.number("btf_trace_sys_enter", TYPEDEF) == 16


def test_offsets_of_members(types):
    assert types.offset("pt_regs", "first") == 0
    assert types.offset("pt_regs", "last") == 512
    assert types.offset("task_struct", "few") == 8
    assert types.offset("task_struct", "pid") == 16


def test_members_of_parts_without_a_name(types):
    assert types.offset("pt_regs", "user") == 8
    assert types.offset("pt_regs", "regs") == 8
    assert types.offset("pt_regs", "sp") == 8 + 31 * 8


def test_a_missing_type_or_member_is_a_missing_feature(types):
    with pytest.raises(FeatureMissing, match="no sys_enter"):
        types.number("sys_enter", TYPEDEF)
    with pytest.raises(FeatureMissing, match="no trace_sys_enter"):
        types.number("trace_sys_enter", TYPEDEF)  # only the end of a name
    with pytest.raises(FeatureMissing, match="pt_regs has no di"):
        types.offset("pt_regs", "di")


@pytest.mark.parametrize("content", [b"", b"\x9f\xeb", b"\xeb\x9f" + bytes(40)])
def test_a_file_of_something_else_is_a_missing_feature(tmp_path, content):
    path = tmp_path / "btf"
    path.write_bytes(content)
    with pytest.raises(FeatureMissing, match="is not BTF"):
        Types(path)


def test_a_kernel_without_types_is_a_missing_feature(tmp_path):
    with pytest.raises(FeatureMissing, match="No such file"):
        Types(tmp_path / "none")
