"""OneDeviceStrategy: python -m benchmarks.reference.one_device --out result.json."""

from benchmarks.reference import common

job = common.job_from_flags()
common.pin(job, first_replica=0, replicas=1)
tf = common.tensorflow(job, replicas=1)
with tf.distribute.OneDeviceStrategy("CPU:0").scope():
    model = common.compiled_model(tf, job)
common.train(tf, job, model, common.batches(tf, job, job.global_batch))
