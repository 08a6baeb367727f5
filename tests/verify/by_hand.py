"""NumPy's own training of the control workload, as R replicas, rightly and with each mistake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringside.verify.mistakes import EPOCHS, GLOBAL_BATCH, TRAIN_EXAMPLES, VALIDATION_EXAMPLES
from tests.independent import order

RATE, MOMENTUM = 0.05, 0.875
Weights = list[np.ndarray]


@dataclass(frozen=True)
class Batch:
    """What one replica eats in one update: loss = sum(weight × scale × error²) ÷ examples."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    scale: float


def batches(
    x: np.ndarray,
    y: np.ndarray,
    order: Sequence[int],
    *,
    global_batch: int,
    replicas: int,
) -> list[list[Batch]]:
    """One epoch as [update][replica], short batches padded from the beginning of the order."""
    total, size = len(order), global_batch // replicas
    epoch = []
    for start in range(0, total, global_batch):
        true = min(global_batch, total - start)
        update = []
        for replica in range(replicas):
            first = start + replica * size
            ids = [order[p % total] for p in range(first, first + size)]
            weight = np.array([float(p < total) for p in range(first, first + size)])
            update.append(Batch(x[ids], y[ids], weight, global_batch / true))
        epoch.append(update)
    return epoch


def gradients(weights: Weights, batch: Batch) -> Weights:
    """Of the loss of a network x → tanh(x·a + b) → ·c + d, by hand."""
    a, b, c, d = weights
    hidden = np.tanh(batch.x @ a + b)
    error = hidden @ c + d - batch.y
    into = 2 * error * (batch.weight * batch.scale)[:, None] / len(batch.x)
    back = into @ c.T * (1 - hidden**2)
    return [batch.x.T @ back, back.sum(axis=0), hidden.T @ into, into.sum(axis=0)]


Combine = Callable[[list[Weights]], list[Weights]]


def mean(local: list[Weights]) -> list[Weights]:
    """All replicas get the mean of all gradients."""
    merged = [np.mean(column, axis=0) for column in zip(*local, strict=True)]
    return [merged] * len(local)


def train(
    starts: list[Weights],
    epochs: list[list[list[Batch]]],
    *,
    combine: Combine = mean,
    rate: float = RATE,
    velocities: list[Weights] | None = None,
) -> list[list[Weights]]:
    """SGD with momentum on each replica; weights as [update + 1][replica][variable].

    Args:
        starts: the initial weights of each replica.
        epochs: [epoch][update][replica].
        combine: local gradients → what each replica applies.
        rate: the learning rate.
        velocities: of each replica at the start; None: zeros.
    """
    now = [list(weights) for weights in starts]
    moving = velocities or [[np.zeros_like(w) for w in weights] for weights in starts]
    moving = [list(m) for m in moving]
    seen = [[list(weights) for weights in now]]
    for update in [update for epoch in epochs for update in epoch]:
        applied = combine([gradients(w, b) for w, b in zip(now, update, strict=True)])
        for replica, grads in enumerate(applied):
            moving[replica] = [
                MOMENTUM * m - rate * g for m, g in zip(moving[replica], grads, strict=True)
            ]
            now[replica] = [w + m for w, m in zip(now[replica], moving[replica], strict=True)]
        seen.append([list(weights) for weights in now])
    return seen


def squared_errors(weights: Weights, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each example."""
    a, b, c, d = weights
    return np.asarray(((np.tanh(x @ a + b) @ c + d - y) ** 2)[:, 0])


def counting(*, own_loss: bool = False) -> Any:
    """A workload with one weight for each example, of gradient -1: for updates in any order.

    After an epoch by SGD at rate 1, weight i is what example i counted. A model with a loss of its
    author's own is given true examples only; another one padding of weight 0.
    """
    from ringside_core.keras import tf
    from ringside_core.workloads.workload import Workload

    rows = np.eye(TRAIN_EXAMPLES)
    return Workload(
        name="counting_by_hand",
        model=lambda: tf.keras.Sequential(
            [
                tf.keras.layers.Dense(
                    1,
                    use_bias=False,
                    kernel_initializer="zeros",
                    input_shape=(TRAIN_EXAMPLES,),
                )
            ]
        ),
        train=(rows, np.full((TRAIN_EXAMPLES, 1), 1024.0)),
        validation=(rows[:VALIDATION_EXAMPLES], np.arange(1.0, VALIDATION_EXAMPLES + 1)[:, None]),
        # |label - weight|, and no weight comes near a label.
        loss=(lambda y, w: tf.squeeze(y - w, axis=-1)) if own_loss else "mean_absolute_error",
        optimizer=lambda: tf.keras.optimizers.SGD(1.0),
        metrics=lambda: [tf.keras.metrics.RootMeanSquaredError(name="rmse")],
    )


def counted(name: str, *, seed: int, replicas: int) -> np.ndarray:
    """What each example counts when each worker's batch is an update of its own."""
    found, total, size = np.zeros(TRAIN_EXAMPLES), TRAIN_EXAMPLES, GLOBAL_BATCH // replicas
    if name == "tail_dropped":
        total -= total % GLOBAL_BATCH
    by_worker: list[list[tuple[list[int], float]]] = [[] for _ in range(replicas)]
    for worker in range(replicas):
        for epoch in range(EPOCHS):
            own_seed = seed + (worker if name == "different_order" else 0)
            ids_in_order = order(epoch, seed=own_seed, total=total)
            reader = 0 if name == "same_shard" else worker
            for begin in range(reader * size, total, GLOBAL_BATCH):
                ids = ids_in_order[begin : begin + size]
                if name == "padding_counted":
                    ids = [ids_in_order[p % total] for p in range(begin, begin + size)]
                by_worker[worker].append((ids, 1 / len(ids)))
    if name == "fed_nothing":
        by_worker[1][1] = ([], 0.0)
    if name == "same_shard":  # worker 1 is asked for its own number of batches
        by_worker[1] = by_worker[1][: 2 * EPOCHS]
    factor = replicas if name in ("gradients_summed", "rate_scaled_twice") else 1
    for ids, part in [batch for batches in by_worker for batch in batches]:
        for number in ids:
            found[number] += factor * part
    return found
