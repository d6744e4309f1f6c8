"""Addresses of the kernel into names of functions."""

from probes.backends.perf_tools.kallsyms import KernelSymbols


def test_a_function_reaches_to_the_next_symbol_of_any_kind():
    symbols = KernelSymbols(b"%x T first\n%x d data\n%x t last\n" % (4096, 8192, 12288))
    assert [symbols.at(a) for a in (4095, 4096, 8191, 8192, 12287, 12288, 16383, 16384)] == [
        None, "first", "first", None, None, "last", "last", None,
    ]  # fmt: skip


def test_of_several_names_the_one_for_everyday_use():
    symbols = KernelSymbols(
        b"ff00 t local\nff00 T __x64_sys_read\nff00 T sys_read\nff00 W weak\nff80 t a\nff80 t abc\n"
    )
    assert (symbols.at(0xFF01), symbols.at(0xFF81)) == ("sys_read", "abc")


def test_what_is_no_symbol_is_skipped():
    text = b"\n\xff\xfe\nff00\nzz T x\nff00 TT x\n0000000000000000 T hidden\nff10 T \xff\n"
    symbols = KernelSymbols(text)
    assert symbols.at(0xFF10) == "\\xff"
    assert symbols.at(5) is None
    assert KernelSymbols(b"").at(0xFF00) is None
