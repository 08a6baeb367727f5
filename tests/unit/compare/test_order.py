"""The order of runs: every arm once in each launch, drawn, and the same again later."""

import itertools

from ringside.comparison.budget import order_of
from tests.unit.stats.factory import arm_of

MANY = tuple(arm_of("horovod", n) for n in range(1, 7))


def test_every_launch_holds_every_arm_once_in_another_order() -> None:
    """Six arms, five launches."""
    by_launch = [order_of(MANY, number, seed=3) for number in range(5)]

    assert all(len(one) == 6 and set(one) == set(MANY) for one in by_launch)
    assert all(one != other for one, other in itertools.combinations(by_launch, 2))


def test_order_of_a_launch_is_a_function_of_seed_and_number() -> None:
    """A resumed comparison gets the same order; another seed gives another."""
    expected = order_of(MANY, 4, 3)
    for number in range(9):
        order_of(MANY, number, 3)

    assert order_of(MANY, 4, 3) == expected
    assert order_of(MANY, 4, 3) != order_of(MANY, 4, 5)
