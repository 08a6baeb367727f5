"""A training made ready, whichever way its steps will be made."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends.base import Backend
from ringside_core.keras import (
    make_shared_generator,
    note_unused,
    optimizers_of,
    trainable_of,
)
from ringside_core.specs import AUTO, InputShard, RecordInProgress, RunSpec
from ringside_core.workloads.pipeline import Pipeline, make_pipeline
from ringside_core.workloads.workload import Workload
from trainers.artifacts import Checkpoint, savers
from trainers.build import (
    build,
    check_same_data,
    held,
    trained_on,
    tried_out,
    weights_digest,
)
from trainers.callbacks import Callbacks, calling
from trainers.checkpoint import Position
from trainers.driver import Driver, Listener, Training
from trainers.ledger import FedTable
from trainers.lookups import Lookups
from trainers.own_evaluation import evaluation
from trainers.own_step import OwnStep
from trainers.preemption import Preemption
from trainers.resume import check_goes_on, reader, restored
from trainers.sync_proof import SyncProof
from trainers.totals import Totals, updates_per_batch
from trainers.train_step import instrument
from trainers.whole_batch import takes_true_examples


def prepare(
    record: RecordInProgress,
    workload: Workload,
    backend: Backend,
    *,
    run_dir: Path,
    listeners: Sequence[Listener] = (),
    virtual_replicas: int = 1,
    callbacks: Sequence[Listener] | None = None,
) -> Driver:
    """Build or resume what the record's spec says; its training step counts what it is fed.

    Args:
        record: of this process. It says what to run, and what is seen is written into it.
        workload: model and data.
        backend: started; this process is a replica or the coordinator.
        run_dir: where the chief puts checkpoint, log and model.
        listeners: told after those that save.
        virtual_replicas: see `trainers.train_step.instrument`; for verification only.
        callbacks: told before Ringside's own, because they may change the model; None: those of the
            workload.

    Returns:
        The driver of the training, not started.

    Raises:
        RefusalError: the workload, its data or the checkpoint cannot be trained as the spec says.
    """
    spec = record.spec
    backend = trained_on(spec, backend)
    if workload.target is not None:
        record.quality_target = (workload.target.metric, workload.target.at_least)
    train = make_pipeline(spec, workload, backend.capabilities, training=True)
    validation = make_pipeline(spec, workload, backend.capabilities, training=False)
    steps = train.shares.steps_per_epoch(backend.num_readers)
    record.train_examples, record.goes_on = train.num_examples, train.shares.goes_on
    dropped = [one for one in validation.prepared.said if "drop_remainder" in one]
    record.input_notes = (*train.prepared.said, *(f"of validation: {one}" for one in dropped))
    record.data_digest = train.data_digest
    check_same_data(backend, train.data_digest + validation.data_digest)
    model = build(spec, workload, backend, steps)
    if callbacks is None:
        callbacks = _callbacks(spec, workload)  # of the run of a script that built this model
    trial = tried_out(spec, workload, backend, (train, validation), model)
    with backend.scope():
        make_shared_generator()
    note_unused(model, [True] * len(optimizers_of(model)))  # an earlier training may have said so
    lookups, own = Lookups(model, spec, virtual_replicas), None
    if trial and trial.trained:
        own = OwnStep(model, backend, spec, train, trial, lookups, virtual_replicas)
    position = restored(record, model, backend, run_dir)
    record.initial_digest = weights_digest(model)
    record.gradient_bytes = sum(
        variable.shape.num_elements() * variable.dtype.size for variable in trainable_of(model)
    )
    with backend.scope():
        fed = _fed_table(spec, train, backend)
    totals = Totals(model, backend, fed=fed, examples=train.num_examples, own=own)
    wrap_tape = backend.wrap_tape if spec.trained_by == "loop" else None
    one_pass = instrument(
        model, totals, spec, lookups, virtual_replicas, own=own, wrap_tape=wrap_tape
    )
    batches_before = 0 if position.begun is None else position.begun.batches
    before = batches_before * updates_per_batch(backend)
    training = Training(
        spec=spec,
        workload=workload,
        backend=backend,
        train=train,
        validation=validation,
        batches=_reader(spec, train, position, backend),
        steps_per_epoch=steps,
        model=model,
        totals=totals,
        evaluate=evaluation(model, workload, backend, validation, trial, virtual_replicas),
        first_epoch=position.epochs_done,
        begun=position.begun,
        updates_before=before,
        updates=steps * (spec.epochs - position.epochs_done) - before,
        steps_per_execution=spec.steps_per_execution,
    )
    lookups.find(one_pass, backend, train)  # when metrics have been made
    check_goes_on(training, position)
    record.warnings += _of_filled_batches(training)
    if trial is not None or getattr(training.evaluate, "coupled", False):
        record.warnings += _of_other_batches(training)
    calls = next((one for one in callbacks if isinstance(one, Callbacks)), None)
    if calls is not None and workload.validates:
        record.warnings += calls.never_called
    if calls is not None and (position.epochs_done or position.begun is not None):
        # Who names the checkpoint of a training that callbacks have stopped wants to train on.
        stopped = position.ended and spec.resume_from != AUTO
        record.warnings += calls.go_on_from(position.learned, model, stopped=stopped)
    saving = savers(
        training,
        record,
        run_dir,
        exported=True,
        learned=calls.learned if calls is not None else lambda: None,
    )
    # Last, so that all others have been told of what is saved.
    goes_on = spec.options.passes_per_reduction == 1  # what Horovod accumulates is in no checkpoint
    ending = [Preemption(one) for one in saving if isinstance(one, Checkpoint) and goes_on]
    proof = _proof(training, record) if training.updates else []  # nothing changes
    return Driver(training, record, [*callbacks, *proof, *saving, *listeners, *ending])


def _of_filled_batches(training: Training) -> tuple[str, ...]:
    """A warning if the filling of a short batch is seen by its examples."""
    splits = (training.train, training.validation)
    short = [one.shares.last_batch for one in splits if one.shares.last_batch]
    coupled = getattr(training.evaluate, "coupled", False)
    if not (short and coupled) or takes_true_examples(training.model):
        return ()
    return (
        "What the model makes of an example depends on the others of its batch. A last batch of "
        f"{' or '.join(map(str, sorted(set(short))))} examples is filled up to "
        f"{training.spec.global_batch} with others, of weight 0, so losses and metrics are not "
        "those of plain Keras.",
    )


def _of_other_batches(training: Training) -> tuple[str, ...]:
    """A warning if an evaluation is in other batches than its author's; it looks at the whole."""
    authors = getattr(training.workload.validation, "batch_size", None)
    if not training.workload.validates or authors in (None, training.spec.global_batch):
        return ()
    return (
        f"The validation data are in batches of {authors}. Ringside evaluates in batches of "
        f"{training.spec.global_batch}, as it trains: what a loss, a metric or a test_step makes "
        "of a whole batch is another number.",
    )


def _callbacks(spec: RunSpec, workload: Workload) -> list[Listener]:
    """The author's callbacks; certificates and comparisons do without (`--save record`)."""
    given = workload.new_callbacks()
    return [calling(given)] if given and spec.save == "all" else []


def _proof(training: Training, record: RecordInProgress) -> list[Listener]:
    """The proof that replicas stay equal, where they must."""
    synchronous = training.backend.capabilities.synchronous
    proved = synchronous and training.spec.ablation != "no_reduction"
    return [SyncProof(record)] if proved else []


def _reader(
    spec: RunSpec, train: Pipeline, position: Position, backend: Backend
) -> Callable[[InputShard], Any]:
    read = reader(spec, train, position)
    return held(read, backend.num_replicas) if spec.ablation == "no_input" else read


def _fed_table(spec: RunSpec, train: Pipeline, backend: Backend) -> FedTable | None:
    if spec.ledger != "full":
        return None
    # Of an asynchronous run the first reader has the most.
    shard = InputShard(index=0, count=backend.num_readers)
    return FedTable(
        steps=train.shares.reader_batches(shard),
        replicas=train.plan.num_replicas,
        batch=train.plan.per_replica_batch,
        per_reader=train.plan.num_replicas // backend.num_readers,
    )
