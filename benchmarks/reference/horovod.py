"""Horovod: horovodrun -np 2 python -m benchmarks.reference.horovod --replicas 2 --out result.json.

As Horovod's example tensorflow2_keras_mnist.py has it, but for the learning rate: the global batch
is the same at every size, so it is not scaled. Horovod's optimizer does not reduce the gradients of
Keras 3 (docs/upstream.md); there a step of its own uses Horovod's tape, as
tensorflow2_mnist.py does.
"""

import os
from typing import Any

from benchmarks.reference import common

job = common.job_from_flags()
local = os.environ.get("HOROVOD_LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
common.pin(job, first_replica=int(local), replicas=1)
tf = common.tensorflow(job, replicas=1)


def legacy() -> tuple[Any, Any, tuple[Any, ...]]:
    """Horovod, a model whose optimizer it wraps, and its callbacks."""
    import horovod.tensorflow.keras as hvd  # after legacy Keras was chosen

    hvd.init()
    model = common.compiled_model(tf, job, hvd.DistributedOptimizer)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    return hvd, model, (broadcast, hvd.callbacks.MetricAverageCallback())


def keras_3() -> tuple[Any, Any, tuple[Any, ...]]:
    """Horovod, a model that reduces in its own step, and no callbacks."""
    import horovod.tensorflow as hvd

    hvd.init()

    class Averaged(tf.keras.Sequential):  # type: ignore[name-defined]  # no types
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predictions = self(x, training=True)
                loss = self.compute_loss(x, y, predictions)
            variables = [one.value for one in self.trainable_variables]
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, predictions)
            return {metric.name: metric.result() for metric in self.metrics}

    model = common.compiled_model(tf, job, kind=Averaged)
    hvd.broadcast_variables([one.value for one in model.variables], root_rank=0)
    return hvd, model, ()


hvd, model, callbacks = legacy() if job.keras == 2 else keras_3()
common.train(
    tf,
    job,
    model,
    common.batches(tf, job, job.per_replica_batch, index=hvd.rank(), count=hvd.size()),
    callbacks=callbacks,
    is_chief=hvd.rank() == 0,
)
