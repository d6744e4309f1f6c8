"""No file is written by its path but through the modules that follow no link.

A path that another user can change leads wherever that user wants. So our code opens files to
write in `WRITERS` alone. To make a folder is no such thing: mkdir(2) follows no link at the end.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("tracer", "probes", "analysis", "workloads")

WRITERS = {
    "tracer/store/files.py",
    "workloads/files.py",
    "probes/backends/drain.py",  # new_file: new, and through no link
    "tracer/phases/marks.py",  # new, and through no link; stands alone in any container
    "tracer/phases/automatic/startup/sitecustomize.py",  # likewise
    "workloads/studies/scratch.py",  # its image: new, and through no link
}
KERNEL = {
    ("probes/backends/ftrace/instance.py", "remove"): "tracefs",
    ("workloads/modes/controllers.py", "switch_off"): "cgroups",
    ("workloads/modes/mechanism.py", "write"): "sysfs",
    ("workloads/studies/scheduler.py", "_write"): "sysfs",
    **{
        ("workloads/studies/throttle.py", name): "cgroups"
        for name in ("__enter__", "_limit", "take_down", "_move_to")
    },
}
"""Functions that write files of the kernel, where nobody can make links."""

METHODS = {"write_text", "write_bytes", "touch"}
FUNCTIONS = {
    *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move")),
    *(f"tempfile.{name}" for name in ("NamedTemporaryFile", "mktemp", "mkstemp")),
    *("np.save", "np.savez", "numpy.save"),
}
LAST = {"open", *METHODS, *(name.rpartition(".")[2] for name in FUNCTIONS)}
"""The last parts of the names of calls that may write."""


def writers(source: str) -> list[tuple[str, int, str]]:
    """(function around it, line, name) of each call that may write a file by its path."""
    found: list[tuple[str, int, str]] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and (name := _writes(node)):
            found.append((function, node.lineno, name))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def _writes(call: ast.Call) -> str | None:
    method = getattr(call.func, "attr", getattr(call.func, "id", None))
    if method not in LAST:
        return None
    name = ast.unparse(call.func)
    if isinstance(call.func, ast.Attribute) and method in METHODS:
        return name
    if name in FUNCTIONS:
        return name
    if name == "os.open":
        return name if "O_CREAT" in ast.unparse(call) else None
    if method == "open" and name not in ("tarfile.open", "Image.open"):
        return name if _mode(call, method=name != "open" and not _of_module(name)) else None
    return None


def _of_module(name: str) -> bool:
    return name in ("io.open", "gzip.open", "bz2.open", "lzma.open", "fsspec.open")


def _mode(call: ast.Call, method: bool) -> bool:
    """Returns whether the mode of a call of open, or of Path.open, permits writing."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    modes += call.args[:1] if method else call.args[1:2]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return any(isinstance(text, str) and set(text) & set("wax+") for text in texts)


def product_files() -> list[str]:
    """The product's own files."""
    paths = (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test_only_the_modules_that_follow_no_link_open_files_to_write():
    found = [
        f"{name}:{line} {what}"
        for name in product_files()
        if name not in WRITERS
        for function, line, what in writers((ROOT / name).read_text())
        if (name, function) not in KERNEL
    ]
    assert found == []


def test_every_exception_is_still_needed():
    for name in WRITERS:
        assert writers((ROOT / name).read_text()) or "O_CREAT" in (ROOT / name).read_text(), name
    for name, function in KERNEL:
        assert function in {where for where, _, _ in writers((ROOT / name).read_text())}, name


@pytest.mark.parametrize(
    "call",
    [
        'open(path, "w")',
        'open(path, mode="ab")',
        'path.open("x")',
        'path.open("r+b", buffering=0)',
        'gzip.open(path, "wb")',
        'path.write_text("x")',
        "path.touch()",
        "shutil.copy(a, b)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "tempfile.NamedTemporaryFile()",
    ],
)
def test_a_writer_is_found(call):
    assert writers(f"def f():\n    {call}") == [("f", 2, call.partition("(")[0])]


@pytest.mark.parametrize(
    "call",
    ["open(path)", 'path.open("rb")', 'os.fdopen(fd, "wb")', "os.open(path, os.O_RDONLY)"],
)
def test_code_that_reads_or_has_a_descriptor_is_not_a_writer(call):
    assert writers(call) == []
