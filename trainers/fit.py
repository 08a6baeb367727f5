"""Trains a workload on a backend with `Model.fit`."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RecordInProgress, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.artifacts import savers
from trainers.build import (
    build,
    check_same_data,
    held,
    make_pipeline,
    trained_on,
    weights_digest,
)
from trainers.checkpoint import Position
from trainers.driver import Driver, Listener, Progress, Training, step_teller
from trainers.evaluate import Evaluation
from trainers.ledger import FedTable
from trainers.resume import begin_within_epoch, check_begun, reader, restored, updates_done
from trainers.sync_proof import SyncProof
from trainers.totals import Totals
from trainers.train_step import instrument


def fit(
    record: RecordInProgress,
    workload: Workload,
    backend: Backend,
    *,
    run_dir: Path,
    listeners: Sequence[Listener] = (),
    virtual_replicas: int = 1,
) -> None:
    """Train for the epochs of the record's spec.

    Args:
        record: of this process. It says what to run, and what is seen is written into it.
        workload: model and data.
        backend: started; this process is a replica or the coordinator.
        run_dir: where the chief puts checkpoint, log and model.
        listeners: told after Ringside's own.
        virtual_replicas: see `trainers.train_step.instrument`; for verification only.
    """
    spec = record.spec
    backend = trained_on(spec, backend)
    training, position = _prepared(record, workload, backend, virtual_replicas)
    model = training.model
    listeners = [*_own_listeners(training, record, run_dir), *listeners]
    driver = Driver(training, record, listeners, begun=position.begun)
    driver.start()
    begin_within_epoch(model, training.updates_before)
    with backend.scope():
        model.fit(
            backend.distribute(_reader(training, position)),
            initial_epoch=position.epochs_done,
            epochs=spec.epochs,
            steps_per_epoch=training.steps_per_epoch,
            callbacks=[_KerasAdapter(driver, training.updates_before)],
            verbose=0,
        )
    # Those that do the same little work in each step; saving is no cost of a step.
    measured = [one for one in listeners if isinstance(one, SyncProof | Progress)]
    seconds = seconds_per_execution([driver.clock, *measured], done=training.updates)
    record.clock_s_per_step = seconds / spec.steps_per_execution
    driver.end()


class _StepAdapter(tf.keras.callbacks.Callback):
    """Calls a function with the updates done after each of Keras' calls of the training step."""

    def __init__(self, step: Callable[[int], None], done: int) -> None:
        super().__init__()
        # It reads no logs. Unsaid, Keras would copy them to the host after every step.
        self._supports_tf_logs = True
        self._step = step
        self._before_epoch = done  # updates of this run before the epoch's number 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """`batch` is the number, in its epoch, of the last update made."""
        self._step(self._before_epoch + batch + 1)


class _KerasAdapter(_StepAdapter):
    """Lets `Model.fit` drive a training."""

    def __init__(self, driver: Driver, updates_before: int) -> None:
        super().__init__(driver.step, -updates_before)
        self._driver = driver

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin it."""
        self._driver.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End it."""
        self._driver.end_epoch()
        self._before_epoch = self._driver.clock.done


def seconds_per_execution(listeners: Sequence[Any], *, done: int) -> float:
    """What Keras takes to tell these listeners of a step: median of 20 means over 100 steps each.

    Copies are told, whose lists are their own, so the listeners notice nothing. A launcher is told
    the number of updates once more.

    Args:
        listeners: of a training that is over, the clock among them.
        done: updates of the training.
    """
    copies = [copy.copy(one) for one in listeners]
    for one in copies:
        vars(one).update({k: list(v) for k, v in vars(one).items() if type(v) is list})
    called = tf.keras.callbacks.CallbackList([_StepAdapter(step_teller(copies), done)])
    means = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            called.on_train_batch_begin(-1)
            called.on_train_batch_end(-1, {})
        means.append((time.perf_counter() - began) / 100)
    return statistics.median(means)


def _own_listeners(training: Training, record: RecordInProgress, run_dir: Path) -> list[Listener]:
    synchronous = training.backend.capabilities.synchronous
    proved = synchronous and training.spec.ablation != "no_reduction"
    return [*([SyncProof(record)] if proved else []), *savers(training, run_dir)]


def _prepared(
    record: RecordInProgress, workload: Workload, backend: Backend, virtual_replicas: int
) -> tuple[Training, Position]:
    """The training before its first step, and where a resumed one stands."""
    spec = record.spec
    if workload.target is not None:
        record.quality_target = (workload.target.metric, workload.target.at_least)
    train = make_pipeline(spec, workload, backend, training=True)
    validation = make_pipeline(spec, workload, backend, training=False)
    steps = train.steps_per_epoch(backend.num_readers)
    record.train_examples = train.num_examples
    record.data_digest = train.data_digest
    check_same_data(backend, train.data_digest + validation.data_digest)
    model = build(spec, workload, backend, steps)
    position = restored(spec, model, backend)
    record.initial_digest = weights_digest(model)
    record.gradient_bytes = sum(
        variable.shape.num_elements() * variable.dtype.size
        for variable in model.trainable_variables
    )
    with backend.scope():
        fed = _fed_table(spec, train, backend)
    totals = Totals(model, backend, fed=fed, examples=train.num_examples)
    instrument(model, totals, spec, virtual_replicas)
    before = updates_done(position, backend)
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
        updates_before=before,
        updates=steps * (spec.epochs - position.epochs_done) - before,
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
