"""What a run leaves on disk beside its records: checkpoint, TensorBoard log, model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload
from trainers import checkpoint
from trainers.epoch_totals import BegunEpoch
from trainers.training import Training


def savers(training: Training, run_dir: Path, begun: Callable[[int], BegunEpoch]) -> list[Any]:
    """The callbacks that save after each epoch, and within it where the spec asks for that.

    Args:
        training: that is saved.
        run_dir: where.
        begun: updates of the epoch → what a checkpoint keeps of them; a collective.
    """
    path = run_dir / "checkpoint.npz"
    found: list[Any] = [_Checkpoint(training.backend, path)]
    if training.spec.checkpoint_steps is not None:
        found.append(_CheckpointWithin(training, path, begun))
    if training.backend.is_chief:
        found.append(
            tf.keras.callbacks.TensorBoard(
                log_dir=str(run_dir / "tensorboard"), write_graph=False, update_freq="epoch"
            )
        )
    return found


class _Checkpoint(tf.keras.callbacks.Callback):
    """The newest checkpoint, after each epoch: read by all processes, written by the chief."""

    def __init__(self, backend: Backend, path: Path) -> None:
        super().__init__()
        self._backend, self._path = backend, path

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        arrays = checkpoint.snapshot(self.model)
        if self._backend.is_chief:
            checkpoint.write(self._path, arrays, epochs_done=epoch + 1)


class _CheckpointWithin(tf.keras.callbacks.Callback):
    """The same every so many updates within an epoch. The time that it takes is the epoch's."""

    def __init__(self, training: Training, path: Path, begun: Callable[[int], BegunEpoch]) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it reads no logs, so none need to be copied
        self._training, self._path, self._begun = training, path, begun
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        every, done = self._training.spec.checkpoint_steps, batch + 1
        if every is None or done % every or done == self._training.steps_per_epoch:
            return
        backend = self._training.backend
        backend.barrier()  # a dispatched step is not a finished one
        # The chief writes what it holds, which must be what all hold.
        backend.average_statistics(self.model)
        arrays, begun = checkpoint.snapshot(self.model), self._begun(done)
        if backend.is_chief:
            checkpoint.write(self._path, arrays, epochs_done=self._epoch, begun=begun)


def export_model(model: Any, workload: Workload, backend: Backend, run_dir: Path) -> None:
    """model.keras: a plain Keras model with the trained weights.

    It is built anew outside of the strategy and not compiled, so that it loads where there is
    neither Ringside nor Horovod.
    """
    weights = model.get_weights()  # in every process, see checkpoint.snapshot
    if backend.is_chief:
        plain = workload.build_model()
        plain.set_weights(weights)
        plain.save(run_dir / "model.keras")
