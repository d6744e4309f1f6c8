"""The names of devices: partition and disk, btrfs and its members, what lies on what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.probes.errors import BadTrace
from tracer.store.devices import EVERYWHERE, Devices, Names, Place

DISK, FIRST, SECOND, LOOP = "8:0", "8:1", "8:2", "7:0"
FSID, BDI = "35cbcaf9-a890-4565-b69e-e6ec26acd374", "btrfs-1"


def partition(dev, start, sectors, disk=DISK):
    return {"dev": dev, "bytes": 512 * sectors, "partition_of": disk, "start": start}


def mount(dev, **more):
    return {"dev": dev, "path": f"/{dev}", "type": "ext4", "source": "x", **more}


TWO = [{"dev": DISK, "bytes": 1 << 20}, partition(FIRST, 8, 80), partition(SECOND, 88, 100)]


def pieces(**manifest):
    return {(p.place.first, p.place.end): p.names.fs for p in Devices(manifest).pieces}


def test_a_device_that_nobody_tells_of_is_a_disk_of_one_name():
    devices = Devices({})
    assert (devices.whole("9:9"), devices.names("9:9")) == ("9:9", Names("9:9", "9:9"))
    assert devices.places("9:9") == [Place("9:9", 0, EVERYWHERE)]
    assert (devices.pieces, devices.all_names(), devices.below("9:9")) == ([], {}, {})


def test_a_partition_has_the_disks_name_in_write_back_and_a_place_on_it():
    devices = Devices({"disks": TWO})
    assert devices.whole(SECOND) == DISK
    assert devices.names(SECOND) == Names(SECOND, DISK)
    assert devices.places(SECOND) == [Place(DISK, 88, 188)]
    assert pieces(disks=TWO) == {(8, 88): FIRST, (88, 188): SECOND}


def test_a_btrfs_is_known_by_its_uuid_its_number_and_its_members():
    found = {"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [FIRST, LOOP]}
    devices = Devices({"disks": TWO, "btrfs": [found]})
    assert {devices.names(name) for name in (FSID, "0:50", BDI, FIRST, LOOP)} == {Names(BDI, BDI)}
    assert devices.places("0:50") == [Place(DISK, 8, 88), Place(LOOP)]
    assert [(p.place, p.names.fs) for p in devices.pieces] == [
        (Place(LOOP), BDI),
        (Place(DISK, 8, 88), BDI),
        (Place(DISK, 88, 188), SECOND),
    ]


def test_more_devices_below_others_than_any_machine_has_are_refused():
    members = [f"9:{number}" for number in range(1000)]
    found = {"fsid": FSID, "bdi": BDI, "dev": "", "devices": members}
    disks = [{"dev": f"10:{number}", "on": [BDI]} for number in range(1000)]
    assert len(list(Devices({"disks": disks[:100], "btrfs": [found]}).stacked())) == 100_000
    with pytest.raises(BadTrace, match="1000000 devices below others"):
        Devices({"disks": disks, "btrfs": [found]})


def test_an_overlay_is_what_its_upper_layer_is_on():
    devices = Devices({"disks": TWO, "mounts": [mount(FIRST), mount("0:60", on=FIRST)]})
    assert devices.names("0:60") == Names(FIRST, DISK)
    assert devices.places("0:60") == [Place(DISK, 8, 88)]
    # The author of the manifest may be hostile.
    assert Devices({"mounts": [mount("0:1", on="0:2"), mount("0:2", on="0:1")]}).names("0:1")


def test_the_disks_of_a_stacked_device_are_known():
    found = {"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [SECOND]}
    disks = [*TWO, {"dev": LOOP, "on": [FIRST]}, {"dev": "253:0", "on": ["0:50", LOOP]}]
    devices = Devices({"disks": disks, "btrfs": [found]})
    assert devices.below(LOOP) == {FIRST: [DISK]}
    assert devices.below("253:0") == {"0:50": [DISK], LOOP: [LOOP]}


def test_bcaches_data_lies_in_order_behind_its_cache():
    behind = {"backing_dev": FIRST, "backing_offset": 16}
    disks = [*TWO, {"dev": "8:16", "bytes": 1 << 20}]
    devices = Devices({"disks": [*disks, {"dev": "252:0", "on": [FIRST, "8:16"], **behind}]})
    assert list(devices.cached()) == [
        ("252:0", Place(DISK, 24, 88), True),
        ("252:0", Place("8:16"), False),
    ]
    assert list(Devices({"disks": [*disks, {"dev": "253:0", "on": [FIRST]}]}).cached()) == []


def test_a_disk_that_is_mounted_itself_has_no_partitions_in_use():
    assert pieces(disks=TWO, mounts=[mount(DISK)]) == {}


def test_an_overlap_belongs_to_the_partition_in_use_or_else_to_the_inner_one():
    extended = [partition("8:4", 100, 100), partition("8:5", 110, 20), partition("8:6", 140, 10)]
    assert pieces(disks=extended) == {
        (100, 110): "8:4", (110, 130): "8:5", (130, 140): "8:4", (140, 150): "8:6",
        (150, 200): "8:4",
    }  # fmt: skip
    whole = pieces(disks=extended, mounts=[mount("8:4")])
    assert list(whole) == [(100, 110), (110, 130), (130, 140), (140, 150), (150, 200)]
    assert set(whole.values()) == {"8:4"}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.booleans()), max_size=12))
def test_no_sector_has_two_volumes_and_each_has_one_of_those_that_cover_it(spans):
    disks = [partition(f"8:{n}", start, size) for n, (start, size, _) in enumerate(spans, 1)]
    mounts = [mount(f"8:{n}") for n, (*_, used) in enumerate(spans, 1) if used]
    found = Devices({"disks": disks, "mounts": mounts}).pieces
    for sector in range(72):
        there = [p.names.fs for p in found if p.place.first <= sector < p.place.end]
        covering = {
            f"8:{n}": used
            for n, (start, size, used) in enumerate(spans, 1)
            if start <= sector < start + size
        }
        assert len(there) == bool(covering)
        if there:
            assert covering[there[0]] == any(covering.values())


def test_disks_that_several_file_systems_are_mounted_from_are_shared():
    found = {"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [SECOND]}
    mounts = [mount(FIRST), mount(FIRST), mount(SECOND), mount("0:50")]
    assert Devices({"disks": TWO, "mounts": mounts[:2]}).shared() == []
    assert Devices({"disks": TWO, "mounts": mounts[:3]}).shared() == [DISK]
    # btrfs has a name of its own.
    assert Devices({"disks": TWO, "mounts": mounts[::3], "btrfs": [found]}).shared() == []


OLDER = [{"dev": dev, "partition_of": DISK} for dev in (FIRST, SECOND)]


class TestOlderTraces:
    """They do not tell where a partition begins."""

    def test_the_only_one_in_use_is_the_whole_disk(self):
        devices = Devices({"disks": OLDER, "mounts": [mount(FIRST)]})
        assert devices.places(FIRST) == [Place(DISK, 0, EVERYWHERE)]
        assert [piece.names.fs for piece in devices.pieces] == [FIRST]
        assert devices.without_place(DISK) == []

    def test_the_places_of_two_partitions_without_a_begin_are_not_guessed(self):
        devices = Devices({"disks": OLDER, "mounts": [mount(FIRST), mount(SECOND)]})
        assert (devices.pieces, devices.without_place(DISK)) == ([], [FIRST, SECOND])
        with pytest.raises(BadTrace, match="where partition 8:1 begins"):
            devices.places(FIRST)


def test_metadata_is_dirtied_in_the_inode_of_the_partition():
    devices = Devices({"disks": [*TWO, partition("8:x", 8, 8)]})
    assert devices.device_inodes([DISK, "9:9", "btrfs-1"]) == {
        (DISK, 8 << 20): 0, (DISK, (8 << 20) + 1): 1, (DISK, (8 << 20) + 2): 11,
        ("9:9", (9 << 20) + 9): 0,
    }  # fmt: skip


def test_a_volume_lies_on_what_its_devices_lie_on_in_part_or_as_a_whole():
    mapped = {"dev": "253:0", "bytes": 1 << 20, "on": [SECOND, "8:16"]}
    top = {"dev": "253:1", "bytes": 1 << 20, "on": ["253:0"]}
    devices = Devices({"disks": [*TWO, {"dev": "8:16", "bytes": 1 << 20}, mapped, top]})
    first, second, other = (devices.places(name) for name in (FIRST, SECOND, "8:16"))
    for volume in ("253:0", "253:1"):
        assert devices.lies_on(volume, first) == (False, False)
        assert devices.lies_on(volume, second) == (True, False)
        assert devices.lies_on(volume, [*other, *second]) == (True, True)
    assert devices.lies_on(FIRST, devices.places(DISK)) == (True, True)
    assert devices.lies_on(DISK, first) == (False, False)
    assert devices.lies_on("", first) == (False, False)


def test_devices_that_lie_on_each_other_in_a_circle_lie_on_nothing_else():
    circle = [
        {"dev": dev, "bytes": 1 << 20, "on": [on]} for dev, on in (("253:0", LOOP), (LOOP, "253:0"))
    ]
    devices = Devices({"disks": [{**circle[0]}, {**circle[1], "backing_ino": None}]})
    assert devices.lies_on("253:0", [Place(DISK)]) == (False, False)


@pytest.mark.parametrize(
    ("more", "found"),
    [({"backing_ino": None}, True), ({"backing_ino": 77}, False), ({}, False)],
    ids=["a device", "a file", "an unknown file"],
)
def test_a_loop_device_lies_on_a_device_but_not_on_that_of_its_file(more, found):
    loop = {"dev": LOOP, "bytes": 1 << 20, "on": [FIRST], "backing_file": "/image", **more}
    devices = Devices({"disks": [*TWO, loop]})
    assert devices.lies_on(LOOP, devices.places(DISK)) == (found, found)
