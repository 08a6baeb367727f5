"""Horovod: horovodrun -np 2 python -m benchmarks.reference.horovod --replicas 2 --out result.json.

As Horovod's example tensorflow2_keras_mnist.py has it, but for the learning rate: the global batch
is the same at every size, so it is not scaled.
"""

import os

from benchmarks.reference import common

job = common.job_from_flags()
local = os.environ.get("HOROVOD_LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
common.pin(job, first_replica=int(local), replicas=1)
tf = common.tensorflow(job, replicas=1)

import horovod.tensorflow.keras as hvd  # noqa: E402  # after legacy Keras was chosen

hvd.init()
model = common.compiled_model(tf, job, hvd.DistributedOptimizer)
common.train(
    tf,
    job,
    model,
    common.batches(tf, job, job.per_replica_batch, index=hvd.rank(), count=hvd.size()),
    callbacks=(
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ),
    is_chief=hvd.rank() == 0,
)
