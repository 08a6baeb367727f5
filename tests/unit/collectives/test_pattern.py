"""The numbers that are reduced: sums in closed form, and mistakes that are seen."""

import numpy as np
import pytest

from ringside.collectives import pattern
from ringside_core.specs import RefusalError

COUNT = pattern.CHUNK + 5000  # the second part of a large array too


def filled(rank: int, repetition: int, count: int = COUNT) -> pattern.Floats:
    """What a rank puts in."""
    out = np.empty(count, np.float32)
    pattern.fill(out, rank=rank, repetition=repetition)
    return out


@pytest.mark.parametrize("ranks", [2, 3, 20])
def test_the_sum_is_the_closed_form(ranks: int) -> None:
    """NumPy's sum over all ranks, in float64 and in float32, has no wrong element."""
    arrays = [filled(rank, 7) for rank in range(ranks)]

    exact = np.sum(np.stack(arrays).astype(np.float64), axis=0).astype(np.float32)

    assert pattern.wrong_in_sum(exact, num_ranks=ranks, repetition=7, count=COUNT) == 0
    assert (
        pattern.wrong_in_sum(sum(arrays[1:], arrays[0]), num_ranks=ranks, repetition=7, count=COUNT)
        == 0
    )


def test_a_rank_puts_in_what_the_formula_says() -> None:
    """Checked element by element, in whole numbers, also beyond the first block."""
    i = np.arange(COUNT)
    for rank, repetition in ((0, 0), (3, 12), (18, 2000)):
        expected = (rank % 16 + 1) * ((i + repetition) % 1021) + rank % 7

        assert np.array_equal(filled(rank, repetition), expected)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda a, b: a,  # a rank is missing
        lambda a, b: a + a,  # one is counted twice, the other not at all
        lambda a, b: (a + b) / 2,  # a mean
        lambda a, b: np.roll(a + b, 1024),  # blocks in other places
    ],
)
def test_a_wrong_sum_is_seen_nearly_everywhere(mistake: object) -> None:
    """A mistake is missed only where both values happen to be equal: one in a thousand."""
    result = mistake(filled(0, 4), filled(1, 4))  # type: ignore[operator]

    wrong = pattern.wrong_in_sum(result.astype(np.float32), num_ranks=2, repetition=4, count=COUNT)

    assert wrong > 0.99 * COUNT


def test_one_wrong_element_is_one() -> None:
    """The error is the smallest difference that float32 has there."""
    result = filled(0, 1) + filled(1, 1)
    result[COUNT - 2] = np.nextafter(result[COUNT - 2], np.float32(np.inf))

    assert pattern.wrong_in_sum(result, num_ranks=2, repetition=1, count=COUNT) == 1


def test_what_is_not_a_number_is_wrong() -> None:
    """NaN equals nothing."""
    result = np.full(100, np.nan, np.float32)

    assert pattern.wrong_in_broadcast(result, root=0, repetition=0, count=100) == 100


@pytest.mark.parametrize(("kept", "wrong"), [(0, 100), (1, 99), (99, 1), (100, 0), (103, 3)])
def test_an_element_that_is_missing_or_one_too_many_is_wrong(kept: int, wrong: int) -> None:
    """Even if all other elements are right."""
    result = filled(0, 9, count=200)[:kept]
    total = result + filled(1, 9, count=200)[:kept]

    assert pattern.wrong_in_broadcast(result, root=0, repetition=9, count=100) == wrong
    assert pattern.wrong_in_sum(total, num_ranks=2, repetition=9, count=100) == wrong


def test_another_repetition_is_seen() -> None:
    """A result that is left over from the repetition before counts as wrong."""
    assert pattern.wrong_in_broadcast(filled(0, 5), root=0, repetition=5, count=COUNT) == 0
    assert pattern.wrong_in_broadcast(filled(0, 4), root=0, repetition=5, count=COUNT) == COUNT
    assert pattern.wrong_in_broadcast(filled(1, 5), root=0, repetition=5, count=COUNT) == COUNT


def test_too_many_ranks_are_refused() -> None:
    """A sum in float32 would be rounded; 1,024 ranks are still exact."""
    pattern.check_ranks(1024)

    with pytest.raises(RefusalError, match="exact in float32"):
        pattern.check_ranks(4096)
    with pytest.raises(RefusalError, match="100000000000000000000 ranks"):
        pattern.check_ranks(10**20)


def test_sums_over_ranks() -> None:
    """The closed form equals the sum one by one."""
    for ranks in (*range(1, 130), 1024):
        weights = [rank % pattern.WEIGHTS + 1 for rank in range(ranks)]
        offsets = [rank % pattern.OFFSETS for rank in range(ranks)]

        assert pattern._of_all(ranks) == (sum(weights), sum(offsets))
