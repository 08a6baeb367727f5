"""The order of runs: every arm once in each round, drawn, and the same again later."""

import itertools

from ringside.compare.budget import round_order
from tests.unit.stats.factory import arm_of

MANY = tuple(arm_of("horovod", n) for n in range(1, 7))


def test_every_round_holds_every_arm_once_in_another_order() -> None:
    """Six arms, five rounds."""
    by_round = [round_order(MANY, number, seed=3) for number in range(5)]

    assert all(len(one) == 6 and set(one) == set(MANY) for one in by_round)
    assert all(one != other for one, other in itertools.combinations(by_round, 2))


def test_order_of_a_round_is_a_function_of_seed_and_round() -> None:
    """A resumed comparison gets the same order; another seed gives another."""
    expected = round_order(MANY, 4, 3)
    for number in range(9):
        round_order(MANY, number, 3)

    assert round_order(MANY, 4, 3) == expected
    assert round_order(MANY, 4, 3) != round_order(MANY, 4, 5)


def test_few_arms_run_backwards_once() -> None:
    """So two arms never have the same order in all rounds."""
    for few, seed in itertools.product((MANY[:2], MANY[:3]), range(20)):
        assert round_order(few, 1, seed) == round_order(few, 0, seed)[::-1]
