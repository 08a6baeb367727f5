"""What a run leaves on disk beside its records: checkpoint, ledger, TensorBoard log, model."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import EpochRecord
from trainers import checkpoint
from trainers.driver import Listener, Training
from trainers.resume import feed


def savers(training: Training, run_dir: Path) -> list[Listener]:
    """The listeners that save what the spec asks for.

    Args:
        training: that is saved.
        run_dir: where.
    """
    spec, path = training.spec, run_dir / "checkpoint.npz"
    found: list[Listener] = []
    if spec.ledger == "full" and training.backend.is_chief:
        found.append(_FedLists(run_dir / "ledger"))
    if spec.save == "all":
        found.append(_Checkpoint(training, path))
        if spec.checkpoint_steps is not None:
            found.append(_CheckpointWithin(training, path, spec.checkpoint_steps))
        if training.backend.is_chief:
            found.append(_TensorBoard(training, run_dir / "tensorboard"))
        found.append(_Export(training, run_dir / "model.keras"))
    return found


class _FedLists(Listener):
    """Which examples each replica was fed: one file for each epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_fed(self, epoch: int, ids: NDArray[Any]) -> None:
        checkpoint.write_arrays(self._folder / f"epoch-{epoch + 1:04d}.npz", {"fed": ids})


class _Checkpoint(Listener):
    """The newest checkpoint, after each epoch: read by all processes, written by the chief."""

    def __init__(self, training: Training, path: Path) -> None:
        self._training, self._path = training, path

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        arrays = checkpoint.snapshot(self._training.model)
        if self._training.backend.is_chief:
            checkpoint.write(self._path, arrays, epochs_done=epoch + 1)


class _CheckpointWithin(Listener):
    """The same every so many updates within an epoch. The time that it takes is the epoch's."""

    def __init__(self, training: Training, path: Path, every: int) -> None:
        self._training, self._path, self._every = training, path, every
        self._epoch = 0

    def on_epoch_begin(self, epoch: int) -> None:
        self._epoch = epoch

    def on_step(self, done: int) -> None:
        training = self._training
        of_epoch = (training.updates_before + done) % training.steps_per_epoch
        if not of_epoch or of_epoch % self._every:
            return
        backend = training.backend
        backend.barrier()  # a dispatched step is not a finished one
        # The chief writes what it holds, which must be what all hold.
        backend.average_statistics(training.model)
        arrays = checkpoint.snapshot(training.model)
        begun = training.totals.so_far(of_epoch, feed(training))
        if backend.is_chief:
            checkpoint.write(self._path, arrays, epochs_done=self._epoch, begun=begun)


class _TensorBoard(Listener):
    """A TensorBoard log of the epochs, written by Keras' own callback."""

    def __init__(self, training: Training, folder: Path) -> None:
        self._scope = training.backend.scope
        self._log = tf.keras.callbacks.TensorBoard(
            log_dir=str(folder), write_graph=False, update_freq="epoch"
        )

    def on_start(self, training: Training) -> None:
        with self._scope():
            self._log.set_model(training.model)
            self._log.on_train_begin()

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        validation = {f"val_{name}": value for name, value in record.validation.items()}
        self._log.on_epoch_end(epoch, {**record.train, **validation})

    def on_end(self) -> None:
        self._log.on_train_end()


class _Export(Listener):
    """model.keras: a plain Keras model with the trained weights.

    It is built anew outside of the strategy and not compiled, so that it loads where there is
    neither Ringside nor Horovod.
    """

    def __init__(self, training: Training, path: Path) -> None:
        self._training, self._path = training, path

    def on_end(self) -> None:
        weights = self._training.model.get_weights()  # in every process, see checkpoint.snapshot
        if self._training.backend.is_chief:
            plain = self._training.workload.build_model()
            plain.set_weights(weights)
            plain.save(self._path)
