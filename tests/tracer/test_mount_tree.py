"""The mounts that a path still leads to."""

from tracer.probes.proc import read_mounts
from tracer.session.mount_tree import reachable

DISK = "254:0"
LINE = "{} {} {} {} {} rw,relatime shared:1 - {} /dev/x rw\n"


def paths(tmp_path, *mounts, dev=DISK):
    """Mounts are (number, parent, dev, root, path, type)."""
    file = tmp_path / "mountinfo"
    file.write_bytes("".join(LINE.format(*mount) for mount in mounts).encode())
    return [mount.path for mount in reachable(read_mounts(file), dev)]


ROOT = (1, 0, "254:1", "/", "/", "ext4")


def test_whole_file_systems_come_before_parts_and_short_paths_before_long(tmp_path):
    assert paths(
        tmp_path,
        ROOT,
        (2, 1, DISK, "/", "/long/path", "xfs"),
        (3, 1, DISK, "/sub", "/s", "xfs"),
        (4, 1, DISK, "/", "/data", "xfs"),
    ) == [b"/data", b"/long/path", b"/s"]


def test_names_are_bytes_and_their_escapes_undone(tmp_path):
    assert paths(tmp_path, ROOT, (2, 1, DISK, "/", r"/a\040b\012c\134d", "xfs")) == [b"/a b\nc\\d"]
    assert paths(tmp_path, ROOT, (2, 1, DISK, "/", "/a\rb\x0bc", "xfs")) == [b"/a\rb\x0bc"]


def test_files_below_a_mount_are_out_of_reach(tmp_path):
    below = (2, 1, DISK, "/", "/data", "xfs")
    assert paths(tmp_path, ROOT, below, (3, 2, "254:9", "/", "/data", "xfs")) == []
    # A folder on the way to it.
    deep = (2, 1, DISK, "/", "/data/deep", "xfs")
    assert paths(tmp_path, ROOT, deep, (3, 1, "254:9", "/", "/data", "xfs")) == []
    # And what it lies in.
    inner = (4, 2, DISK, "/", "/data/inner", "xfs")
    outer = (2, 1, "254:8", "/", "/data", "xfs")
    assert paths(tmp_path, ROOT, outer, inner) == [b"/data/inner"]
    assert paths(tmp_path, ROOT, outer, inner, (3, 2, "254:9", "/", "/data", "xfs")) == []


def test_a_neighbour_covers_nothing(tmp_path):
    assert paths(
        tmp_path,
        ROOT,
        (2, 1, DISK, "/", "/data", "xfs"),
        (3, 1, "254:9", "/", "/dat", "xfs"),
        (4, 1, "254:10", "/", "/data2", "xfs"),
        (5, 2, "254:11", "/", "/data/sub", "xfs"),
    ) == [b"/data"]


def test_network_and_user_space_file_systems_are_not_asked_for(tmp_path):
    for kind in ("fuse.sshfs", "nfs4", "autofs"):
        assert (
            paths(
                tmp_path,
                ROOT,
                (2, 1, "0:99", "/", "/far", kind),
                (3, 2, DISK, "/", "/far/near", "xfs"),
            )
            == []
        )


def test_lines_that_are_none_and_circles_do_no_harm(tmp_path):
    file = tmp_path / "mountinfo"
    file.write_bytes(b"\nx\n1 2 3:4\n - \n")
    assert read_mounts(file) == []
    assert read_mounts(tmp_path / "none") == []
    assert paths(tmp_path, (1, 2, DISK, "/", "/a", "xfs"), (2, 1, DISK, "/", "/b", "xfs")) == []
