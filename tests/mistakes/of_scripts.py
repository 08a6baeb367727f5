"""Mistakes in how a script is trained, each planted in an arm: `ringside verify` must see them.

The first sentence of a function says what is then done wrong. This file imports no TensorFlow.
"""

from collections.abc import Callable
from typing import Any

FED, ONCE, PARITY = "training ledger", "each gradient once", "float64 parity"
AS_TIMED, RESUMED, SINGLE = "as timed", "resumed", "float32 single updates"
# Name → (what fails, arms, how it is planted).
MISTAKES: dict[str, tuple[str, tuple[str, ...], Callable[[Any], None]]] = {}
BOTH = ("mirrored", "horovod")


def mistake(fails: str, *arms: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Into the table, under the name of the function."""

    def listed(plant: Callable[[Any], None]) -> Callable[[Any], None]:
        MISTAKES[plant.__name__] = fails, arms or ("mirrored",), plant
        return plant

    return listed


def _changed(backend: Any, name: str, change: Callable[..., Any]) -> None:
    upstream = getattr(backend, name)
    vars(backend)[name] = lambda *given: change(upstream, *given)


@mistake(ONCE, *BOTH)
def gradients_twice(backend: Any) -> None:
    """Each gradient counts twice."""
    _changed(
        backend,
        "sum_gradients",
        lambda add, g, *rest: [x if x is None else 2 * x for x in add(g, *rest)],
    )


@mistake(ONCE, *BOTH)
def gradients_averaged(backend: Any) -> None:
    """The shares add up to 1, and the sum is divided by the replicas besides."""
    _changed(
        backend,
        "sum_gradients",
        lambda add, g, *rest: [x if x is None else x / 2 for x in add(g, *rest)],
    )


@mistake(FED, *BOTH)
def gradients_not_added(backend: Any) -> None:
    """Each replica trains alone."""
    _changed(backend, "sum_gradients", lambda add, g, *rest: g)


@mistake(FED, "mirrored")
def all_rows_everywhere(backend: Any) -> None:
    """Every replica trains the whole batch."""
    from trainers import step

    upstream = vars(step)["cut"]
    vars(step)["cut"] = lambda batch, r, size: upstream(batch, 0, 1)


@mistake(FED, *BOTH)
def rows_one_after_the_other(backend: Any) -> None:
    """A replica gets the next block of rows, and counts it as if it were every second row."""
    from trainers import step
    from trainers.rows import block

    upstream = vars(step)["cut"]

    def cut(batch: Any, r: int, size: int) -> Any:
        _, rows, n = upstream(batch, r, size)
        return block(batch, r, size), rows, n

    vars(step)["cut"] = cut


@mistake(AS_TIMED, *BOTH)
def equal_shares(backend: Any) -> None:
    """Replicas count the same, also where a short batch gives them different numbers of rows."""
    from ringside_core.keras import part, tf

    def share(own: Any) -> Any:
        return tf.constant(1 / own.size, tf.float64)

    vars(part)["_equal"] = share
    part.Part.share = property(share)  # type: ignore[assignment, method-assign]


@mistake(FED, *BOTH)
def last_batch_left_out(backend: Any) -> None:
    """The data end before their last batch."""
    from trainers import reading

    vars(reading)["_iterate"] = lambda data, make=reading._iterate: make(
        data.take(int(data.cardinality()) - 1) if int(data.cardinality()) > 1 else data
    )


@mistake(FED, *BOTH)
def another_order(backend: Any) -> None:
    """The batches come in another order."""
    from trainers import reading

    vars(reading)["_iterate"] = lambda data, make=reading._iterate: make(data.shuffle(9, seed=1))


@mistake(PARITY, *BOTH)
def own_history(backend: Any) -> None:
    """The history tells what one replica has seen."""
    _changed(
        backend,
        "with_summed",
        lambda add, variables, read: {
            name: value * 1.01 for name, value in add(variables, read).items()
        },
    )


@mistake(PARITY, *BOTH)
def other_dropout(backend: Any) -> None:
    """A replica's masks are not those of its rows."""
    from ringside_core.keras import draws

    upstream = draws.Draws.next
    draws.Draws.next = lambda self: 1 + upstream(self)  # type: ignore[method-assign]


@mistake(RESUMED, *BOTH)
def begins_its_data_again(backend: Any) -> None:
    """A resumed training reads its data from their beginning."""
    from trainers import reading

    init = reading.Reading.__init__

    def fresh(self: Any, again: bool, place: Any = None, *rest: Any, **named: Any) -> None:
        del place
        init(self, again, None, *rest, **named)

    reading.Reading.__init__ = fresh  # type: ignore[method-assign]


@mistake(RESUMED, *BOTH)
def optimizer_forgotten(backend: Any) -> None:
    """A checkpoint does not restore what the optimizer holds."""
    from trainers import checkpoint

    def put(values: Any, model: Any, backend: Any, put: Any = checkpoint.put) -> None:
        weights = len(model.get_weights())
        put([*values[:weights], *(0 * value for value in values[weights:])], model, backend)

    vars(checkpoint)["put"] = put


@mistake(SINGLE, *BOTH)
def half_precision(backend: Any) -> None:
    """In float32, gradients are sent in 16 bits."""
    from ringside_core.keras import tf

    def narrow(x: Any) -> Any:
        if x is None or x.dtype != tf.float32:
            return x
        return tf.cast(tf.cast(x, tf.float16), tf.float32)

    _changed(backend, "sum_gradients", lambda add, g, *rest: add([*map(narrow, g)], *rest))
