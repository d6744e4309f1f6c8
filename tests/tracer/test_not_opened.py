"""Files that are not regular are not even opened: opening a device may have an effect."""

import ctypes
import os
import subprocess
import sys

import pytest

from tracer.probes.backends.perf_tools import perf_data
from tracer.probes.backends.timeline import open_raw
from tracer.probes.errors import BadTrace
from tracer.probes.sampler.residency import resident_pages
from tracer.store.perf import kernel_functions
from tracer.targets.engines.containerd import Containerd

IN_OPEN = 0x20
DAEMON = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"containerd")  # PR_SET_NAME
os.open(sys.argv[1], os.O_PATH)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pipe(tmp_path):
    """Makes a named pipe; returns its path, and a function that tells whether it was opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    told = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def make(name):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        assert libc.inotify_add_watch(told, os.fsencode(path), IN_OPEN) > 0
        return path, was_opened

    def was_opened():
        try:
            return bool(os.read(told, 4096))
        except BlockingIOError:
            return False

    yield make
    os.close(told)


def refused(function, path):
    with pytest.raises(BadTrace):
        function(path)


READERS = {
    "residency": lambda path: resident_pages(str(path)),
    "a raw stream": lambda path: refused(open_raw, path),
    "perf's file": lambda path: refused(perf_data._opened, path),
    "the kernel's functions": lambda path: refused(kernel_functions, path.parent),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_named_pipe_in_place_of_a_file_is_not_opened(pipe, read):
    path, was_opened = pipe("kallsyms")
    read(path)
    assert not was_opened()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    assert was_opened()


def test_a_named_pipe_in_place_of_containerds_database_is_not_opened(pipe):
    path, was_opened = pipe("io.containerd.metadata.v1.bolt/meta.db")
    command = [sys.executable, "-S", "-E", "-c", DAEMON, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.readline()
        Containerd().names()
        process.stdin.close()
    assert not was_opened()
