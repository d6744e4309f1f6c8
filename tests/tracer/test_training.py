"""Steps inferred: what PyTorch was seen to do in, phases with numbers out."""

from types import SimpleNamespace

import pytest

from tests.support.phases import read_phases, write_marks
from tests.support.training_facts import LOAD, B, C, F, O, facts, rows
from tracer.store.span import Span


@pytest.fixture
def phases_of(tmp_path):
    """Phases of facts and, if there are any, of a script's own marks."""

    def read(facts, script=()):
        write_marks(tmp_path, facts)
        write_marks(tmp_path, script, automatic=False)
        return [SimpleNamespace(**row) for row in read_phases(tmp_path)]

    return read


def times(found, name):
    return [(s.start, s.end) for s in found if s.name == name]


def count(found):
    names = ("train", "epoch", "step", F, C, B, O, "eval", "inference")
    return {name: len(rows(found, name)) for name in names if rows(found, name)}


def test_a_loop_is_cut_at_its_fetches(phases_of):
    found = phases_of(facts("FCBO FCBO X"))
    assert count(found) == {"train": 1, "epoch": 1, "step": 2, F: 2, C: 2, B: 2, O: 2}
    # Steps tile the loop: the second ends where the end of the data was looked for.
    assert times(found, "step") == [(100, 148), (148, 196)]
    assert rows(found, B) == [(0, 0), (0, 1)]
    assert {s.source for s in found if s.name in (F, C, B, O)} == {"automatic"}
    assert {s.source for s in found if s.name in ("train", "epoch", "step")} == {"inferred"}


def test_epochs_are_passes_over_the_data_and_steps_count_on(phases_of):
    found = phases_of(facts("L FCBO FCBO FCBO X L FCBO X S L FCBO FCBO X"))
    assert rows(found, "epoch") == [(0, None), (1, None), (2, None)]
    assert rows(found, O) == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4), (2, 5)]
    assert rows(found, "checkpoint") == [(1, None)]
    assert [epoch for epoch, _ in rows(found, LOAD)] == [0, 1, 2]


def test_the_loader_of_an_evaluation_has_the_epoch_of_the_evaluation(phases_of):
    found = phases_of(facts("L FCBO FCBO X L FN FN X L FCBO X L FN X"))
    assert [epoch for epoch, _ in rows(found, LOAD)] == [0, 0, 1, 1]
    assert {s.source for s in found if s.name == LOAD} == {"automatic"}


def test_a_loader_that_nothing_follows_has_no_epoch(phases_of):
    assert rows(phases_of(facts("L FCBO X LL")), LOAD) == [(0, None), *[(None, None)] * 2]


def test_files_saved_one_after_another_are_one_checkpoint(phases_of):
    made = facts("L FCBO FCBO SSS FCBO S X S")
    saved = [s for s in made if s.name == "checkpoint"]
    found = phases_of(made)
    own = [(saved[0].start, saved[2].end), (saved[3].start, saved[3].end),
           (saved[4].start, saved[4].end)]  # fmt: skip
    assert times(found, "checkpoint") == own
    assert [s.source for s in found if s.name == "checkpoint"] == [
        "inferred", "automatic", "automatic",
    ]  # fmt: skip
    assert rows(found, "checkpoint") == [(0, 1), (0, 2), (0, None)]


def test_files_saved_a_second_apart_are_checkpoints_of_their_own(phases_of):
    made = facts("L FCBO X SS")
    made[-1].start += 10**9 - 2
    made[-1].end += 10**9 - 2
    assert len(times(phases_of(made), "checkpoint")) == 1
    made[-1].start += 1
    made[-1].end += 1
    assert len(times(phases_of(made), "checkpoint")) == 2


def test_a_file_that_was_never_saved_to_its_end_has_the_checkpoint_s_end_unknown(phases_of):
    made = facts("L FCBO X SS")
    made[-1].end = None
    assert times(phases_of(made), "checkpoint") == [(made[-2].start, None)]


def test_forwards_in_a_row_are_one(phases_of):
    """A loss that is a module, or two models."""
    (row,) = [s for s in phases_of(facts("FCCNBO X")) if s.name == C]
    assert (row.start, row.end) == (112, 146)


def test_accumulated_gradients_are_steps_without_an_optimizer(phases_of):
    found = phases_of(facts("FCB FCBO FCB FCBO X"))
    assert count(found) == {"train": 1, "epoch": 1, "step": 4, F: 4, C: 4, B: 4, O: 2}
    assert rows(found, O) == [(0, 1), (0, 3)]


def test_two_models_taught_in_turn_with_one_batch_are_one_step(phases_of):
    found = phases_of(facts("FCBOCBO FCBOCBO X"))
    assert count(found) == {"train": 1, "epoch": 1, "step": 2, F: 2, C: 4, B: 4, O: 4}


def test_two_losses_are_two_backwards_of_one_step(phases_of):
    assert count(phases_of(facts("FCBBO FCBBO X")))[B] == 4


def test_a_loop_without_a_loader_is_cut_after_its_optimizer(phases_of):
    found = phases_of(facts("CBO CBO CCBO"))
    assert count(found) == {"train": 1, "step": 3, C: 3, B: 3, O: 3}
    assert rows(found, "step") == [(None, 0), (None, 1), (None, 2)]


def test_a_loop_without_a_loader_and_forwards_is_cut_before_its_backward(phases_of):
    found = phases_of(facts("BO BBO BOO"))
    assert count(found) == {"train": 1, "step": 3, B: 4, O: 4}


def with_closures(text):
    """Facts whose optimizers run a forward and a backward each."""
    found = []
    for span in facts(text):
        found.append(span)
        if span.name == O:
            found.append(Span(span.start + 2, 7, 7, C, step=1, end=span.start + 4))
            found.append(Span(span.start + 5, 7, 7, B, end=span.start + 8))
    return found


def test_optimizers_that_compute_all_by_closures_make_a_step_each(phases_of):
    found = phases_of(with_closures("OOO"))
    assert count(found) == {"train": 1, "step": 3, C: 3, B: 3, O: 3}
    assert rows(found, B) == [(None, 0), (None, 1), (None, 2)]


def test_an_optimizer_with_a_closure_after_a_backward_makes_no_step_of_its_own(phases_of):
    assert count(phases_of(with_closures("CBOO CBOO")))["step"] == 2


def test_a_pass_without_learning_in_a_training_process_is_an_evaluation(phases_of):
    found = phases_of(facts("L FCBO FCBO X L FN FN FN X L FCBO X L FN X"))
    assert count(found) == {"train": 1, "epoch": 2, "step": 3, F: 7, C: 3, B: 3, O: 3, "eval": 2}
    assert rows(found, "eval") == [(0, None), (1, None)]
    assert [r for r in rows(found, F) if r[1] is None] == [(0, None)] * 3 + [(1, None)]


def test_an_evaluation_without_no_grad_is_one_all_the_same(phases_of):
    assert count(phases_of(facts("L FCBO X L FC FC X")))["eval"] == 1


@pytest.mark.parametrize("last", ["FC", "FCC"])
def test_a_training_that_is_killed_in_a_forward_trains_until_then(phases_of, last):
    spans = facts(f"FCBO FCBO {last}")
    spans[-1].end = None
    found = phases_of(spans)
    assert rows(found, "step") == [(0, 0), (0, 1), (0, 2)]
    assert [times(found, name)[-1][1] for name in ("train", "epoch", "step", C)] == [None] * 4
    assert "eval" not in count(found)


def test_a_batch_that_is_skipped_after_its_forward_is_a_step(phases_of):
    found = phases_of(facts("L FCBO FC FCBO X l fN fN x"))
    assert rows(found, "step") == rows(found, C) == [(0, 0), (0, 1), (0, 2)]
    assert times(found, "step")[1] == (160, 184)
    assert len(times(found, "eval")) == 1


def test_an_evaluation_with_gradients_before_a_later_step_is_no_step(phases_of):
    found = phases_of(facts("L FCBO F lfC fC x CBO FCBO X"))
    assert rows(found, "step") == [(0, 0), (0, 1), (0, 2)]
    assert len(times(found, "eval")) == 1


def test_a_model_without_gradients_before_the_one_that_learns_has_a_row_of_its_own(phases_of):
    """Without a DataLoader, it may be an evaluation long before."""
    made = facts("CBO N CBO")
    for span in made[4:]:
        span.start += 50
        span.end += 50
    found = phases_of(made)
    assert count(found)["step"] == 2
    assert times(found, C) == [(100, 110), (136, 146), (198, 208)]


def test_an_evaluation_by_hand_after_training_by_hand(phases_of):
    found = phases_of(facts("CBO CBO N N N CBO"))
    assert count(found) == {"train": 1, "step": 3, C: 3, B: 3, O: 3, "eval": 1}
    assert times(found, "eval") == [(172, 206)]


def test_a_process_that_never_learns_infers(phases_of):
    found = phases_of(facts("L FN FN FN X"))
    assert count(found) == {"step": 3, F: 3, C: 3, "inference": 1}
    assert rows(found, "step") == [(None, 0), (None, 1), (None, 2)]


def test_a_server_without_a_loader_infers_call_by_call(phases_of):
    assert count(phases_of(facts("NNN"))) == {"step": 3, C: 3, "inference": 1}


def test_a_loop_that_fetches_ahead_keeps_its_numbers(phases_of):
    """The batch after is fetched before the one at hand is used."""
    found = phases_of(facts("L FF CBO F CBO F CBO X CBO"))
    assert rows(found, B) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_two_loaders_in_turn_are_one_epoch(phases_of):
    one = facts("FCBO FCBO FCBO")
    for span in one:
        if span.name == F and span.start == 148:
            span.epoch = 5 << 20
    assert rows(phases_of(one), "epoch") == [(0, None)]


@pytest.mark.parametrize(
    "text",
    [
        *("L FlfCBO FfCBO FfCBO X L FlfCBO FfCBO X L FlfCBO FfCBO X",),
        *("lL FfCBO FxlfCBO FfCBO X L FfCBO FfCBO xX L FxlfCBO FfCBO X",),
    ],
    ids=["in each epoch", "where it ends"],
)
def test_a_second_loader_that_is_opened_after_a_fetch_begins_no_epoch(phases_of, text):
    found = phases_of(facts(text))
    assert rows(found, "epoch") == [(0, None), (1, None), (2, None)]
    assert rows(found, "step") == [*((0, n) for n in range(3)), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert "eval" not in count(found)
    assert {epoch for epoch, _ in rows(found, F)[:6]} == {0}


def test_a_batch_that_is_looked_at_before_an_epoch_belongs_to_no_step(phases_of):
    found = phases_of(facts("l f L FCBO FCBO X l f L FCBO FCBO X"))
    assert rows(found, F) == [*((None, None), (0, 0), (0, 1)), *((0, None), (1, 2), (1, 3))]
    assert times(found, "train") == [(136, 376)]
    assert times(found, "epoch") == [(124, 232), (268, 376)]


def test_an_evaluation_before_an_epoch_s_first_step_lies_in_that_epoch(phases_of):
    found = phases_of(facts("L F lfN fN x CBO FCBO X L F lfN fN x CBO FCBO X"))
    assert rows(found, "step") == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert rows(found, F) == [
        *((0, 0), (None, None), (None, None), (0, 1)),
        *((1, 2), (0, None), (0, None), (1, 3)),
    ]
    (_, first), (second, _) = times(found, "epoch")
    loads = [start for start, _ in times(found, LOAD)]
    assert (times(found, "epoch")[0][0], second) == (loads[0], loads[2])
    assert first <= second
    assert times(found, "train")[0][0] == loads[0] + 12


def test_an_evaluation_before_a_later_step_ends_no_step_before_it(phases_of):
    found = phases_of(facts("L FCBO F lfN x CBO FCBO X"))
    assert rows(found, "epoch") == [(0, None)]
    assert rows(found, "step") == [(0, 0), (0, 1), (0, 2)]
    assert rows(found, F) == [(0, 0), (0, 1), (0, None), (0, 2)]
    assert times(found, "step") == [(112, 160), (220, 256), (256, 304)]
    assert times(found, "eval") == [(184, 208)]


@pytest.mark.parametrize("other", ["lfNx", "fN"], ids=["opened", "fetched from"])
def test_a_step_lasts_until_its_thread_turns_to_other_data(phases_of, other):
    found = phases_of(facts(f"L FCBO S {other} FCBO X {other}"))
    (saved, turn), after = times(found, "checkpoint")[0], times(found, "step")[1][0]
    assert (saved, turn) == (160, 170)
    assert times(found, "step") == [(112, 172), (after, after + 48)]
    assert rows(found, "step") == [(0, 0), (0, 1)]
    assert rows(found, "checkpoint") == [(0, 0)]


@pytest.mark.parametrize("rest", ["L FCBO X", "l fN x", ""])
def test_a_step_whose_pass_does_not_go_on_ends_with_its_last_part(phases_of, rest):
    found = phases_of(facts(f"L FCBO S {rest}"))
    assert times(found, "step")[0] == (112, 158)
    assert rows(found, "checkpoint") == [(0, None)]


def test_the_closure_of_an_optimizer_belongs_to_its_step(phases_of):
    """LBFGS computes forward and backward within the optimizer's step."""
    outer = facts("FO X")
    (optimizer,) = [s for s in outer if s.name == O]
    optimizer.end = optimizer.start + 10
    inner = [
        Span(optimizer.start + 2, 7, 7, C, step=1, end=optimizer.start + 4),
        Span(optimizer.start + 5, 7, 7, B, end=optimizer.start + 8),
    ]
    found = phases_of(sorted([*outer, *inner], key=lambda s: s.start))
    assert (rows(found, C), rows(found, B), rows(found, O)) == ([(0, 0)], [(0, 0)], [(0, 0)])


def test_a_worker_s_fetches_have_the_numbers_of_the_steps_that_use_them(phases_of):
    worker = [
        Span(50, 9, 9, "worker", 1 << 20, 7, 51),
        Span(52, 9, 9, F, 1 << 20, 1, 60),
        Span(61, 9, 9, F, 1 << 20, 0, 70),
        Span(71, 9, 9, F, 1 << 20, 2, 80),
    ]
    found = phases_of([*worker, *facts("FCBO FCBO X")])
    assert [(s.epoch, s.step) for s in found if s.pid == 9] == [(0, 1), (0, 0), (None, None)]


def test_a_replica_s_forward_on_a_thread_of_pytorch_s_is_no_phase_of_its_own(phases_of):
    helper = [Span(113, 7, 8, C, step=1, end=120), Span(127, 7, 8, C, step=1, end=130)]
    found = phases_of([*facts("FCBO X"), *helper])
    assert count(found)[C] == 1


def test_processes_are_apart(phases_of):
    found = phases_of([*facts("FCBO X", pid=7), *facts("FCBO FCBO X", pid=8)])
    assert [s.pid for s in found if s.name == "step"] == [7, 8, 8]


def test_a_step_that_was_killed_has_no_end(phases_of):
    spans = facts("FCBO FCB")
    spans[-1].end = None
    found = phases_of(spans)
    assert times(found, "step") == [(100, 148), (148, None)]
    assert times(found, "train") == [(100, None)]


@pytest.mark.parametrize("marked", ["train", "epoch", "step"])
def test_a_phase_that_the_script_marks_replaces_it_and_those_around_it(phases_of, marked):
    found = phases_of(facts("FCBO X"), [Span(1, 7, 7, marked, end=2)])
    names = ["train", "epoch", "step"]
    inner = dict.fromkeys(names[names.index(marked) :], 1)
    assert count(found) == {**inner, F: 1, C: 1, B: 1, O: 1}


def test_another_process_s_marks_do_not_hide_ours(phases_of):
    found = phases_of(facts("FCBO X"), [Span(1, 8, 8, "step", end=2)])
    assert count(found)["step"] == 2
