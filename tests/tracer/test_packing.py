"""A trace in one file: it comes out as it went in, or not at all."""

import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile

import pyarrow as pa
import pytest

from tests.support.budget import within_budget
from tests.support.traces import make_trace
from tracer.probes.errors import BadTrace, TracerError, UsageError
from tracer.store.packing import LIST, open_pack, pack, unpack
from tracer.store.trace import Trace


@pytest.fixture
def trace(tmp_path):
    make_trace(
        tmp_path / "run.trace",
        {"syscalls": [{"ts": 1, "tid": 2, "nr": 3, "name": "read"}], "block": []},
    ).close()
    raw = tmp_path / "run.trace/raw"
    (raw / "marks").mkdir(parents=True)
    (raw / "marks/1-2-0.marks").write_bytes(b"mark")
    (raw / "ftrace-target-cpu0.raw").write_bytes(b"\0" * 4096)
    (raw / "link").symlink_to("/etc/passwd")
    return tmp_path / "run.trace"


def contents(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_trace_comes_out_as_it_went_in(trace, tmp_path):
    pack(trace, tmp_path / "a.tar.zst")
    unpack(tmp_path / "a.tar.zst", tmp_path / "b.trace")
    found = contents(tmp_path / "b.trace")
    assert found == {n: d for n, d in contents(trace).items() if not n.startswith("raw/")}
    with Trace(tmp_path / "b.trace") as opened:
        assert opened.sql("SELECT name FROM syscalls")["name"].tolist() == ["read"]
    assert (tmp_path / "a.tar.zst").stat().st_mode & 0o777 == 0o600


def test_raw_streams_come_along_where_asked_for_and_links_never(trace, tmp_path):
    pack(trace, tmp_path / "a.tar.zst", raw=True)
    found = contents(unpack(tmp_path / "a.tar.zst", tmp_path / "b.trace"))
    assert found["raw/marks/1-2-0.marks"] == b"mark"
    assert "raw/ftrace-target-cpu0.raw" in found
    assert "raw/link" not in found


def test_folders_in_folders_are_passed_over(trace, tmp_path):
    """There are more of them than a function may call itself."""
    make = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-S", "-c", make], cwd=trace / "raw", check=True)
    try:
        pack(trace, tmp_path / "a.tar.zst", raw=True)
    finally:
        subprocess.run(["rm", "-r", trace / "raw/d"], check=True)
    found = contents(unpack(tmp_path / "a.tar.zst", tmp_path / "b.trace"))
    assert found["raw/marks/1-2-0.marks"] == b"mark"


def test_verbs_read_a_pack_as_it_is(trace, tmp_path, tracer):
    tracer("pack", trace)
    assert tracer("info", "run.trace.tar.zst", "--json").json["tables"]["syscalls"]["rows"] == 1
    assert "exists" in tracer("pack", trace, status=2).err
    assert "exists" in tracer("unpack", "run.trace.tar.zst", status=2).err
    tracer("unpack", "run.trace.tar.zst", "-o", "copy.trace")
    assert tracer("info", "copy.trace", "--json").json["complete"]


def test_any_tar_opens_it(trace, tmp_path):
    pack(trace, tmp_path / "a.tar.zst")
    with (
        pa.input_stream(str(tmp_path / "a.tar.zst"), compression="zstd") as stream,
        tarfile.open(fileobj=io.BytesIO(stream.read())) as tar,
    ):
        names = tar.getnames()
    assert names[:2] == [LIST, "manifest.json"]


def a_pack(path, members, listed=None, kinds=None):
    """A pack of these members (name, data), made by hand."""
    if listed is None:
        listed = [
            {"name": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in members
        ]
    head = listed
    if not isinstance(listed, bytes):
        head = json.dumps({"pack": 1, "members": listed}).encode()
    data = b""
    for name, content in [(LIST, head), *members]:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        info.type = (kinds or {}).get(name, tarfile.REGTYPE)
        data += info.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)
    with path.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as out:
        out.write(data + b"\0" * 1024)
    return path


MANIFEST = ("manifest.json", b"{}")


class TestHostile:
    @pytest.mark.parametrize(
        ("members", "kinds", "said"),
        [
            ([MANIFEST, ("../x", b"1")], {}, "no trace has"),
            ([MANIFEST, ("/etc/x", b"1")], {}, "no trace has"),
            ([MANIFEST, ("events/../../x.parquet", b"1")], {}, "no trace has"),
            ([MANIFEST, ("events/mine.parquet", b"1")], {}, "no trace has"),
            ([MANIFEST, ("raw/..", b"1")], {}, "no trace has"),
            ([MANIFEST, ("raw/a\nb", b"1")], {}, "no trace has"),
            (
                [MANIFEST, ("raw/marks", b"1"), ("raw/marks/a", b"2")],
                {},
                "both a file and a folder",
            ),
            (
                [MANIFEST, ("raw/marks/a", b"2"), ("raw/marks", b"1")],
                {},
                "both a file and a folder",
            ),
            ([MANIFEST, ("raw/x", b"")], {"raw/x": tarfile.SYMTYPE}, "plain files"),
            ([MANIFEST, ("raw/x", b"")], {"raw/x": tarfile.LNKTYPE}, "plain files"),
            ([MANIFEST, ("raw/x", b"")], {"raw/x": tarfile.CHRTYPE}, "plain files"),
            ([MANIFEST, ("raw/x", b"")], {"raw/x": tarfile.DIRTYPE}, "plain files"),
            ([MANIFEST, MANIFEST], {}, "not a pack"),
            ([("loss.parquet", b"")], {}, "not a pack"),
            ([], {}, "not a pack"),
            ([MANIFEST], {}, "damaged"),
        ],
    )
    def test_members_that_no_pack_has(self, tmp_path, members, kinds, said):
        a_pack(tmp_path / "a", members, kinds=kinds)
        with pytest.raises(BadTrace, match=said):
            unpack(tmp_path / "a", tmp_path / "out.trace")
        assert [p.name for p in tmp_path.iterdir()] == ["a"]

    def test_another_checksum_or_size(self, tmp_path):
        entry = {"name": "manifest.json", "size": 2, "sha256": "0" * 64}
        a_pack(tmp_path / "a", [MANIFEST], [entry])
        with pytest.raises(BadTrace, match="was altered after packing"):
            unpack(tmp_path / "a", tmp_path / "out.trace")
        a_pack(tmp_path / "a", [MANIFEST], [{**entry, "size": 3}])
        with pytest.raises(BadTrace, match="other files"):
            unpack(tmp_path / "a", tmp_path / "out.trace")

    @pytest.mark.parametrize("size", [2**63 - 1, 2**40 + 1, 2**30])
    def test_a_bomb_is_refused_by_what_it_says(self, tmp_path, size):
        entry = {"name": "manifest.json", "size": size, "sha256": "0" * 64}
        a_pack(tmp_path / "a", [MANIFEST], [entry])
        with pytest.raises(BadTrace, match=r"too large|too much"):
            unpack(tmp_path / "a", tmp_path / "out.trace")

    def test_a_bomb_is_refused_before_it_is_unpacked(self, tmp_path):
        """Zeros, which pack to a thousandth and less."""
        table = ("events/syscalls.parquet", bytes(65 << 20))
        bomb = a_pack(tmp_path / "a", [MANIFEST, table])
        assert bomb.stat().st_size < 1 << 20
        with pytest.raises(BadTrace, match="too much"):
            unpack(bomb, tmp_path / "out.trace")

    def test_cut_off_anywhere_or_with_a_bit_flipped(self, trace, tmp_path):
        pack(trace, tmp_path / "a.tar.zst")
        whole = (tmp_path / "a.tar.zst").read_bytes()
        random.seed(23)
        broken = [whole[:n] for n in range(0, len(whole), 61)]
        for _ in range(100):
            data = bytearray(whole)
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            broken.append(bytes(data))
        good = contents(trace)
        for data in broken:
            (tmp_path / "b").write_bytes(data)
            try:
                unpack(tmp_path / "b", tmp_path / "out.trace", force=True)
            except TracerError:
                assert not (tmp_path / "out.trace").exists() or (tmp_path / "out.trace").is_dir()
            else:  # a bit that means nothing
                found = contents(tmp_path / "out.trace")
                assert all(good[name] == content for name, content in found.items())
        assert not list(tmp_path.glob(".*"))

    @pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfd", b"PK\3\4", b"\0" * 5000])
    def test_no_pack_at_all(self, tmp_path, tracer, data):
        (tmp_path / "a").write_bytes(data)
        ran = tracer("unpack", "a", status=6)
        assert len(ran.err.strip().splitlines()) == 1


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'{"name":1}'])
def test_a_list_without_end_is_refused_within_the_budget(tmp_path, value):
    """Parsed JSON takes up to a hundred times the bytes of its text."""
    listed = b'{"pack":1,"members":[' + value + (b"," + value) * (20_000_000 // len(value)) + b"]}"
    a_pack(tmp_path / "x.tar.zst", [], listed)
    error = within_budget(unpack, tmp_path / "x.tar.zst", tmp_path / "out.trace")
    assert "it has more than 1048576 parts" in str(error)


def test_a_pack_is_opened_for_a_while(trace, tmp_path):
    pack(trace, tmp_path / "a.tar.zst")
    with open_pack(tmp_path / "a.tar.zst") as opened:
        folder = opened.folder
        assert (folder / "manifest.json").exists()
    assert not folder.parent.exists()


def test_nothing_stays_of_a_pack_that_cannot_be_read(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    pack(trace, tmp_path / "a.tar.zst")
    with pytest.raises(BadTrace) as error, open_pack(tmp_path / "a.tar.zst") as opened:
        opened.rows("SELECT error(name) FROM syscalls")
    assert error.traceback  # it keeps the trace alive, as the errors of a worker do
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_foreign_folder_is_not_replaced(trace, tmp_path):
    pack(trace, tmp_path / "a.tar.zst")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").write_text("dear")
    with pytest.raises(UsageError, match="not a trace"):
        unpack(tmp_path / "a.tar.zst", tmp_path / "mine", force=True)
    assert (tmp_path / "mine/letter").exists()
