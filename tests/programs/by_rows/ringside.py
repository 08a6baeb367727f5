"""The same words by rows: `train_call`, as `ringside.fit` calls it.

ARM=mirrored:2 names a backend and its replicas. TILED=1: each row of a batch stands as often as
there are replicas. PASSES=2: for one update each replica runs its rows in two passes.
"""

import os
from pathlib import Path
from typing import Any

from backends import make_backend
from ringside_core.keras import VERSION, tf
from ringside_core.keras.draws import Draws
from ringside_core.specs import RecordInProgress, RunSpec, Topology, read_surroundings
from ringside_core.specs.backends import backend_options
from ringside_core.workloads.step import step
from trainers.fit import train_call
from trainers.fit_call import fit_call
from trainers.rows import gather
from trainers.step import Steps

__all__ = ["fit", "gather", "is_chief", "ledger", "scope", "step"]

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
)
_backend = make_backend(_spec, read_surroundings(os.environ, lambda *_: ()))
_backend.__enter__()
_steps = Steps(_backend, passes=int(os.environ.get("PASSES", 1)))
_steps.tiled = os.environ.get("TILED") == "1"
_ledger: list[tuple[int, str]] = []
_compile = tf.keras.Model.compile


def _compiled(self: Any, *args: Any, **kwargs: Any) -> None:
    """A model may be evaluated before it is trained."""
    _compile(self, *args, **kwargs)
    _steps.take(self)


tf.keras.Model.compile = _compiled


def scope() -> Any:
    """The backend's."""
    return _backend.scope()


def fit(
    model: Any, *data: Any, gradients: str = "optimizer", draws: int | None = None, **arguments: Any
) -> Any:
    """`ringside.fit`. By rows, if a seed of draws is given."""
    with scope():
        _steps.draws = None if draws is None else Draws(draws)
        call = fit_call(model, *data, gradients=gradients, **arguments)  # type: ignore[arg-type]
    record = RecordInProgress.begun(_spec.replace(epochs=max(1, call.last_epoch), save="record"))
    try:
        return train_call(call, record, _steps, run_dir=Path(), number=1)
    finally:
        found = [epoch.ledger for epoch in record.epochs if epoch.ledger is not None]
        _ledger.extend((ledger.rows, ledger.hash) for ledger in found)


def ledger() -> list[Any]:
    """Rows that were trained since the last call, and their hash in each epoch."""
    found = [sum(rows for rows, _ in _ledger), [hashed for _, hashed in _ledger]]
    _ledger.clear()
    return found


def is_chief() -> bool:
    """The process that may write."""
    return _backend.is_chief
