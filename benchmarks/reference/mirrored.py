"""MirroredStrategy: python -m benchmarks.reference.mirrored --replicas 2 --out result.json."""

from benchmarks.reference import common

job = common.job_from_flags()
common.pin(job, first_replica=0, replicas=job.replicas)
tf = common.tensorflow(job, replicas=job.replicas)
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(job.replicas)])
with strategy.scope():
    model = common.compiled_model(tf, job)
common.train(tf, job, model, common.batches(tf, job, job.global_batch))
