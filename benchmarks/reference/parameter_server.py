"""ParameterServerStrategy, one process for each task of TF_CONFIG (chief, worker, ps).

TF_CONFIG='{…}' python -m benchmarks.reference.parameter_server --replicas 2 --out result.json
"""

import json
import os
from typing import Any

from benchmarks.reference import common

job = common.job_from_flags()
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "worker":
    common.pin(job, first_replica=task["index"], replicas=1)
else:
    common.pin(job, first_replica=0, replicas=job.replicas)
tf = common.tensorflow(job, replicas=1)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()

if task["type"] != "chief":
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=job.intra, inter_op_parallelism_threads=job.inter
    )
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=task["type"],
        task_index=task["index"],
        protocol="grpc",
        config=config,
        start=True,
    )
    server.join()  # until it is killed


def dataset_fn(context: Any) -> Any:
    """The batches of one worker."""
    return common.batches(
        tf,
        job,
        context.get_per_replica_batch_size(job.per_replica_batch),
        index=context.input_pipeline_id,
        count=context.num_input_pipelines,
    )


strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = common.compiled_model(tf, job)
# A step is one worker's update: each worker makes as many as a synchronous run has.
common.train(
    tf,
    job,
    model,
    tf.keras.utils.experimental.DatasetCreator(dataset_fn),
    steps=common.steps_per_epoch(job) * job.replicas,
)
os._exit(0)  # a coordinator that was frozen takes minutes to end
