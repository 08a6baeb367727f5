"""Train a workload on a backend with `Model.fit`, and write down what this process saw."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.specs import EpochRecord, InputShard, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.ablation import held, trained_on
from trainers.artifacts import export_model, savers
from trainers.build import build, check_same_data, make_pipeline, weights_digest
from trainers.checkpoint import Position
from trainers.clock import Clock, seconds_per_execution
from trainers.epoch_end import EpochEnd
from trainers.epoch_totals import EpochTotals
from trainers.evaluate import Evaluation
from trainers.ledger import FedTable
from trainers.resume import begin_within_epoch, check_begun, feed, reader, restored, updates_done
from trainers.sync_proof import SyncProof
from trainers.train_step import Totals, instrument
from trainers.training import FitResult, Training


def fit(
    spec: RunSpec,
    workload: Workload,
    backend: Backend,
    *,
    run_dir: Path,
    result: FitResult,
    process_start: float | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_epoch: Callable[[int, EpochRecord], None] = lambda number, record: None,
    watchers: Callable[[Training], list[Any]] = lambda _: [],
    virtual_replicas: int = 1,
) -> None:
    """Train for the epochs of the spec.

    Args:
        spec: the run.
        workload: model and data.
        backend: started; this process is a replica or the coordinator.
        run_dir: where the chief puts checkpoint, log and model.
        result: filled in.
        process_start: `time.time()` when the process began; None: now.
        on_step: called with (steps done, steps in all) after each step.
        on_epoch: called with (epoch, its record).
        watchers: gives further Keras callbacks for the training that is about to begin; they stand
            behind all others but the start of the clock.
        virtual_replicas: see `trainers.train_step.instrument`; for verification only.
    """
    backend = trained_on(spec, backend)
    training, position = _prepared(spec, workload, backend, result, virtual_replicas)
    model, steps = training.model, training.steps_per_epoch
    begun_updates = updates_done(position, backend)
    left = steps * (spec.epochs - position.epochs_done) - begun_updates
    clock = Clock(backend, lambda step: on_step(step, left), first_step=begun_updates)
    totals = EpochTotals(model, backend, training.totals, feed=feed(training))
    recorder = EpochEnd(
        clock=clock,
        training=training,
        process_start=time.time() if process_start is None else process_start,
        on_epoch=on_epoch,
        result=result,
        run_dir=run_dir,
        totals=totals,
        begun=position.begun,
    )
    callbacks = [*backend.callbacks(), clock, recorder]
    proof = SyncProof(
        backend, [np.asarray(v, np.float64) for v in _local_trainable(model, backend)]
    )
    if backend.capabilities.synchronous and spec.ablation != "no_reduction":
        callbacks.append(proof)
    if spec.save == "all":
        callbacks += savers(training, run_dir, totals.so_far)
    callbacks += watchers(training)
    callbacks.append(clock.starter())
    begin_within_epoch(model, begun_updates)
    with backend.scope():
        model.fit(
            backend.distribute(_reader(training, position)),
            initial_epoch=position.epochs_done,
            epochs=spec.epochs,
            steps_per_epoch=steps,
            callbacks=callbacks,
            verbose=0,
        )
    result.final_digest = weights_digest(model)
    result.replica_deviation = proof.deviation
    own = [callback for callback in callbacks if callback in (clock, proof)]
    result.clock_s_per_step = seconds_per_execution(own) / spec.steps_per_execution
    if spec.save == "all":
        export_model(model, workload, backend, run_dir)


def _prepared(
    spec: RunSpec,
    workload: Workload,
    backend: Backend,
    result: FitResult,
    virtual_replicas: int,
) -> tuple[Training, Position]:
    """The training before its first step, and where a resumed one stands."""
    train = make_pipeline(spec, workload, backend, training=True)
    validation = make_pipeline(spec, workload, backend, training=False)
    steps = train.steps_per_epoch(backend.num_readers)
    result.train_examples = train.num_examples
    result.data_digest = train.data_digest
    check_same_data(backend, train.data_digest + validation.data_digest)
    model = build(spec, workload, backend, steps)
    position = restored(spec, model, backend)
    result.initial_digest = weights_digest(model)
    result.gradient_bytes = sum(
        variable.shape.num_elements() * variable.dtype.size
        for variable in model.trainable_variables
    )
    with backend.scope():
        totals = Totals(_fed_table(spec, train, backend), train.num_examples)
    instrument(model, totals, spec, virtual_replicas)
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
    check_begun(training, position.begun)
    return training, position


def _reader(training: Training, position: Position) -> Callable[[InputShard], Any]:
    read = reader(training.spec, training.train, position)
    if training.spec.ablation == "no_input":
        return held(read, training.backend.num_replicas)
    return read


def _fed_table(spec: RunSpec, train: Pipeline, backend: Backend) -> FedTable | None:
    if spec.ledger != "full":
        return None
    # Of an asynchronous run the first reader has the most.
    shard = InputShard(index=0, count=backend.num_readers)
    return FedTable(
        steps=train.reader_batches(shard),
        replicas=train.plan.num_replicas,
        batch=train.plan.per_replica_batch,
        per_reader=train.plan.num_replicas // backend.num_readers,
    )


def _local_trainable(model: Any, backend: Backend) -> list[NDArray[Any]]:
    return [backend.local_values(variable)[0] for variable in model.trainable_variables]
