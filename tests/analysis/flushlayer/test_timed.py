"""The timed model: known answers by hand, laws for any trace, hostile input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bios import bios, flat
from tests.support.slow_layer import response_times
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.policies import lru
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import DOCS, Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.outcome import improvement, results
from tracer.analysis.flushlayer.timed.simulation import _world
from tracer.probes.errors import BadTrace, UsageError

MS = 1_000_000
HDD = Disk(devices.find_device("hdd-paper", "disk"), merge=False)
PCM = devices.find_device("pcm-paper", "nvm")


def responses(rows, layer=None, disk=HDD, **more):
    return simulate(bios(rows, **more), disk, layer).response_ns.tolist()


def writes(pages, apart=20 * MS):
    return [(i * apart, "write", page, 1) for i, page in enumerate(pages)]


def test_no_bios_take_no_time():
    outcome = simulate(bios([]), HDD, Layer(4, PCM))
    assert len(outcome.response_ns) == 0
    assert outcome.disks[0].utilisation is None
    assert results(bios([]), outcome).empty


def test_capacity_0_is_no_layer():
    requests = bios(writes([1, 2, 1, 3], apart=3 * MS))
    with_none = simulate(requests, HDD, Layer(0, PCM))
    baseline = simulate(requests, HDD)
    assert (
        with_none.response_ns.tolist()
        == baseline.response_ns.tolist()
        == [
            8 * MS,
            13 * MS,
            18 * MS,
            23 * MS,
        ]
    )
    assert with_none.medium is None
    assert with_none.layers == ()


def test_a_write_with_room_takes_the_mediums_time():
    assert responses(writes([1, 2, 1]), Layer(2, PCM)) == [350, 350, 350]


def test_a_write_without_room_waits_for_a_destage():
    # 1 and 2 fill the layer; 3 evicts 1 (8 ms), then enters; 1 evicts 2.
    outcome = simulate(bios(writes([1, 2, 3, 1])), HDD, Layer(2, PCM))
    assert outcome.response_ns.tolist() == [350, 350, 8 * MS + 350, 8 * MS + 350]
    assert outcome.evictions.tolist() == [0, 0, 1, 1]
    [layer] = outcome.layers
    assert (layer.written, layer.overwritten, layer.destaged, layer.resident) == (4, 0, 2, 2)
    assert outcome.disk_pages == 2


def test_a_hot_page_saves_disk_writes():
    outcome = simulate(bios(writes([1, 1, 1, 2])), HDD, Layer(2, PCM))
    assert outcome.hits.tolist() == [0, 1, 1, 0]
    assert outcome.layers[0].overwritten == 2
    assert outcome.disk_pages == 0


def test_a_bio_of_many_pages_takes_as_many_latencies_of_a_medium_of_unknown_bandwidth():
    assert responses([(0, "write", 0, 3)], Layer(8, PCM)) == [3 * 350]


def test_a_bio_larger_than_the_layer_passes_through_it():
    outcome = simulate(bios([(0, "write", 0, 5)]), Disk(HDD.device), Layer(2, PCM))
    # Three of its own pages go to the disk in one run; then the medium has taken all five.
    assert outcome.response_ns.tolist() == [8 * MS + 5 * 350]
    assert outcome.layers[0].destaged == 3


def test_reads_are_served_by_what_holds_the_pages():
    medium = flat("medium", kind="nvm", read_latency=50, write_latency=350)
    rows = [
        (0, "write", 0, 2),
        (20 * MS, "read", 0, 2),  # all in the layer
        (40 * MS, "read", 1, 2),  # one there, one not
        (60 * MS, "read", 8, 1),  # not there
    ]
    outcome = simulate(bios(rows), HDD, Layer(4, medium))
    assert outcome.response_ns.tolist() == [700, 100, 8 * MS, 8 * MS]
    assert outcome.hits.tolist() == [0, 2, 1, 0]
    assert outcome.layers[0].read_hits == 3


def test_a_read_waits_behind_a_destage():
    rows = [(0, "write", 0, 1), (20 * MS, "write", 1, 1), (21 * MS, "read", 9, 1)]
    assert responses(rows, Layer(1, PCM)) == [350, 8 * MS + 350, 15 * MS]


def test_a_read_page_takes_a_slot_of_a_read_write_buffer():
    rows = [(0, "read", 1, 1), (20 * MS, "read", 1, 1), (40 * MS, "write", 2, 1)]
    rows += [(60 * MS, "write", 3, 1), (80 * MS, "read", 1, 1)]
    outcome = simulate(bios(rows), HDD, Layer(2, PCM, buffer="read-write"))
    # 3 takes the place of the clean page 1, which costs nothing.
    assert outcome.response_ns.tolist() == [8 * MS, 350, 350, 350, 8 * MS]
    # The last read evicts 2, which it does not wait for.
    assert outcome.layers[0].destaged == 1


def test_only_writes_waited_for_enter_a_sync_only_buffer():
    rows = writes([1, 2, 1, 1])
    layer = Layer(4, PCM, buffer="sync-only")
    outcome = simulate(bios(rows, waited=[True, False, False, True]), HDD, layer)
    assert outcome.response_ns.tolist() == [350, 8 * MS, 8 * MS, 350]
    # The third write makes what the layer has of page 1 stale: it never goes to the disk.
    assert outcome.layers[0].overwritten == 1
    assert outcome.layers[0].resident == 1


def test_every_disk_has_a_line_of_its_own():
    rows = [(0, "write", 1, 1), (0, "write", 1, 1), (0, "write", 2, 1)]
    outcome = simulate(bios(rows, device=[0, 1, 1]), HDD)
    assert outcome.response_ns.tolist() == [8 * MS, 8 * MS, 16 * MS]
    fast = Disk(flat("fast", read_latency=1, write_latency=1), merge=False)
    assert simulate(bios(rows, device=[0, 1, 1]), [HDD, fast]).response_ns.tolist() == [
        8 * MS,
        1,
        2,
    ]


def test_partitions_keep_tenants_apart():
    # Tenant 1 writes new pages only. Shared, it drives out the hot page of tenant 0.
    pages = [0, 10, 11, 0, 12, 13, 0, 14, 15, 0]
    tenants = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0]
    requests = bios(writes(pages), tenant=tenants)
    shared = simulate(requests, HDD, Layer(2, PCM))
    apart = simulate(requests, HDD, Layer(2, PCM, shares=(1, 1)))
    by = results(requests, shared, ["tenant"]).set_index("tenant")
    assert by.loc[0, "hit_pages"] == 0
    by = results(requests, apart, ["tenant"]).set_index("tenant")
    assert by.loc[0, "hit_pages"] == 3
    assert by.loc[0, "max_ns"] == 350
    assert [layer.capacity for layer in apart.layers] == [1, 1]


def test_shares_divide_the_whole_capacity():
    assert Layer(10, PCM, shares=(1, 1, 1)).capacities() == [4, 3, 3]
    assert Layer(10, PCM, shares=(0.5, 0.25)).capacities() == [7, 3]


@pytest.mark.parametrize("tenants", [[-1, -1], [-1, 0], [0, 1]])
def test_the_tenant_that_is_not_known_has_a_row(tenants):
    world = _world(bios(writes([1, 2]), tenant=tenants), [HDD], None, "open")
    assert world.bio["tenant"].max() < len(world.tenant)


def test_a_tenant_without_a_share_goes_past():
    requests = bios(writes([1, 2, 3]), tenant=[0, 1, -1])
    outcome = simulate(requests, HDD, Layer(4, PCM, shares=(1,)))
    assert outcome.response_ns.tolist() == [350, 8 * MS, 8 * MS]


def test_evictions_of_another_policy_are_followed():
    # FIFO: the write of 3 drives out 1 though it was written last.
    requests = bios(writes([1, 2, 1, 3, 1]))
    layer = Layer(2, PCM, evicted=np.array([-1, -1, -1, 0, 1], np.int32))
    outcome = simulate(requests, HDD, layer)
    assert outcome.evictions.tolist() == [0, 0, 0, 1, 1]
    assert outcome.layers[0].resident == 2
    assert outcome.layers[0].overwritten == 1


_TRACE = st.lists(
    st.tuples(
        st.integers(0, 12 * MS),
        st.sampled_from(["write", "write", "write", "read", "flush"]),
        st.integers(0, 12),
        st.integers(1, 4),
        st.integers(0, 1),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=60,
)


def trace(rows):
    at = np.cumsum([row[0] for row in rows]).tolist() if rows else []
    table = [
        (t, op, page, 0 if op == "flush" else n)
        for t, (_, op, page, n, *_) in zip(at, rows, strict=True)
    ]
    device, tenant, flag = ([row[i] for row in rows] for i in (4, 5, 6))
    return bios(
        table,
        device=np.array(device, np.int64),
        tenant=np.array(tenant, np.int64),
        phase=np.array(tenant, np.int64),
        fua=np.array(flag, bool),
        waited=np.array(flag, bool),
        chain=np.array(tenant, np.int64),
        done=np.array([t + 5 * MS for t in at], np.int64),
    )


@settings(max_examples=150, deadline=None)
@given(
    _TRACE,
    st.integers(0, 10),
    st.sampled_from(list(DOCS)),
    st.sampled_from(["write-only", "read-write", "sync-only"]),
    st.sampled_from([None, (1.0, 1.0)]),
    st.sampled_from(["open", "closed"]),
    st.sampled_from([0, 3]),
    st.sampled_from(["hdd-paper", "hdd-7200", "ssd-nvme"]),
)
def test_each_written_page_is_destaged_resident_or_overwritten(
    rows, capacity, when, buffer, shares, replay, commit, name
):
    requests = trace(rows)
    destage = Destage(
        when,
        outstanding=3,
        idle_ns=5 * MS,
        age_ns=20 * MS,
        autocommit_pages=commit,
        autocommit_ns=10 * MS,
        waiting_phases=(1,),
    )
    layer = Layer(capacity, PCM, destage, buffer, shares)
    disk = Disk(devices.find_device(name, "disk"))
    outcome = simulate(requests, disk, layer, replay)
    assert (outcome.response_ns >= 0).all()
    for part in outcome.layers:
        assert part.written == part.destaged + part.resident + part.overwritten
        assert part.resident <= part.most_dirty <= part.capacity
    entering = requests.op == 0
    if buffer == "sync-only":
        entering &= requests.waited
    if outcome.layers:
        assert sum(p.capacity for p in outcome.layers) == capacity
        if min(p.capacity for p in outcome.layers) > 0:
            assert sum(p.written for p in outcome.layers) == requests.pages[entering].sum()
            past = requests.pages[(requests.op == 0) & ~entering].sum()
            assert outcome.disk_pages == past + sum(p.destaged for p in outcome.layers)
        into = sum(p.written + p.filled for p in outcome.layers)
        assert outcome.medium.bytes_written == 4096 * into
        read_in = sum(p.filled for p in outcome.layers)
        assert read_in == 0 or buffer == "read-write"
    else:
        assert outcome.disk_pages == requests.pages[requests.op == 0].sum()


@settings(max_examples=200, deadline=None)
@given(_TRACE, st.integers(1, 10), st.booleans(), st.sampled_from([350, 3 * MS + 1]))
def test_response_times_are_those_of_a_slow_and_simple_simulation(rows, capacity, keeps, page_ns):
    requests = trace([(*row[:4], 0, *row[5:]) for row in rows])
    medium = flat("medium", kind="nvm", read_latency=page_ns, write_latency=page_ns)
    layer = Layer(capacity, medium, buffer="read-write" if keeps else "write-only")
    outcome = simulate(requests, HDD, layer)
    wanted = response_times(requests, capacity, 8 * MS, page_ns, keeps)
    assert outcome.response_ns.tolist() == wanted


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 14), st.integers(0, 9))
def test_lazy_destaging_writes_what_the_papers_lru_writes(pages, capacity, apart):
    requests = bios(writes(pages, apart * MS))
    [layer] = simulate(requests, HDD, Layer(capacity, PCM)).layers
    assert (layer.destaged, layer.resident) == lru(requests.page, requests.unique, capacity)


def test_long_lines_and_many_events_find_room():
    # All at once: the arrays of parts and events must grow, whatever they started with.
    gen = np.random.default_rng(0)
    rows = [(0, "write", int(p), 1) for p in gen.integers(0, 1 << 30, 20_000)]
    requests = bios(rows)
    outcome = simulate(requests, HDD)
    assert sorted(outcome.response_ns.tolist()) == [8 * MS * (i + 1) for i in range(20_000)]
    closed = bios(rows, chain=np.arange(20_000), done=np.full(20_000, 1))
    outcome = simulate(closed, HDD, Layer(5000, PCM), replay="closed")
    assert outcome.layers[0].written == 20_000


def test_phases_wait_in_which_most_bios_are_waited_for():
    rows = [(i, op, i, 0 if op == "flush" else 1) for i, op in enumerate(_OPS_OF_PHASES)]
    phases = [0, 0, 0, 1, 1, 1, 3, -1]
    assert bios(rows, phase=phases).waiting_phases() == (1, 3)
    waited = [True, True, False, False, False, False, False, True]
    # Somebody waits for the reads of phase 1, too.
    assert bios(rows, phase=phases, waited=waited).waiting_phases() == (0, 1, 3)
    assert bios(rows, phase=phases, waited=[False] * 8).waiting_phases() == (1, 3)
    assert bios(rows, phase=phases).waiting_phases(share=0.3) == (0, 1, 3)
    assert bios(rows).waiting_phases() == ()


_OPS_OF_PHASES = ("write", "write", "read", "read", "read", "write", "flush", "read")


def test_results_are_times_that_occurred():
    requests = bios(writes([1, 2, 3, 4], apart=MS), reason=[0, 0, 1, 1], phase=[0, 1, 0, 1])
    outcome = simulate(requests, HDD)
    assert outcome.response_ns.tolist() == [8 * MS, 15 * MS, 22 * MS, 29 * MS]
    [row] = results(requests, outcome).to_dict("records")
    assert row["mean_ns"] == 18.5 * MS
    assert (row["p50_ns"], row["p99_9_ns"], row["max_ns"]) == (15 * MS, 29 * MS, 29 * MS)
    by = results(requests, outcome, ["reason", "op"])
    assert by[["reason", "op", "requests"]].values.tolist() == [[0, "write", 2], [1, "write", 2]]
    assert by["max_ns"].tolist() == [15 * MS, 29 * MS]
    better = improvement(requests, simulate(requests, HDD, Layer(8, PCM)), outcome, ["reason"])
    assert better["max"].tolist() == [1 - 350 / (15 * MS), 1 - 350 / (29 * MS)]


def test_an_improvement_on_nothing_is_not_a_number():
    requests = bios([(0, "flush", 0, 0)])
    outcome = simulate(requests, HDD)
    assert pd.isna(improvement(requests, outcome, outcome)["mean"].iloc[0])


def test_groups_that_there_are_not_are_refused():
    requests = bios(writes([1]))
    with pytest.raises(UsageError, match=r"grouped by 'tenant'; known: op, device"):
        results(requests, simulate(requests, HDD), ["tenant"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ts": [-1, 0]}, "ts of -1 cannot be"),
        ({"ts": [1, 0]}, "not in time order"),
        ({"ts": [0, (1 << 63) - 1]}, "ts of 9223372036854775807"),
        ({"ts": np.array([0, 1 << 63], np.uint64)}, "values beyond int64"),
        ({"ts": [0.0, float("nan")]}, "float64 values"),
        ({"op": [0, 3]}, "op of 3"),
        ({"sector": [0, 1 << 60]}, "sector of"),
        ({"sector": [0, -8]}, "sector of -8"),
        ({"pages": [1, -1]}, "pages of -1"),
        ({"pages": [1, 2]}, "more pages than"),
        ({"first": [0, 5]}, "first of 5"),
        ({"page": [0, 7]}, "page of 7"),
        ({"page": [-1, 0]}, "page of -1"),
        ({"device": [0]}, "device has 1 values for 2 bios"),
        ({"device": [0, -1]}, "device of -1"),
        ({"op": [0, 2]}, "flush has pages"),
        ({"unique": -1}, "distinct pages"),
        ({"done": [0, 0]}, "completed before"),
        ({"tenant": [0, -2]}, "tenant of -2"),
        ({"ts": [[0, 1]]}, "not a one-dimensional array"),
    ],
)
def test_bios_that_cannot_be_are_refused(more, said):
    good = bios([(0, "write", 1, 1), (5, "write", 2, 1)])
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__} | more
    fields = {k: v if k == "unique" or v is None else np.asarray(v) for k, v in fields.items()}
    with pytest.raises(BadTrace, match=said):
        type(good)(**fields)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (Layer(-1, PCM), "capacity of -1"),
        (Layer(float("nan"), PCM), "capacity of nan"),
        (Layer(1 << 41, PCM), "capacity of"),
        (Layer(4, PCM, buffer="all"), "no buffer 'all'"),
        (Layer(4, PCM, buffer="sync-only"), "which writes somebody waits for"),
        (Layer(4, PCM, shares=(1.0, float("nan"))), "shares"),
        (Layer(4, PCM, shares=(1.0, 0.0)), "shares"),
        (Layer(4, PCM, shares=(1e308, 1e308)), "shares"),
        (Layer(4, PCM, evicted=np.zeros(3, np.int32)), "do not fit the page accesses"),
        (Layer(4, PCM, evicted=np.array([9], np.int32)), "do not fit the page accesses"),
    ],
)
def test_layers_that_cannot_be_are_refused(layer, said):
    with pytest.raises(UsageError, match=said):
        simulate(bios([(0, "write", 1, 1)]), HDD, layer)


def test_times_near_the_end_of_int64_are_right_or_refused():
    late = 1 << 62
    rows = [(late - 1, "write", 1, 1), (late, "write", 2, 1)]
    assert responses(rows) == [8 * MS, 16 * MS - 1]
    slow = Disk(flat("slow", read_latency=1e15, write_latency=1e15), merge=False)
    many = bios([(0, "write", i, 1) for i in range(2000)])
    with pytest.raises(UsageError, match="would work for up to"):
        simulate(many, slow)
