"""An epoch of training that leaves the weights alone, so that its metrics can be told."""

from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RunSpec
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.workload import Workload
from trainers.lookups import Lookups
from trainers.totals import Totals
from trainers.train_step import instrument


def still() -> Any:
    """An optimizer that moves nothing."""
    return tf.keras.optimizers.SGD(0.0)


def trained_metrics(
    spec: RunSpec, workload: Workload, backend: Backend, model: Any
) -> dict[str, float]:
    """What one epoch records of its metrics. The weights stay, the optimizer being `still`."""
    totals = Totals(model, backend)
    instrument(model, totals, spec, Lookups(model, spec))
    backend.begin_training(model)
    backend.begin_epoch()
    train = make_pipeline(spec, workload, backend.capabilities, training=True)
    with backend.scope():
        model.fit(
            backend.distribute(train.dataset),
            steps_per_epoch=train.shares.steps_per_epoch(backend.num_readers),
            verbose=0,
        )
    results = totals.results()
    for own in (totals.ledger, totals.loss_sum):
        del results[own.name]
    return {name: float(np.squeeze(value)) for name, value in results.items()}
