"""Where fed elements are looked at, and what counts as another element."""

import numpy as np
import pytest

from ringside.verify.same_elements import (
    DRAWN,
    SPLITS,
    Looked,
    Place,
    Split,
    difference,
    draw_places,
    fed_elements,
)

IDS = np.array([7, 1203, 4, 9])
PLACES = (Place(split="training", epoch=1, step=6), Place(split="validation", epoch=0, step=0))


@pytest.mark.parametrize("split", SPLITS)
def test_places_hold_the_first_and_the_last_batch_and_others_for_each_seed(split: Split) -> None:
    """The same seed gives the same places, so that all processes look at the same ones."""
    drawn = draw_places(split, epochs=3, steps=1000, seed=5)

    assert drawn == draw_places(split, epochs=3, steps=1000, seed=5)
    assert drawn != draw_places(split, epochs=3, steps=1000, seed=6)
    assert drawn[0] == Place(split=split, epoch=0, step=0)
    assert drawn[1].step == 999
    assert len(drawn) == 2 + DRAWN[split]


def test_places_reach_everywhere_and_are_named_once() -> None:
    """Over many seeds each batch of each epoch is drawn; a split of one batch has one place."""
    drawn = {place for seed in range(200) for place in _of_training(epochs=3, steps=8, seed=seed)}

    assert {(place.epoch, place.step) for place in drawn} == {
        (epoch, step) for epoch in range(3) for step in range(8)
    }
    assert len(_of_training(epochs=1, steps=1, seed=0)) == 1


def _of_training(*, epochs: int, steps: int, seed: int) -> tuple[Place, ...]:
    return draw_places("training", epochs=epochs, steps=steps, seed=seed)


def test_rounding_is_no_difference_and_one_wrong_value_is() -> None:
    """Of four images the second has one pixel of another one."""
    own = np.random.default_rng(0).random((4, 3, 3)).astype(np.float32)
    rounded = own * np.float32(1 + 2**-22)
    wrong = own.copy()
    wrong[1, 2, 2] += 1e-3

    assert difference("x", own, own, IDS) == ("", 0)
    assert difference("x", rounded, own, IDS) == ("", 0)
    found, row = difference("x", wrong, own, IDS)
    assert row == 1
    assert "x of example 1203" in found
    assert "1 of 4 examples" in found


def test_numbers_without_a_fraction_and_texts_must_be_equal() -> None:
    """There is no rounding to forgive."""
    labels = np.array([0, 9, 3, 10**15])
    texts = np.array([b"a", b"b", b"c", b"d"], object)

    assert difference("y", labels, labels, IDS) == ("", 0)
    assert difference("y", labels + (IDS == 9), labels, IDS)[1] == 3
    assert difference("x", texts, texts, IDS) == ("", 0)
    assert difference("x", texts[::-1], texts, IDS)[0]


def test_not_a_number_equals_itself_only() -> None:
    """Missing values that the user's data hold are no fault."""
    own = np.array([1.0, np.nan, np.inf, 2.0])

    assert difference("x", own, own, IDS) == ("", 0)
    assert difference("x", np.nan_to_num(own), own, IDS)[1] == 1


def test_another_type_or_shape_is_told() -> None:
    """Half precision, or labels with one more dimension."""
    own = np.ones((4, 2))

    assert "float16" in difference("x", own.astype(np.float16), own, IDS)[0]
    assert "[4, 2, 1]" in difference("x", own[..., None], own, IDS)[0]


def test_all_processes_must_have_looked_and_found_their_own() -> None:
    """The finding says how far was looked; a fault names the process and the seed."""
    fine = Looked(seed=8123, examples=206, places=PLACES, reached=30, batches=30)
    wrong = fine.replace(wrong="x of example 1203 is not the workload's own")

    passed = fed_elements({"a": fine, "b": fine}, tasks=("a", "b"))
    assert passed.passed
    assert "412 examples, at 2 places drawn with seed 8123" in passed.finding
    short = fed_elements({"a": fine.replace(batches=250)}, tasks=("a",))
    assert "among the first 30 of 250 batches" in short.finding
    failed = fed_elements({"a": fine, "b": wrong}, tasks=("a", "b"))
    assert not failed.passed
    assert "example 1203" in failed.finding
    assert "(b;" in failed.finding
    assert "8123" in failed.finding
    assert not fed_elements({"a": fine}, tasks=("a", "b")).passed
    assert not fed_elements({"a": Looked(seed=1)}, tasks=("a",)).passed
    assert not fed_elements({}, tasks=()).passed
