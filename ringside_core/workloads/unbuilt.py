"""Layers that make their weights at their first call: a training step is traced to make them.

Weights made in the first step would not be those with which every backend begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringside_core.keras import APPLY, tf
from ringside_core.specs import RefusalError
from ringside_core.users_errors import in_one_line
from ringside_core.workloads.functions import rewritten
from ringside_core.workloads.without_horovod import without_reductions

_LAYER = tf.keras.layers.Layer


def unbuilt(used: Sequence[Any]) -> list[Any]:
    """Layers, and models, of these that have not made their weights."""
    found = []
    for part in used:
        if isinstance(part, _LAYER):
            found += part._flatten_layers()
        elif isinstance(part, tf.Module):
            found += [one for one in part.submodules if isinstance(one, _LAYER)]
    return [one for one in found if not one.built]


def build_by_step(step: Any, optimizers: Sequence[Any], batch: Any) -> str:
    """Let a step be traced on a batch: what it calls makes its weights then, and nothing is run.

    Args:
        step: a train_step.
        optimizers: that it applies.
        batch: of the data, as the step takes it.

    Returns:
        The error that ended it, in one line; empty: none. If it is one of the step itself, its
        trial tells it.

    Raises:
        RefusalError: it reduces by Horovod.
    """
    graph = tf.__internal__.FuncGraph("step")
    with _nothing_applied(optimizers), without_reductions(), graph.as_default():
        try:
            rewritten(step)(batch)
        except RefusalError:
            raise
        except Exception as error:
            return in_one_line(error)
    return ""


@contextmanager
def _nothing_applied(optimizers: Sequence[Any]) -> Iterator[None]:
    """Let optimizers make no variables in a graph that is thrown away."""
    for one in optimizers:
        vars(one)[APPLY] = lambda *_, **__: None
    try:
        yield
    finally:
        for one in optimizers:
            del vars(one)[APPLY]
