"""The first random numbers of each replica, drawn by the model as a timed run seeds it.

Within the other cases random layers are tied to the examples (example_random.py), so replicas that
all draw the same mask would not be seen there.
"""

from typing import Any

from numpy.typing import NDArray

from ringside.verify.example_random import described, drawing_layers
from ringside.verify.recorder import Watch
from ringside.verify.trace import BY_TENSORFLOW
from ringside_core.keras import generator_of, tf
from ringside_core.specs import InputShard
from trainers.predict import Table

NUMBERS = 16


class DrawnError(Exception):
    """Ends a training before its first step: all that was wanted of it is known."""


class Draws(Watch):
    """Keeps what each replica draws first, and ends the training."""

    def on_start(self) -> None:
        """Draw where the first step would be made."""
        self._trace.drawn = first_draws(self.training.model, self.training.backend)
        raise DrawnError


def first_draws(model: Any, backend: Any) -> dict[str, NDArray[Any]]:
    """What each replica draws first in each random layer, and by tf.random: [replicas, NUMBERS].

    Every process must call it.

    Args:
        model: of a training, before its first step; its layers draw as they are.
        backend: on which it was built.
    """
    layers, replicas = drawing_layers(model), backend.num_replicas
    draws = [generator_of(layer).random_uniform for layer in layers]
    draws.append(lambda shape: tf.random.uniform(shape, dtype=tf.keras.backend.floatx()))
    with backend.scope():
        tables = [
            Table(f"ringside_drawn_{i}", (replicas, NUMBERS), tf.keras.backend.floatx())
            for i, _ in enumerate(draws)
        ]

    def numbers_of(shard: InputShard) -> Any:
        local = replicas // shard.count
        return tf.data.Dataset.range(shard.index * local, (shard.index + 1) * local).batch(1)

    def step(replica: Any) -> None:
        for draw, table in zip(draws, tables, strict=True):
            table.update_state(replica, draw((1, NUMBERS)))

    # Asynchronous workers take steps in turn, others make a step together.
    times = 1 if backend.capabilities.synchronous else backend.num_readers
    backend.stepper(step, numbers_of)(times)
    drawn = backend.merged_results(tables)
    names = [*map(described, layers), BY_TENSORFLOW]
    return {name: drawn[table.name] for name, table in zip(names, tables, strict=True)}
