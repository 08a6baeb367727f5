"""MultiWorkerMirroredStrategy, one process for each task of TF_CONFIG.

TF_CONFIG='{…}' python -m benchmarks.reference.multi_worker_mirrored --replicas 2 --out result.json
"""

import json
import os

from benchmarks.reference import common

job = common.job_from_flags()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
common.pin(job, first_replica=index, replicas=1)
tf = common.tensorflow(job, replicas=1)
common.be_patient(job)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = common.compiled_model(tf, job)
# The global batch: `fit` gives each worker its part.
common.train(tf, job, model, common.batches(tf, job, job.global_batch), is_chief=index == 0)
