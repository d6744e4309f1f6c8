"""`make test-wheel` without a Debian: the files of the package, and the comparison with them."""

from __future__ import annotations

import subprocess

import pytest

from scripts.packaging.distributions import compare, contents_of
from scripts.packaging.errors import CannotPackage
from scripts.packaging.sizes import table


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a package that links to a folder beside it, and a file unknown to git."""
    (tmp_path / "tracer/cli").mkdir(parents=True)
    (tmp_path / "probes").mkdir()
    (tmp_path / "tracer/cli/main.py").write_bytes(b"main")
    (tmp_path / "probes/a.bpf.c").write_bytes(b"program")
    (tmp_path / "tracer/probes").symlink_to("../probes")
    (tmp_path / "README.md").write_bytes(b"read me")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "probes/scratch.py").write_bytes(b"unknown to git")
    return tmp_path


def test_the_package_has_the_linked_folders_in_place_of_the_links(checkout):
    assert contents_of(checkout) == {
        "tracer/cli/main.py": b"main",
        "tracer/probes/a.bpf.c": b"program",
    }


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a": b"1"}, "the wheel lacks: b (1 files)"),
        ({"a": b"1", "b": b"2", "c": b"3"}, "files that git does not know: c (1 files)"),
        ({"a": b"1", "b": b"3"}, "other contents of: b (1 files)"),
    ],
)
def test_a_difference_names_the_file(found, said):
    with pytest.raises(CannotPackage) as refused:
        compare("the wheel", found, {"a": b"1", "b": b"2"})
    assert said in str(refused.value)


def test_small_distributions_share_a_row():
    assert table({"big": 3 << 20, "small": 1 << 20, "tiny": 1 << 19}, 2 << 20)[2:] == [
        "| big | 3.0 |",
        "| 2 others | 1.5 |",
        "| all | 4.5 |",
    ]
