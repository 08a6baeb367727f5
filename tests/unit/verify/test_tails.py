"""How the data are cut: which slices of the last batch are part-filled, and for which sizes."""

from pathlib import Path

import pytest

from ringside.verify.cases import (
    AS_TIMED,
    WATCHED,
    arm_cases,
    counted_examples,
    reference_cases,
    reference_spec,
)
from ringside.verify.request import Case, examples_to_watch, low_tail, part_filled_tail
from ringside_core.specs import RunSpec
from tests.verify.arms import subject


@pytest.mark.parametrize("most", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("slice_of_most", [2, 3, 4, 6, 16, 24])
def test_the_last_replica_is_filled_in_part_at_every_size(most: int, slice_of_most: int) -> None:
    """And the number is odd wherever one of them is."""
    batch = most * slice_of_most

    tail = part_filled_tail(batch, most)

    for size in (n for n in range(1, most + 1) if batch % n == 0):
        share = batch // size
        assert 0 < tail - (size - 1) * share < share
    fitting = range(batch - slice_of_most + 1, batch)
    assert tail % 2 or not any(n % 2 for n in fitting)


@pytest.mark.parametrize("batch", range(1, 50))
def test_slices_of_one_example_and_low_tails(batch: int) -> None:
    """At least one example; less than a batch where that can be, and about a third."""
    assert 1 <= part_filled_tail(batch, batch) <= max(1, batch - 1)
    assert batch / 3 < low_tail(batch) <= batch / 3 + 2
    assert low_tail(batch) < batch or batch == 1


def test_the_numbers_of_the_default_workload() -> None:
    """48 examples: 13 of 24 at two replicas, 9 of 16 at three; 17 are below half a batch."""
    assert part_filled_tail(48, 2) == 37
    assert part_filled_tail(48, 3) == 41
    assert low_tail(48) == 17


@pytest.mark.parametrize(
    ("available", "tail", "expected"),
    [
        (1437, 37, 9 * 48 + 37),
        (1437, 1, 9 * 48 + 1),
        (1437, None, 9 * 48 + 1437 % 48),
        (480, None, 9 * 48 + 17),  # whole batches only: a third, and one more
        (100, 37, 48 + 37),  # fewer examples, but the short batch that was asked for
        (20, 37, 20),
    ],
)
def test_half_of_the_updates_make_an_epoch(available: int, tail: int | None, expected: int) -> None:
    """Nine whole batches of 48, and the short one; of few examples as many as there are."""
    found = examples_to_watch(available, global_batch=48, steps=20, tail=tail)

    assert found == expected


@pytest.mark.parametrize(
    ("replicas", "tails"),
    [(1, [3, 1]), (2, [5, 9, 1]), (3, [7, 15, 1])],
)
def test_counting_meets_each_kind_of_short_batch(replicas: int, tails: list[int]) -> None:
    """Batches of 6 for each replica; at the end a third, the last reader's part, and one."""
    batch = 6 * replicas
    first, *others = counted_examples(replicas, synchronous=True)
    longest, *again = counted_examples(replicas, synchronous=False)

    assert [n - 2 * batch for n in (first, *others)] == tails
    assert (longest - 30 * batch, again) == (tails[0], others)


def asked_of(spec: RunSpec, states: Path, *, exact: bool, true_examples: bool) -> tuple[Case, ...]:
    """The cases of an arm of two replicas without random layers, over twenty updates."""
    return arm_cases(
        spec,
        exact=exact,
        steps=20,
        most_replicas=2,
        states=states,
        draws=False,
        true_examples=true_examples,
        wide=True,
    )


@pytest.mark.parametrize("true_examples", [False, True])
def test_gradients_are_counted_as_the_model_is_trained(
    tmp_path: Path, *, true_examples: bool
) -> None:
    """What takes the padding out of a batch is what is certified."""
    spec = subject("parameter_server", 2).spec
    asked = asked_of(spec, tmp_path, exact=False, true_examples=true_examples)

    counting = [one for one in asked if one.name.startswith("counting")]
    assert len(counting) == 4
    assert {one.spec.workload_options["own_loss"] for one in counting} == {true_examples}


def test_the_reference_is_whole_and_watched_where_the_arm_is_not(tmp_path: Path) -> None:
    """A race, the digest's own path, or a fault of resuming must not be in both."""
    spec = subject("mirrored", 2, steps_per_execution=4).spec
    serial = reference_spec(spec)

    asked = asked_of(spec, tmp_path, exact=True, true_examples=False)
    arm = {one.name: one for one in asked}
    cases = reference_cases(serial, [2], run_dir=tmp_path, steps=20)
    reference = {one.name: one for one in cases}

    assert (arm[AS_TIMED].watch, arm[WATCHED].resumed) == ("last", True)
    assert arm[AS_TIMED].spec.steps_per_execution == 4
    assert arm[AS_TIMED].spec.ledger == "digest"
    for name in (AS_TIMED, WATCHED):
        assert reference[name].watch == "steps"
        assert not reference[name].resumed
        assert reference[name].spec.steps_per_execution == 1
        assert reference[name].spec.ledger == "full"
        assert reference[name].tail == arm[name].tail
