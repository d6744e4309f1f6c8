"""Destage policies: hand-made traces with known answers."""

import math

import pytest

from tests.support.bios import bios
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import DOCS, Destage, names, policy_called, preset
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.probes.errors import UsageError

MS = 1_000_000
HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)
PCM = devices.find_device("pcm-paper", "nvm")
FAR = (1000 * MS, "read", 999, 1)
"""Something that comes late, so that there is time to destage until then."""


def run(rows, destage, capacity=10, **more):
    return simulate(bios(rows, **more), HDD, Layer(capacity, PCM, destage))


def writes(pages, apart=20 * MS):
    return [(i * apart, "write", page, 1) for i, page in enumerate(pages)]


def test_lazy_destages_only_to_make_room():
    outcome = run([*writes([1, 2, 3]), FAR], Destage("lazy"))
    assert outcome.layers[0].destaged == 0


def test_eager_destages_at_once_and_keeps_what_it_has_clean():
    # 1 is on the disk when it comes again: no disk write is saved, and it needs no slot.
    rows = [*writes([1, 2, 1]), FAR, (1100 * MS, "read", 1, 1)]
    outcome = run(rows, Destage("eager"), capacity=2)
    [layer] = outcome.layers
    assert (layer.destaged, layer.overwritten, layer.resident) == (3, 0, 0)
    assert outcome.evictions.sum() == 0
    assert outcome.response_ns.tolist() == [350, 350, 350, 8 * MS, 350]


def test_eager_saves_what_comes_again_before_its_turn():
    # All within the 8 ms in which the first is written; one may be on its way at once.
    rows = [*writes([1, 2, 2, 2], apart=MS), FAR]
    [layer] = run(rows, Destage("eager", outstanding=1)).layers
    assert (layer.destaged, layer.overwritten) == (2, 2)


def test_a_page_written_again_on_its_way_is_destaged_again():
    [layer] = run([*writes([1, 1], apart=MS), FAR], Destage("eager")).layers
    assert (layer.destaged, layer.overwritten) == (2, 0)


def test_a_bio_waits_for_what_is_on_its_way_already():
    # 1 is sent at 0 and takes 8 ms; 2 comes at 1 ms and needs its slot: 7 ms more.
    rows = [*writes([1, 2], apart=MS), FAR]
    outcome = run(rows, Destage("eager"), capacity=1)
    assert outcome.response_ns.tolist() == [350, 7 * MS + 350, 8 * MS]
    assert outcome.layers[0].destaged == 2


def test_watermark_destages_from_the_high_one_to_the_low_one():
    # 10 pages: destaging starts at 5 dirty ones and stops at 2.
    policy = Destage("watermark", outstanding=1, high=0.5, low=0.2)
    assert run([*writes([1, 2, 3, 4]), FAR], policy).layers[0].destaged == 0
    [layer] = run([*writes([1, 2, 3, 4, 5]), FAR], policy).layers
    assert (layer.destaged, layer.resident, layer.most_dirty) == (3, 2, 5)


def test_watermark_destages_what_was_written_longest_ago():
    # 1 is written again: 2, 3 and 4 go to the disk, and are still there to be read.
    policy = Destage("watermark", outstanding=1, high=0.4, low=0.1)
    rows = [*writes([1, 2, 3, 1, 4]), FAR, (1100 * MS, "write", 1, 1), (1200 * MS, "write", 2, 1)]
    outcome = run(rows, policy)
    assert outcome.layers[0].destaged == 3
    assert outcome.hits.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    again = run([*rows[:5], FAR, (1100 * MS, "write", 4, 1)], policy)
    assert again.hits[-1] == 1  # 4 was the last one left


def test_watermark_counts_what_is_on_its_way_as_gone():
    # Ten writes within the time of one destage: 5 dirty ones start it, and it stops at 2, though
    # those on their way are not on the disk yet.
    policy = Destage("watermark", outstanding=64, high=0.5, low=0.2)
    [layer] = run([*writes(range(5), apart=1), (2 * MS, "read", 999, 1)], policy).layers
    assert (layer.destaged, layer.resident) == (3, 2)


def test_watermark_commits_what_it_has_to_destage():
    policy = Destage("watermark", high=0.5, low=0.2, autocommit_pages=1000)
    [layer] = run([*writes([1, 2, 3, 4, 5]), (150 * MS, "read", 999, 1)], policy).layers
    assert layer.destaged == 3


def test_the_pages_behind_a_destaged_one_go_along():
    # 4 is the oldest; 5 and 6 follow it on the disk, however young. 8 does not. 6 was written
    # right after 5, and 5 not right after 4.
    rows = [*writes([4, 8, 1, 5, 6]), (150 * MS, "read", 999, 1)]
    destaged = {}
    for runs in ("none", "slots", "places"):
        policy = Destage("watermark", high=0.5, low=0.4, runs=runs)
        destaged[runs] = run(rows, policy).layers[0].destaged
    assert destaged == {"none": 1, "slots": 1, "places": 3}
    policy = Destage("watermark", high=0.5, low=0.4, runs="slots")
    in_order = [*writes([5, 6, 1, 2, 9]), (150 * MS, "read", 999, 1)]
    assert run(in_order, policy).layers[0].destaged == 2


def test_a_write_goes_around_a_full_layer_and_pauses_destaging():
    # Two slots: the third page goes to the disk at once, and nothing is destaged for 100 ms.
    policy = Destage("watermark", high=0.5, low=0.0, around=True, pause_ns=100 * MS, outstanding=1)
    rows = [(0, "write", 1, 1), (1, "write", 2, 1), (2, "write", 3, 1)]
    outcome = run([*rows, (90 * MS, "read", 999, 1)], policy, capacity=2)
    assert outcome.response_ns[2] == 16 * MS - 2  # behind the first destage
    assert outcome.layers[0].destaged == 1
    assert run([*rows, FAR], policy, capacity=2).layers[0].destaged == 2


def test_flushes_that_go_to_the_disk_pause_destaging():
    # The fifth page comes at 80 ms. The flush at 100 ms pauses destaging until 200 ms, because the
    # disk needs no time for it.
    rows = [(10 * MS, "flush", 0, 0), *writes([1, 2, 3, 4, 5]), (100 * MS, "flush", 0, 0)]
    settings = {"high": 0.5, "low": 0.2, "pause_ns": 100 * MS}
    for last, destaged in ((191 * MS, 0), (193 * MS, 3)):  # the read ends 8 ms later
        for flushes in (True, False):
            policy = Destage("watermark", flushes=flushes, **settings)
            bios_in_order = sorted([*rows, (last, "read", 999, 1)])
            assert run(bios_in_order, policy).layers[0].destaged == (destaged if flushes else 3)


def test_the_pause_begins_when_the_last_bio_around_the_layer_is_complete():
    # Two slots. 3 and 4 go around, behind the destage of 1, and are complete at 24 ms.
    policy = Destage("watermark", high=0.5, low=0.0, around=True, pause_ns=100 * MS, outstanding=1)
    rows = [(i, "write", page, 1) for i, page in enumerate([1, 2, 3, 4])]
    for last, destaged in ((115 * MS, 1), (117 * MS, 2)):
        [layer] = run([*rows, (last, "read", 999, 1)], policy, capacity=2).layers
        assert layer.destaged == destaged


def test_a_page_that_is_overwritten_in_its_slot_keeps_its_turn():
    # The four pages are dirty at 80 ms; two go. 1 is written again at 60 ms.
    destaged = {}
    for renews in ("all", "committed", "none"):
        for flushed in (False, True):
            policy = Destage(
                "watermark", high=0.4, low=0.2, autocommit_pages=1000, renews=renews, outstanding=1
            )
            rows = [*writes([1, 2, 3, 1, 4]), FAR]
            again = [(1100 * MS, "write", 1, 1), (1120 * MS, "write", 3, 1)]
            between = [(50 * MS, "flush", 0, 0)] if flushed else []
            hits = run(sorted([*rows, *between, *again]), policy).hits
            destaged[renews, flushed] = [
                page for page, hit in zip((1, 3), hits[-2:], strict=True) if not hit
            ]
    assert destaged == {
        ("all", False): [3],
        ("all", True): [3],
        ("committed", False): [1],
        ("committed", True): [3],
        ("none", False): [1],
        ("none", True): [1],
    }


def test_a_batch_is_on_the_disk_before_the_next_one_is_sent():
    # 8 ms a page: the first of two is on the disk as the last bio ends.
    rows = [*writes([1, 3, 5, 7, 9], apart=1), (12 * MS, "write", 11, 1)]
    for settings, destaged in (({"batch": 2}, 2), ({"outstanding": 2}, 3)):
        policy = Destage("watermark", high=0.5, low=0.0, **settings)
        assert run(rows, policy).layers[0].destaged == destaged


def test_a_destaged_page_may_leave():
    rows = [*writes([1, 2, 1]), FAR, (1100 * MS, "read", 1, 1)]
    stays, leaves = (run(rows, Destage("eager", leaves=one), capacity=2) for one in (False, True))
    assert stays.response_ns[-1] == 350
    assert leaves.response_ns[-1] == 8 * MS
    assert leaves.layers[0].destaged == 3


def test_no_more_are_on_their_way_than_may_be():
    rows = [*writes(range(8), apart=1), FAR]
    for outstanding in (1, 3):
        outcome = run(rows, Destage("eager", outstanding=outstanding))
        assert outcome.disks[0].most_in_system == outstanding


def test_idle_waits_until_the_disk_has_been_idle():
    # A read every 20 ms keeps the host at the disk until 100 ms; 50 ms later the two go.
    rows = [(0, "write", 1, 1), (0, "write", 2, 1)]
    rows += [(20 * MS * i, "read", 100 + i, 1) for i in range(1, 6)]
    # A read at 162 ms meets the second of two destages, sent at 158 ms: 108 ms + 50 ms.
    outcome = run([*rows, (162 * MS, "read", 500, 1)], Destage("idle", idle_ns=50 * MS))
    assert outcome.layers[0].destaged == 2
    assert outcome.response_ns[-1] == (158 + 24 - 162) * MS
    none = run([*rows, (157 * MS, "read", 500, 1)], Destage("idle", idle_ns=50 * MS))
    assert none.layers[0].destaged == 0


def test_idle_starts_with_a_write_to_an_idle_disk():
    rows = [(0, "read", 5, 1), (500 * MS, "write", 1, 1), FAR]
    outcome = run(rows, Destage("idle", idle_ns=50 * MS))
    assert outcome.layers[0].destaged == 1


def test_age_destages_what_was_last_written_long_ago():
    # 1 is written every 20 ms until 80 ms, 2 at 20 ms only. At 100 ms 2 is 80 ms old, and goes.
    rows = [(0, "write", 1, 1), (20 * MS, "write", 2, 1)]
    rows += [(20 * MS * i, "write", 1, 1) for i in range(2, 5)]
    [layer] = run([*rows, (99 * MS, "read", 9, 1)], Destage("age", age_ns=80 * MS)).layers
    assert layer.destaged == 1  # the read ends at 107 ms
    [layer] = run([*rows, (90 * MS, "read", 9, 1)], Destage("age", age_ns=80 * MS)).layers
    assert layer.destaged == 0  # the read ends at 98 ms
    [layer] = run([*rows, FAR], Destage("age", age_ns=80 * MS)).layers
    assert layer.destaged == 2


def test_phase_destages_outside_phases_that_wait():
    # Phase 0 waits for the disk. Nothing goes until a bio of phase 1 comes at 40 ms.
    rows = [(0, "write", 1, 1), (20 * MS, "write", 2, 1), (40 * MS, "write", 3, 1), FAR]
    policy = Destage("phase", waiting_phases=(0,))
    assert run(rows, policy, phase=[0, 0, 0, 0]).layers[0].destaged == 0
    assert run(rows, policy, phase=[0, 0, 1, 1]).layers[0].destaged == 3
    assert run(rows, policy, phase=[1, 0, 0, 0]).layers[0].destaged == 1


def test_phase_minds_every_tenant():
    rows = [(0, "write", 1, 1), (20 * MS, "write", 2, 1), (40 * MS, "write", 3, 1), FAR]
    policy = Destage("phase", waiting_phases=(0,))
    apart = run(rows, policy, phase=[0, 1, 1, 1], tenant=[0, 1, 1, 1])
    assert apart.layers[0].destaged == 0
    done = run(rows, policy, phase=[0, 1, 1, 1], tenant=[0, 1, 0, 1])
    assert done.layers[0].destaged == 3


def test_phase_gives_way_to_a_full_layer():
    policy = Destage("phase", waiting_phases=(0,), outstanding=1, high=0.5, low=0.2)
    [layer] = run([*writes([1, 2, 3, 4, 5]), FAR], policy, phase=[0] * 6).layers
    assert (layer.destaged, layer.resident) == (3, 2)


def test_only_what_is_committed_is_destaged():
    # Three writes make a commit: the fourth and fifth stay until 1 s after the first, which
    # started the clock.
    policy = Destage("eager", autocommit_pages=3)
    rows = writes([1, 2, 3, 4, 5])
    assert run([*rows, (990 * MS, "read", 9, 1)], policy).layers[0].destaged == 3
    assert run([*rows, (1000 * MS, "read", 9, 1)], policy).layers[0].destaged == 5


def test_a_flush_commits():
    policy = Destage("eager", autocommit_pages=1000)
    rows = [*writes([1, 2, 3]), (70 * MS, "flush", 0, 0), FAR]
    assert run(rows, policy).layers[0].destaged == 3


def test_a_fua_write_commits():
    policy = Destage("eager", autocommit_pages=1000)
    rows = [*writes([1, 2, 3]), (150 * MS, "read", 999, 1)]
    for through, destaged in ((True, 2), (False, 0)):
        assert run(rows, policy, fua=[False, through, False, False]).layers[0].destaged == destaged


def test_the_presets_are_dm_writecaches():
    policy = preset(devices.find_device("dm-writecache-pmem", "destage"))
    assert (policy.when, policy.high, policy.low) == ("watermark", 0.5, 0.45)
    assert (policy.autocommit_pages, policy.autocommit_ns) == (64, 1_000_000_000)
    assert (policy.runs, policy.around, policy.flushes) == ("places", False, False)
    assert (policy.renews, policy.batch, policy.leaves) == ("committed", 0, True)
    ssd = preset(devices.find_device("dm-writecache-ssd", "destage"))
    assert (ssd.autocommit_pages, ssd.runs) == (65536, "slots")
    assert (ssd.around, ssd.flushes, ssd.pause_ns) == (True, True, 3_000_000_000)
    assert (ssd.renews, ssd.batch, ssd.leaves) == ("none", 64, True)


@pytest.mark.parametrize("preset", ["dm-writecache-pmem", "dm-writecache-ssd"])
@pytest.mark.parametrize("blocks", [10, 37, 50, 100, 101, 103])
def test_the_presets_start_and_stop_where_the_kernel_does(preset, blocks):
    # writecache_ctr() rounds the blocks that are free at a watermark. writecache_writeback() goes
    # on while no more than at the low one are.
    free_high, free_low = (blocks * 50 + 50) // 100, (blocks * 55 + 50) // 100
    policy = policy_called(preset)
    most = blocks - free_high - 1
    apart = [page * 10 for page in range(most + 1)]  # none of them follows another one
    assert run([*writes(apart[:most], MS), FAR], policy, blocks).layers[0].destaged == 0
    [layer] = run([*writes(apart, MS), FAR], policy, blocks).layers
    assert layer.resident == blocks - free_low - 1


def test_watermarks_are_exact_shares_of_the_capacity():
    # As a float, 0.55 of 100 is above 55, and 0.29 of 100 below 29.
    policy = Destage("watermark", high=0.55, low=0.29)
    assert run([*writes(range(54), MS), FAR], policy, 100).layers[0].destaged == 0
    assert run([*writes(range(55), MS), FAR], policy, 100).layers[0].resident == 29


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"when": "never"}, "no destage policy 'never'; known: lazy, eager"),
        ({"high": math.nan}, "high cannot be nan"),
        ({"high": 1.5}, "high cannot be 1.5"),
        ({"low": -0.1}, "low cannot be -0.1"),
        ({"high": 0.2, "low": 0.4}, "low watermark 0.4 is above the high one 0.2"),
        ({"outstanding": 0}, "outstanding cannot be 0"),
        ({"idle_ns": math.inf}, "idle_ns cannot be inf"),
        ({"age_ns": 1 << 62}, "age_ns cannot be 4611686018427387904"),
        ({"autocommit_pages": -1}, "autocommit_pages cannot be -1"),
    ],
)
def test_policies_that_cannot_be_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        Destage(**settings)


@pytest.mark.parametrize("when", DOCS)
def test_every_policy_says_what_it_does(when):
    assert Destage(when).assumption().startswith("dirty pages are destaged ")


def test_policies_say_every_rule_that_they_add():
    lazy = Destage().assumption()
    for name in ("watermark", "dm-writecache-pmem", "dm-writecache-ssd"):
        assert policy_called(name).called == name
    assert len({policy_called(name).assumption() for name in names()}) == len(names())
    for rule in (
        {"outstanding": 7},
        {"autocommit_pages": 12, "autocommit_ns": 3_000_000_000},
        {"runs": "places"},
        {"runs": "slots"},
        {"around": True},
        {"flushes": True},
        {"around": True, "pause_ns": 5_000_000_000},
        {"renews": "committed"},
        {"renews": "none"},
        {"batch": 9},
        {"leaves": True},
    ):
        said = Destage(**rule).assumption()
        assert said.startswith(lazy + "; ") and len(said) > len(lazy) + 10, rule
    assert "at most 7 pages at once" in Destage(outstanding=7).assumption()
    assert "5 s after" in Destage(around=True, pause_ns=5_000_000_000).assumption()
    ssd = policy_called("dm-writecache-ssd").assumption()
    assert "65,536 writes" in ssd and "goes to the disk" in ssd and "64 pages" in ssd


def test_the_use_of_a_layer_has_the_pages_that_went_around_it():
    # Three of four slots are dirty: a write of two pages finds one free.
    rows = [*writes([1, 2, 3]), (70 * MS, "write", 8, 2), FAR]
    policy = Destage("lazy", around=True)
    [layer] = run(rows, policy, capacity=4).layers
    assert (layer.around, layer.written) == (2, 3)


@pytest.mark.parametrize("when", ["eager", "age", "idle", "watermark", "phase"])
def test_a_page_that_another_tenant_writes_is_destaged_from_the_part_that_has_it(when):
    # The first tenant's part of 4 pages has the page that the second one writes again.
    policy = Destage(when, age_ns=50 * MS, idle_ns=10 * MS, high=0.25, low=0)
    rows = [(0, "write", 1, 1), (100 * MS, "write", 1, 1), (5000 * MS, "read", 999, 1)]
    layer = Layer(8, PCM, policy, shares=(1, 1))
    first, second = simulate(bios(rows, tenant=[0, 1, 0]), HDD, layer).layers
    assert (first.written, first.destaged, first.resident) == (2, 2, 0)
    assert (second.written, second.destaged) == (0, 0)


def test_a_fua_write_commits_in_the_part_that_has_its_page():
    policy = Destage("eager", autocommit_pages=1000)
    rows = [(0, "write", 1, 2), (100 * MS, "write", 1, 1), (150 * MS, "read", 999, 1)]
    made = bios(rows, tenant=[0, 1, 0], fua=[False, True, False])
    first, _ = simulate(made, HDD, Layer(8, PCM, policy, shares=(1, 1))).layers
    assert (first.destaged, first.resident) == (2, 0)
