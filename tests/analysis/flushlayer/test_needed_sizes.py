"""The size of a layer that an improvement needs, where a policy is not run at every size."""

import numpy as np
import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import curve, paper
from tracer.analysis.flushlayer.answers.question import Question
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity

pytestmark = pytest.mark.slow

PCM, HDD = find_device("pcm-paper", "nvm"), find_device("hdd-paper", "disk")
LOOP, ONCE, ROUNDS = 300, 700, 5
PAGES = [*range(LOOP)] * ROUNDS + [*range(LOOP, LOOP + ONCE)]
"""Written in a loop: with less room than the loop, LRU and FIFO evict each page before it comes
again. Then the pages that come once evict as many as there is no room for."""
NEEDED = {0.3: LOOP, 0.82: 605}
"""A layer of c pages destages 1,000 - c of the 2,200 pages if the loop fits, and else 2,200 - c."""


def accesses(pages):
    return Accesses(np.array(pages, np.int32), len({*pages}), {}, {}, 0)


def needed(facts):
    return {row["improvement"]: row["capacity_pages"] for row in facts["needed"]}


def test_lru_has_the_least_size_and_says_nothing_of_sizes_that_were_run():
    facts = curve.answer(Question(PCM, HDD), accesses(PAGES), 0.3)
    assert NEEDED.items() <= needed(facts).items()
    assert facts["every_size"]
    assert not [said for said in facts["assumptions"] if "sizes" in said]


def test_fifo_has_the_least_of_the_sizes_that_were_run_and_says_so():
    facts = curve.answer(Question(PCM, HDD, policy="fifo"), accesses(PAGES), 0.3)
    assert all(needed(facts)[wanted] >= least for wanted, least in NEEDED.items())
    assert needed(facts)[0.3] != LOOP
    assert not facts["every_size"]
    (said,) = [said for said in facts["assumptions"] if "sizes" in said]
    assert "64 of the 1,000 sizes were simulated" in said
    assert "the least of these that reaches it; a smaller one may reach it, too" in said


def test_a_policy_that_was_run_at_every_size_has_the_least_one():
    few = [*range(30)] * ROUNDS + [*range(30, 64)]
    facts = curve.answer(Question(PCM, HDD, policy="fifo"), accesses(few), 0.3)
    assert needed(facts)[0.3] == 30
    assert facts["every_size"]
    assert not [said for said in facts["assumptions"] if "sizes" in said]


@pytest.mark.parametrize(("policy", "is_least"), [("lru", True), ("fifo", False)])
def test_the_papers_number_is_a_bound_for_a_policy_that_was_run_at_some_sizes(policy, is_least):
    facts = paper.answer(Question(PCM, HDD, policy=policy), {Identity.BLOCK: accesses(PAGES)})
    said = facts["papers_number"]
    assert ("by block: 2.36 MiB without the final drain" in said) == is_least
    assert ("by block: at most 2." in said) != is_least
    assert "not reached with the final drain (at most 55%)" in said
    assert any("64 of the 1,000 sizes" in one for one in facts["assumptions"]) != is_least


@pytest.mark.parametrize(
    ("writes", "pages", "said"),
    [(1_000, 184, "81.6%"), (10_000, 1_800, "81.996%"), (1_000, 500, "50%")],
)
def test_the_most_that_is_reached_is_told_from_the_number_that_is_not(writes, pages, said):
    # With the final drain: 1 - 350 ns / 8 ms - pages / writes.
    stream = accesses([n % pages for n in range(writes)])
    facts = paper.answer(Question(PCM, HDD), {Identity.BLOCK: stream})
    assert f"not reached with the final drain (at most {said})" in facts["papers_number"]


def test_text_and_page_say_that_a_smaller_size_may_do(tmp_path, tracer):
    bio = {"tid": 7, "pid": 7, "event": "bio_queue", "dev": "254:0", "nr_sector": 8, "rwbs": "W"}
    block = [bio | {"ts": ts, "sector": 8 * page} for ts, page in enumerate(PAGES)]
    make_trace(tmp_path / "t", {"block": block}).close()
    for model, where in (("curve", "at most 1."), ("paper", "by block: at most 2.")):
        for policy, bound in (("fifo", True), ("lru", False)):
            asked = ("simulate", tmp_path / "t", "--model", model, "--policy", policy)
            asked += ("--wanted", "0.3") if model == "curve" else ()
            text = " ".join(tracer(*asked).out.split())
            assert ("64 of the 1,000 sizes were simulated" in text) == bound
            assert (where in text) == bound
            page = tracer(*asked, "--html", "-").out
            assert ("sizes that were simulated: a smaller one may do" in page) == bound
