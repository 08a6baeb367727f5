"""The verdict on what was fed, against what the lists were made of."""

from collections import Counter

import numpy as np
import pytest

from ringside.verify.checks import ledger_verdict


def places(fed: np.ndarray, number: int) -> list[tuple[int, int]]:
    """(replica, step) of each time that an id was fed, by looking at every place."""
    return [
        (replica, step)
        for step in range(fed.shape[0])
        for replica in range(fed.shape[1])
        for slot in range(fed.shape[2])
        if fed[step, replica, slot] == number
    ]


@pytest.mark.parametrize("count", [1, 2, 7, 24])
def test_each_once_passes_in_any_order(count: int) -> None:
    """A permutation of all ids, with padding and places that were fed nothing."""
    ids = np.full(24, -1)
    ids[:count] = np.random.default_rng(count).permutation(count)
    ids[count + 5 :] = -2

    verdict = ledger_verdict(ids.reshape(4, 2, 3), count)

    assert verdict.passed
    assert verdict.finding.endswith("once")


@pytest.mark.parametrize("seed", range(20))
def test_the_difference_is_that_of_multisets(seed: int) -> None:
    """Python's Counter finds the same missing, repeated and foreign ids."""
    generator = np.random.default_rng(seed)
    fed = generator.integers(-2, 26, size=(5, 2, 3))
    times = Counter(int(number) for number in fed.ravel() if number >= 0)

    verdict = ledger_verdict(fed, 20)

    assert list(verdict.missing) == [i for i in range(20) if times[i] == 0]
    assert {one.id: list(one.places) for one in verdict.repeated} == {
        i: places(fed, i) for i in range(20) if times[i] > 1
    }
    assert {one.id: list(one.places) for one in verdict.foreign} == {
        i: places(fed, i) for i in times if i >= 20
    }
    assert not verdict.passed


FED = np.arange(12).reshape(3, 2, 2)
"""Step k feeds replica 0 the ids 4k and 4k + 1, replica 1 the next two."""


def changed(*changes: tuple[tuple[int, int, int], int]) -> np.ndarray:
    """FED with other ids at some places."""
    fed = FED.copy()
    for place, number in changes:
        fed[place] = number
    return fed


@pytest.mark.parametrize(
    ("fed", "sentence"),
    [
        (FED, "each of 12 examples once"),
        (changed(((1, 1, 0), -1)), "example 6 was never fed"),
        (changed(((0, 0, 0), -1), ((1, 1, 0), -2)), "examples 0 and 6 were never fed"),
        (
            changed(((2, 1, 0), 8)),
            "example 10 was never fed; "
            "example 8 was fed 2 times: replica 0 in step 3, replica 1 in step 3",
        ),
        (
            changed(((2, 1, 1), 99)),
            "example 11 was never fed; id 99 is no example's, yet fed: replica 1 in step 3",
        ),
        (
            np.full((3, 2, 2), -2),
            "examples 0, 1 and 10 more were never fed",
        ),
        (
            np.concatenate([FED, FED[:2]]),
            "example 0 was fed 2 times: replica 0 in step 1, replica 0 in step 4; "
            "example 1 was fed 2 times: replica 0 in step 1, replica 0 in step 4; "
            "6 more were fed more than once",
        ),
        (
            np.concatenate([FED, np.zeros((2, 1, 2), int).repeat(2, axis=1)]),
            "example 0 was fed 9 times: replica 0 in step 1, replica 0 in step 4 and 7 more",
        ),
    ],
)
def test_the_finding_is_a_sentence(fed: np.ndarray, sentence: str) -> None:
    """It names examples, replicas and steps, and how many it does not name."""
    assert ledger_verdict(fed, 12, shown=2).finding == sentence
