"""The rows of all replicas within a training step: for losses that couple the examples of a batch.

A replica's gradient counts by its share of the global batch's examples, and all are summed
(trainers/own_step.py). So what is trained is J = Σ share·L over the replicas r, where the loss L of
each may depend on the rows that all have gathered. The gradient of J by the rows of replica q is
the sum over all r of share·∂L/∂rows, at q's rows. Divided by q's share here, it is multiplied by it
where an optimizer applies it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ringside_core.keras import tf
from ringside_core.keras.part import here
from ringside_core.specs import RefusalError
from trainers.rows import gathered

_here = threading.local()  # a strategy traces each replica in a thread of its own

NOT_ON_PADDING = RefusalError(
    "ringside.gather needs a training step or a loss function of one's own: Keras' own batches may "
    "hold padding.",
    received="a call in Keras' own step",
    advice="Call it in train_step, or in the function that is given as the loss, without "
    "gradient accumulation.",
)


@dataclass(frozen=True)
class Together:
    """How the replicas of a step reach each other; all of them must call the same.

    Attributes:
        rows: [n, …] of this replica → [sum of all n, …], those of replica 0 first.
        total: a tensor → its sum over the replicas.
        number: of this replica, from 0.
    """

    rows: Callable[[Any], Any]
    total: Callable[[Any], Any]
    number: Callable[[], Any]


@dataclass(frozen=True)
class _Part:
    """A replica's part of a step: see `gathering`."""

    together: Together | RefusalError
    share: Any
    true: Any


def calls() -> int:
    """How often this thread has called `gather`."""
    return getattr(_here, "calls", 0)


@contextmanager
def gathering(
    together: Together | RefusalError | None, share: Any = None, true: Any = None
) -> Iterator[None]:
    """Within this block of a thread, `gather` is called in the step of a replica.

    Args:
        together: None: the replica is alone; an error: rows cannot be gathered, and why.
        share: how much this replica's gradient counts; scalar.
        true: number of its true examples; if it is 0, its rows are another replica's. Scalar.
    """
    before = getattr(_here, "part", None)
    _here.part = None if together is None else _Part(together, share, true)
    try:
        yield
    finally:
        _here.part = before


def gather(x: Any) -> Any:
    """The rows of the global batch, in a training step or a loss function of one's own.

    A loss that couples the examples of its batch (contrastive, say) then is that of the whole batch
    under every backend: compute it from gathered tensors only. Without distribution it returns x.

    Args:
        x: [rows of this replica, …] of floating point or integers; any number of rows for each
            example.

    Returns:
        [rows of all replicas, …]: those of replica 0 first, in the order of the global batch.

    Raises:
        RefusalError: the backend cannot, or it is called where a batch may hold padding.
    """
    if (rows := here()) is not None:
        return x if rows.size == 1 else gathered(rows, x)
    _here.calls = calls() + 1
    part: _Part | None = getattr(_here, "part", None)
    x = tf.convert_to_tensor(x)
    if part is None:
        return x
    if isinstance(part.together, RefusalError):
        raise part.together
    together, rows = part.together, tf.shape(x)[0]
    mine = tf.where(tf.cast(part.true, tf.int32) > 0, rows, 0)
    counts = together.rows(tf.reshape(mine, [1]))
    first = tf.reduce_sum(counts[: together.number()])
    share = tf.cast(part.share, x.dtype) if x.dtype.is_floating else None

    @tf.custom_gradient
    def joined(own: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            whole = together.total(tf.convert_to_tensor(upstream) * share)
            kept = tf.math.divide_no_nan(whole[first : first + mine], share)
            missing = [[0, rows - mine], *([0, 0] for _ in own.shape[1:])]
            return tf.pad(kept, missing)

        return together.rows(own[:mine]), gradient

    return joined(x) if share is not None else together.rows(x[:mine])
