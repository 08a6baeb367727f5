"""Train a workload on a backend with `Model.fit`, and write down what this process saw."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from legacy_keras import tf
from specs import EpochRecord, RefusalError, RunSpec
from trainers import checkpoint
from trainers.clock import Clock
from trainers.evaluate import Evaluation
from trainers.learning_rate import apply_rule
from trainers.ledger import Ledger, digest
from trainers.sync_proof import SyncProof
from workloads.pipeline import Pipeline
from workloads.workload import Workload


class DivergedError(FloatingPointError):
    """A loss or a metric is no longer a number."""


class LedgerError(RuntimeError):
    """An epoch was not fed the examples that the plan holds."""


@dataclass
class FitResult:
    """What `fit` saw; filled while it runs, so that a failure leaves what came before it.

    Attributes:
        initial_digest, final_digest: SHA-256 of all weights of this process, in order.
        first_step_done: `time.time()` after the first step.
        train_examples: training examples that there are, after the filter.
        replica_deviation, data_digest: see RunRecord.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    initial_digest: str = ""
    final_digest: str = ""
    first_step_done: float | None = None
    train_examples: int | None = None
    replica_deviation: float | None = None
    data_digest: str = ""


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
    """
    train = make_pipeline(spec, workload, backend, training=True)
    validation = make_pipeline(spec, workload, backend, training=False)
    steps = train.steps_per_epoch(backend.num_readers)
    result.train_examples = train.num_examples
    result.data_digest = train.data_digest
    _check_same_data(backend, train.data_digest + validation.data_digest)
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
        totals = _Totals()
    _instrument(model, totals)
    clock = Clock(backend, lambda step: on_step(step, steps * (spec.epochs - done)))
    recorder = _EpochEnd(
        clock=clock,
        totals=totals,
        backend=backend,
        evaluate=Evaluation(model, workload, backend, validation),
        examples=train.epoch_examples(backend.num_readers),
        process_start=process_start,
        on_epoch=on_epoch,
        result=result,
    )
    callbacks = [*backend.callbacks(), clock, recorder]
    proof = SyncProof(backend, initial)
    if backend.capabilities.synchronous:
        callbacks.append(proof)
    if spec.save == "all":
        callbacks += _savers(backend, run_dir)
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
        _export(model, workload, backend, run_dir)


def _check_same_data(backend: Backend, digest_text: str) -> None:
    """Refuse processes that hold other examples, or the same in another order."""
    mine = np.frombuffer(hashlib.sha256(digest_text.encode()).digest()[:8], np.int64)
    differs = float((mine != backend.broadcast(mine)).any())
    if backend.all_reduce(np.array([differs]), "max")[0]:
        raise RefusalError(
            "Every process must hold the same examples in the same order.",
            received="data that differ between processes",
            advice="Seed every shuffle and random split of the workload, and sort file lists.",
        )


def make_pipeline(
    spec: RunSpec, workload: Workload, backend: Backend, *, training: bool
) -> Pipeline:
    """The pipeline of the training or the validation split."""
    return Pipeline(
        source=workload.train if training else workload.validation,
        preprocess=workload.preprocess,
        options=spec.pipeline,
        plan=spec.batch_plan,
        training=training,
        synchronous=backend.capabilities.synchronous,
        seed=spec.seed,
    )


def build(spec: RunSpec, workload: Workload, backend: Backend, steps_per_epoch: int) -> Any:
    """The compiled model, with the same initial weights under every backend and in every process.

    The weights are drawn by a model built outside of any strategy: within a strategy the random
    operations would be numbered otherwise.
    """
    tf.keras.utils.set_random_seed(spec.seed)
    weights = workload.build_model().get_weights()
    tf.keras.backend.clear_session()  # so that names do not depend on what was built before
    tf.keras.utils.set_random_seed(spec.seed)
    with backend.scope():
        model = workload.build_model()
        model.set_weights(weights)
        optimizer = workload.optimizer()
        apply_rule(optimizer, spec, workload, steps_per_epoch)
        model.compile(
            optimizer=backend.wrap_optimizer(optimizer),
            loss=workload.loss,
            weighted_metrics=workload.metrics(),
        )
    return model


def weights_digest(model: Any) -> str:
    """SHA-256 over all weights of this process's model, in order."""
    sha = hashlib.sha256()
    for value in model.get_weights():
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def _local_trainable(model: Any, backend: Backend) -> list[NDArray[Any]]:
    return [backend.local_values(variable)[0] for variable in model.trainable_variables]


class _Totals:
    """What is added up within the training step, as metrics, so that each backend sums it.

    Attributes:
        ledger: ids of the examples.
        loss_sum: sum over examples of the loss at the time of their step.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.loss_sum = tf.keras.metrics.Sum(name="ringside_loss_sum")

    def reset(self) -> None:
        self.ledger.reset_state()
        self.loss_sum.reset_state()


def _instrument(model: Any, totals: _Totals) -> None:
    """Let the training step take (x, y, weight, scale, id), and add up what the record needs.

    Metrics are updated in the step, but read once an epoch (`Backend.merged_results`) in every arm.
    Keras reads them after each step, which under MultiWorkerMirroredStrategy is an all-reduce for
    each of their variables, within the timed step of that arm alone (FIELD.md, 3).
    """
    train_step, compute_loss = model.train_step, model.compute_loss
    batch = threading.local()  # a strategy traces each replica in a thread of its own

    def instrumented_step(data: Any) -> Any:
        x, y, batch.weight, batch.scale, ids = data
        totals.ledger.update_state(ids)
        train_step((x, y, batch.weight * batch.scale))
        return {}

    def loss_with_sum(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        loss = compute_loss(x, y, y_pred, sample_weight)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync  # Keras divided by them
        size = tf.cast(tf.shape(batch.weight)[0], loss.dtype)
        totals.loss_sum.update_state(loss * replicas * size / tf.cast(batch.scale, loss.dtype))
        return loss

    def update_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        del x, sample_weight
        model.compiled_metrics.update_state(y, y_pred, batch.weight)
        return {}

    model.train_step = instrumented_step
    model.compute_loss = loss_with_sum
    model.compute_metrics = update_metrics
    model.get_metrics_result = dict


class _EpochEnd(tf.keras.callbacks.Callback):
    """Validates and writes the epoch's record; stands behind the clock, which stops first."""

    def __init__(
        self,
        *,
        clock: Clock,
        totals: _Totals,
        backend: Backend,
        evaluate: Evaluation,
        examples: int,
        process_start: float,
        on_epoch: Callable[[int, EpochRecord], None],
        result: FitResult,
    ) -> None:
        super().__init__()
        self._clock, self._totals, self._backend = clock, totals, backend
        self._evaluate, self._examples = evaluate, examples
        self._process_start, self._on_epoch, self._result = process_start, on_epoch, result

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        with self._backend.scope():
            self._totals.reset()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        totals = self._totals
        # Keras' own `loss` is a mean of batches; the one recorded is that of examples.
        metrics = [metric for metric in self.model.metrics if metric.name != "loss"]
        merged = self._backend.merged_results([*metrics, totals.ledger, totals.loss_sum])
        fed = digest(merged.pop(totals.ledger.name))
        loss = float(merged.pop(totals.loss_sum.name)) / max(1, fed.count)
        train = {"loss": loss, **{name: float(value) for name, value in merged.items()}}
        expected = self._examples
        if self._backend.capabilities.synchronous and fed.count != expected:
            raise LedgerError(
                f"epoch {epoch + 1} was fed {fed.count} examples, its plan holds {expected}"
            )
        validation, counted = self._evaluate()
        ended = {**train, **{f"val_{name}": value for name, value in validation.items()}}
        if not np.isfinite(list(ended.values())).all():
            raise DivergedError(f"epoch {epoch + 1} ended with {ended}")
        if logs is not None:
            logs.update(ended)  # for TensorBoard, which stands behind
        record = EpochRecord(
            steps=len(self._clock.step_end_s),
            examples=fed.count,
            train_s=self._clock.train_s,
            step_end_s=self._clock.step_end_s,
            end_since_process_start_s=time.time() - self._process_start,
            train=train,
            validation=validation,
            validation_examples=counted,
            ledger=fed,
        )
        self._result.first_step_done = self._clock.first_step_done
        self._result.epochs.append(record)
        self._on_epoch(epoch, record)


def _savers(backend: Backend, run_dir: Path) -> list[Any]:
    savers: list[Any] = [_Checkpoint(backend, run_dir / "checkpoint.npz")]
    if backend.is_chief:
        savers.append(
            tf.keras.callbacks.TensorBoard(
                log_dir=str(run_dir / "tensorboard"), write_graph=False, update_freq="epoch"
            )
        )
    return savers


class _Checkpoint(tf.keras.callbacks.Callback):
    """The newest checkpoint, after each epoch: read by all processes, written by the chief."""

    def __init__(self, backend: Backend, path: Path) -> None:
        super().__init__()
        self._backend, self._path = backend, path

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        arrays = checkpoint.snapshot(self.model)
        if self._backend.is_chief:
            checkpoint.write(self._path, arrays, epochs_done=epoch + 1)


def _export(model: Any, workload: Workload, backend: Backend, run_dir: Path) -> None:
    """model.keras: a plain Keras model with the trained weights.

    It is built anew outside of the strategy and not compiled, so that it loads where there is
    neither Ringside nor Horovod.
    """
    weights = model.get_weights()  # in every process, see checkpoint.snapshot
    if backend.is_chief:
        plain = workload.build_model()
        plain.set_weights(weights)
        plain.save(run_dir / "model.keras")
