"""Train a workload on a backend with `Model.fit`, and write down what this process saw."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from specs import EpochRecord, RefusalError, RunSpec
from trainers import checkpoint
from trainers.build import build, check_same_data, make_pipeline, weights_digest
from trainers.clock import Clock
from trainers.epoch_end import EpochEnd
from trainers.evaluate import Evaluation
from trainers.savers import export_model, savers
from trainers.sync_proof import SyncProof
from trainers.train_step import Totals, instrument
from trainers.training import FitResult, Training
from workloads.workload import Workload


def fit(
    spec: RunSpec,
    workload: Workload,
    backend: Backend,
    *,
    run_dir: Path,
    process_start: float,
    on_step: Callable[[int, int], None],
    on_epoch: Callable[[int, EpochRecord], None],
    result: FitResult,
    watchers: Callable[[Training], list[Any]] = lambda _: [],
) -> None:
    """Train for the epochs of the spec.

    Args:
        spec: the run.
        workload: model and data.
        backend: started; this process is a replica or the coordinator.
        run_dir: where the chief puts checkpoint, log and model.
        process_start: `time.time()` when the process began.
        on_step: called with (steps done, steps in all) after each step.
        on_epoch: called with (epoch, its record).
        result: filled in.
        watchers: gives further Keras callbacks for the training that is about to begin; they stand
            behind all others.
    """
    train = make_pipeline(spec, workload, backend, training=True)
    validation = make_pipeline(spec, workload, backend, training=False)
    steps = train.steps_per_epoch(backend.num_readers)
    result.train_examples = train.num_examples
    result.data_digest = train.data_digest
    check_same_data(backend, train.data_digest + validation.data_digest)
    model = build(spec, workload, backend, steps)
    done = 0
    if spec.resume_from:
        done = checkpoint.restore(Path(spec.resume_from), model, backend)
        if done >= spec.epochs:
            raise RefusalError(
                "A resumed run must have epochs left.",
                received=f"{done} done, --epochs {spec.epochs}",
                advice="Ask for more epochs.",
            )
    initial = [np.asarray(v, np.float64) for v in _local_trainable(model, backend)]
    result.initial_digest = weights_digest(model)
    with backend.scope():
        totals = Totals()
    instrument(model, totals, spec)
    training = Training(
        spec=spec,
        workload=workload,
        backend=backend,
        train=train,
        validation=validation,
        steps_per_epoch=steps,
        model=model,
        totals=totals,
        evaluate=Evaluation(model, workload, backend, validation),
    )
    clock = Clock(backend, lambda step: on_step(step, steps * (spec.epochs - done)))
    recorder = EpochEnd(
        clock=clock,
        training=training,
        process_start=process_start,
        on_epoch=on_epoch,
        result=result,
    )
    callbacks = [*backend.callbacks(), clock, recorder]
    proof = SyncProof(backend, initial)
    if backend.capabilities.synchronous:
        callbacks.append(proof)
    if spec.save == "all":
        callbacks += savers(backend, run_dir)
    callbacks += watchers(training)
    with backend.scope():
        model.fit(
            backend.distribute(lambda shard: train.dataset(shard, first_epoch=done)),
            initial_epoch=done,
            epochs=spec.epochs,
            steps_per_epoch=steps,
            callbacks=callbacks,
            verbose=0,
        )
    result.final_digest = weights_digest(model)
    result.replica_deviation = proof.deviation
    if spec.save == "all":
        export_model(model, workload, backend, run_dir)


def _local_trainable(model: Any, backend: Backend) -> list[NDArray[Any]]:
    return [backend.local_values(variable)[0] for variable in model.trainable_variables]
