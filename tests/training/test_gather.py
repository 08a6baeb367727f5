"""`ringside.gather`: the rows of all replicas, and where it is refused."""

from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.keras.part import Part
from ringside_core.specs import RefusalError
from trainers.rows import gather

X = np.arange(10.0).reshape(5, 2)


def _not_summed(gradients: Any, variables: Any, sparse: Any) -> Any:
    return gradients


def part(number: int, total: Any, **changes: Any) -> Part:
    """That of one of two replicas, with 5 rows in all."""
    rows = len(range(number, 5, 2))
    return Part(number, 2, rows, 5, _not_summed, total, **changes)


def test_alone_it_returns_what_it_gets() -> None:
    """Also outside of any training."""
    x = tf.constant([[1.0], [2.0]])

    assert gather(x) is x


@pytest.mark.parametrize("kind", ["float64", "int64", "bool"])
def test_rows_of_two_replicas_are_in_the_order_of_the_batch(kind: str) -> None:
    """Each spreads its own over zeros, and all are added."""
    given, spread = (X > 3 if kind == "bool" else X.astype(kind)), []

    def total(tensors: list[Any]) -> list[Any]:
        spread.extend(tensors)
        return [sum(spread)]

    found = None
    for number in range(2):
        with part(number, total).running():
            found = gather(tf.constant(given[number::2]))

    assert found is not None
    np.testing.assert_array_equal(found, given, strict=True)


def test_a_pass_has_a_part_of_the_rows() -> None:
    """Under gradient accumulation it is refused."""
    with (
        part(0, lambda tensors: tensors, pending={}).running(),
        pytest.raises(RefusalError, match="Train it without gradient accumulation"),
    ):
        gather(tf.constant(X[0::2]))
