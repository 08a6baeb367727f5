"""Plain Keras: python -m benchmarks.reference.serial --out result.json."""

from benchmarks.reference import common

job = common.job_from_flags()
common.pin(job, first_replica=0, replicas=1)
tf = common.tensorflow(job, replicas=1)
common.train(tf, job, common.compiled_model(tf, job), common.batches(tf, job, job.global_batch))
