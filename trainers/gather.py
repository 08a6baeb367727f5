"""The rows of all replicas within a training step: for losses that couple the rows of a batch."""

from typing import Any

from ringside_core.keras.part import here
from trainers.rows import gathered


def gather(x: Any) -> Any:
    """The rows of the global batch, in a training step or a loss function that an author wrote.

    A loss that couples the examples of its batch (contrastive, say) then is that of the whole batch
    under every backend: compute it from gathered tensors only. Without distribution it returns x.

    Args:
        x: [rows of this replica, …] of floating point or integers; any number of rows for each
            example.

    Returns:
        [rows of all replicas, …]: those of replica 0 first, in the order of the global batch.

    Raises:
        RefusalError: it is called in a branch, or in a step that takes several passes.
    """
    part = here()
    return x if part is None or part.size == 1 else gathered(part, x)
