"""The C of the eBPF backend, which clang compiles at each start."""

from importlib import resources

import pytest

from tracer.probes.backends.ebpf import programs

SOURCES = {
    path.name: path.read_text()
    for path in resources.files("tracer.probes.backends.ebpf").iterdir()
    if path.name.endswith(".bpf.c")
} | {"the doctor's": programs._SMALL}


def test_there_are_sources():
    assert {"capture.bpf.c", "summary.bpf.c", "the doctor's"} <= set(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_no_header_of_the_kernel_is_included(name):
    """bcc brings all that the programs use; the kernel's structs take clang three seconds."""
    assert "#include" not in SOURCES[name]
