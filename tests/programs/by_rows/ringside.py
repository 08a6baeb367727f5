"""The same words, by rows of the author's own global batches: Keras' own `fit` on trainers/step.py.

It stands between the step, which is Ringside's, and `ringside.fit`, which does not use it yet
(docs/decisions/0009-rows.md). ARM=mirrored:2 names a backend and its replicas. TILED=1: each row
of a batch stands as often as there are replicas. PASSES=2: for one update each replica runs its
rows in two passes.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.framework.config import disable_op_determinism

from backends import make_backend
from ringside_core.keras import VERSION, looks_at_steps, tf
from ringside_core.keras.draws import Draws
from ringside_core.specs import RunSpec, Topology, read_surroundings
from ringside_core.specs.backends import backend_options
from ringside_core.workloads.augment import refusals_as_they_are
from trainers.gather import gather
from trainers.step import Steps

__all__ = ["fit", "gather", "is_chief", "ledger", "scope", "shard", "step"]

_name, _, _replicas = os.environ.get("ARM", "serial:1").partition(":")
_processes = int(_replicas) if _name in ("horovod", "multi_worker_mirrored") else 1
_spec = RunSpec(
    backend=_name,
    options=backend_options(_name, {}),
    topology=Topology(
        processes_per_host=_processes, replicas_per_process=int(_replicas) // _processes
    ),
    global_batch=8 * int(_replicas),
    epochs=1,
    keras=VERSION,
    trained_by="fit" if VERSION == 2 else "loop",
)
_backend = make_backend(_spec, read_surroundings(os.environ, lambda *_: ()))
_backend.__enter__()
_steps = Steps(_backend, passes=int(os.environ.get("PASSES", 1)))
_steps.tiled = os.environ.get("TILED") == "1"
_iterate, _compile = tf.data.Dataset.__iter__, tf.keras.Model.compile


def _read_the_same(self: Any) -> Iterator[Any]:
    """All processes read the same if data are deterministic; the steps are not made so."""
    tf.config.experimental.enable_op_determinism()
    try:
        return _iterate(self)
    finally:
        disable_op_determinism()


def _compiled(self: Any, *args: Any, **kwargs: Any) -> None:
    """A model may be evaluated before it is trained."""
    _compile(self, *args, **kwargs)
    _steps.take(self)


tf.data.Dataset.__iter__, tf.keras.Model.compile = _read_the_same, _compiled


def scope() -> Any:
    """The backend's."""
    return _backend.scope()


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


def fit(
    model: Any,
    *data: Any,
    gradients: str = "optimizer",
    draws: int | None = None,
    **arguments: Any,
) -> Any:
    """`Model.fit`; of a step, a loop over its batches. By rows, if a seed of draws is given."""
    _steps.at_tape = gradients == "tape"
    with scope():
        _steps.draws = None if draws is None else Draws(draws)
    _steps.used.clear()
    history = None
    if isinstance(model, tf.keras.Model):
        _steps.take(model)
        _steps.each_step = any(map(looks_at_steps, arguments.get("callbacks") or ()))
        if _processes > 1:
            _backend.begin_training(model)
        with refusals_as_they_are():
            history = model.fit(*data, **arguments)
        _backend.average_statistics(model)
    else:
        _steps.loop(model, *data, **arguments)
    _steps.check_replicas()
    return history


def ledger() -> list[int]:
    """Rows that were trained since the last call, and the hash of them in their order."""
    assert _steps.ledger is not None
    found = list(_steps.ledger.read())
    _steps.ledger.begin()
    return found


def shard(data: Any) -> Any:
    """All of it."""
    return data


def is_chief() -> bool:
    """The process that may write."""
    return _backend.is_chief
