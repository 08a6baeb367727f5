"""Layers that make their weights at their first call: a training step is traced to make them.

Weights made in the first step would not be those with which every backend begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringside_core.keras import APPLY, as_in_this_thread, functions_in_python, optimizers_of, tf
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


def build_by_step(model: Any, step: str, batch: Any) -> str:
    """Let a step be traced on a batch: what it calls makes its weights then, and nothing is run.

    Numbers and tensors that are attributes of the model are afterwards as before.

    Args:
        model: with optimizers.
        step: of the model: `train_step` or `test_step`.
        batch: of the data, as the step takes it.

    Returns:
        The error that ended it, in one line; empty: none. If it is one of the step itself, its
        trial tells it.

    Raises:
        RefusalError: it reduces by Horovod.
    """
    graph, strategy = tf.__internal__.FuncGraph("step"), tf.distribute.get_strategy()
    applied, kept = _nothing_applied(optimizers_of(model)), _counters_kept(model)
    # A tf.function would keep what it traces here, where nothing is applied.
    with applied, kept, without_reductions(), functions_in_python():
        try:
            with graph.as_default():
                traced = as_in_this_thread(rewritten(getattr(model, step)))
                strategy.extended.call_for_each_replica(traced, (batch,))
        except RefusalError:
            raise
        except Exception as error:
            return in_one_line(error)
    return ""


@contextmanager
def _counters_kept(model: Any) -> Iterator[None]:
    before = vars(model).copy()
    try:
        yield
    finally:
        for name, value in list(vars(model).items()):
            plain = (
                value is None or tf.is_tensor(value) or isinstance(value, bool | int | float | str)
            )
            if name.startswith("_") or name == "built" or not plain:
                continue
            if name not in before:
                del vars(model)[name]
            elif value is not before[name]:
                vars(model)[name] = before[name]


@contextmanager
def _nothing_applied(optimizers: Sequence[Any]) -> Iterator[None]:
    """Let optimizers make no variables in a graph that is thrown away."""
    before = [vars(one).get(APPLY) for one in optimizers]
    for one in optimizers:
        vars(one)[APPLY] = lambda *_, **__: None
    try:
        yield
    finally:
        for one, apply in zip(optimizers, before, strict=True):
            del vars(one)[APPLY]
            if apply is not None:
                vars(one)[APPLY] = apply
