"""The random numbers of a step: other ones in each replica, or those of its rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.keras.draws import Draws, drawing
from ringside_core.specs import RefusalError

DRAWS: dict[str, Callable[[int], Any]] = {
    "normal": lambda n: tf.random.normal([n, 3]),
    "uniform": lambda n: tf.random.uniform([n, 3], seed=4),
    "truncated": lambda n: tf.random.truncated_normal([n]),
    "integers": lambda n: tf.random.uniform([n, 3], 0, 1000, tf.int32),
    "dropout": lambda n: tf.nn.dropout(tf.ones([n, 9]), 0.5),
    "stateless": lambda n: tf.random.stateless_normal([n, 3], [1, 2]),
    "generator": lambda n: tf.random.Generator.from_seed(4).uniform([n, 3]),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_replica_draws_its_rows_of_the_whole_batch(name: str, n: int) -> None:
    """Rows r::R of what one replica draws for all; without rows, the last one."""
    draw = DRAWS[name]
    with drawing(Draws(7)):
        whole = [draw(n).numpy() for _ in range(2)]

    for r in range(2):
        rows = len(range(r, n, 2))
        with drawing(Draws(7), r, 2, rows, n):
            own = [draw(max(rows, 1)).numpy() for _ in range(2)]

        np.testing.assert_array_equal(own, [w[min(r, n - 1) :: 2] for w in whole])
    assert n == 1 or name == "stateless" or np.any(whole[0] != whole[1])


def test_what_has_no_rows_is_the_same_in_all_replicas() -> None:
    """A number in a shape is no number of rows, where that is known in the step only."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def drawn(n: Any) -> Any:
        with drawing(draws, 1, 2, n // 2, n):
            return tf.random.normal([3, 2]), tf.random.normal([n // 2, 2]), tf.random.normal([])

    draws = Draws(7)
    with drawing(Draws(7)):
        table, whole, scalar = (tf.random.normal(s).numpy() for s in ([3, 2], [6, 2], []))

    found = [t.numpy() for t in drawn(tf.constant(6))]

    np.testing.assert_equal(found, (table, whole[1::2], scalar))


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "stateless"])
def test_each_replica_draws_its_own_numbers(name: str) -> None:
    """Under one seed replica 0 draws what plain TensorFlow draws, and replica 1 other numbers."""

    def seeded(number: int | None, draw: Callable[[int], Any] = DRAWS[name]) -> Any:
        tf.random.set_seed(3)
        if number is None:
            return draw(7).numpy()
        with drawing(None, number, 2, 7, 14):
            return draw(7).numpy()

    np.testing.assert_array_equal(seeded(0), seeded(None))
    assert np.any(seeded(1) != seeded(None))


def test_initial_values_are_the_same_in_all_replicas() -> None:
    """What a step makes and keeps is no draw of its rows."""
    made = []

    @tf.function
    def step(number: int) -> Any:
        with drawing(None, number, 2, 3, 6), tf.init_scope():
            tf.random.set_seed(3)
            made.append(tf.random.normal([3]).numpy())
        return tf.zeros([])

    step(0), step(1)

    np.testing.assert_array_equal(*made)


OTHERS: dict[str, Callable[[int], Any]] = {
    "categorical": lambda n: tf.random.categorical(tf.zeros([n, 9]), 3),
    "gamma": lambda n: tf.random.gamma([2], tf.fill([n], 2.0)),
    "poisson": lambda n: tf.random.poisson([2], tf.fill([n], 9.0)),
    "shuffle": lambda n: tf.random.shuffle(tf.range(3 * n)),
}


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        (name, graph)
        for name in {**DRAWS, **OTHERS}
        for graph in (True, False)
        if name != "stateless" and not (graph and name == "generator")  # it is made in the step
    ],
)
def test_counted_draws_go_on_where_a_checkpoint_says(name: str, graph: bool) -> None:
    """Steps 2 and 3 of a new process that puts back the count are those of the old one."""

    def steps(draws: Draws, number: int, count: int, drawn: int = 0) -> list[Any]:
        def step() -> Any:
            with drawing(draws, number, 2, 7, 14):
                draws.begin_step()
                return {**DRAWS, **OTHERS}[name](7)

        tf.random.set_seed(3)
        draws.rewind(drawn)
        run = tf.function(step) if graph else step
        return [run().numpy() for _ in range(count)]

    draws = Draws()
    whole = steps(draws, 0, 3)
    steps(draws, 0, 1)
    again, other = steps(Draws(), 0, 2, draws.count()), steps(Draws(), 1, 3)

    np.testing.assert_array_equal(again, whole[1:])
    tf.random.set_seed(4)
    plain = {**DRAWS, **OTHERS}[name](7)
    assert (plain.shape, plain.dtype) == (whole[0].shape, whole[0].dtype)
    assert np.any(whole[0] != whole[1])
    assert np.any(whole[0] != other[0])


def test_a_step_begins_at_the_same_count_in_all_replicas() -> None:
    """A replica that has drawn more, as its own rows asked for, draws the same at the next step."""
    found = []
    for before in (1, 5):
        draws = Draws()
        with drawing(draws, 1, 2, 3, 6):
            for count in (before, 1):
                draws.begin_step()
                last = [tf.random.normal([3]).numpy() for _ in range(count)][-1]
        found.append(last)

    np.testing.assert_array_equal(*found)


def test_other_draws_are_refused_where_they_are_compared() -> None:
    """Numbers of rows are known of uniform and normal draws only."""
    with drawing(Draws(7)), pytest.raises(RefusalError, match="must be uniform or normal"):
        tf.random.shuffle(tf.range(4))
    with drawing(None, 1, 2, 3, 6):
        assert sorted(tf.random.shuffle(tf.range(4)).numpy()) == [0, 1, 2, 3]
