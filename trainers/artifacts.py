"""What a run leaves on disk beside its records: checkpoint, ledger, TensorBoard log, model."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ringside_core.keras import get_weights, set_weights, tf
from ringside_core.specs import EpochRecord, RecordInProgress, is_full, remove_halves
from trainers import checkpoint
from trainers.driver import DivergedError, Listener, Training
from trainers.resume import feed
from trainers.totals import BegunEpoch


def savers(
    training: Training, record: RecordInProgress, run_dir: Path, *, exported: bool
) -> list[Listener]:
    """The listeners that save what the spec asks for.

    Args:
        training: that is saved.
        record: of this process; a warning is written into it.
        run_dir: where.
        exported: whether the model is written too; a script has it.
    """
    spec, is_chief = training.spec, training.backend.is_chief
    found: list[Listener] = []
    if spec.ledger == "full" and is_chief:
        found.append(_FedLists(run_dir / "ledger"))
    if spec.save == "all":
        path, every = run_dir / "checkpoint.npz", spec.checkpoint_steps
        found.append(
            _Checkpoint(path, record) if every is None else _CheckpointWithin(path, record, every)
        )
        if is_chief:
            found.append(_TensorBoard(run_dir / "tensorboard"))
        if exported:
            found.append(_Export(run_dir / "model.keras"))
    return found


class _FedLists(Listener):
    """Which examples each replica was fed: one file for each epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_fed(self, epoch: int, ids: NDArray[Any]) -> None:
        checkpoint.write_arrays(self._folder / f"epoch-{epoch + 1:04d}.npz", {"fed": ids})


class _Checkpoint(Listener):
    """The newest checkpoint, after each epoch: read by all processes, written by the chief.

    Weights that are no numbers never take the place of others. A checkpoint that does not fit on
    the disk ends nothing: the one before it stays.
    """

    def __init__(self, path: Path, record: RecordInProgress) -> None:
        self._path, self._record = path, record

    def on_start(self) -> None:
        # A layer may keep an infinity on purpose, as a mask.
        self._numbers = checkpoint.all_numbers(get_weights(self.training.model))
        if self.training.backend.is_chief:
            remove_halves(self._path)

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        self._save(epochs_done=epoch + 1)

    def _save(self, epochs_done: int, begun: BegunEpoch | None = None) -> None:
        model = self.training.model
        arrays = checkpoint.snapshot(model)
        weights = checkpoint.values_in(arrays)[: len(self._numbers)]
        pairs = zip(self._numbers, checkpoint.all_numbers(weights), strict=True)
        if any(before and not now for before, now in pairs):
            raise DivergedError("weights are no longer numbers")
        if not self.training.backend.is_chief:
            return
        try:
            checkpoint.write(self._path, arrays, epochs_done=epochs_done, begun=begun)
        except OSError as error:
            if not is_full(error):
                raise
            self._record.warnings = (
                f"No checkpoint could be written after epoch {epochs_done + (begun is not None)}: "
                f"{error}. The one before it is kept.",
            )
        else:
            self._record.warnings = ()


class _CheckpointWithin(_Checkpoint):
    """Also every so many updates within an epoch. The time that this takes is the epoch's."""

    def __init__(self, path: Path, record: RecordInProgress, every: int) -> None:
        super().__init__(path, record)
        self._every, self._epoch = every, 0

    def on_epoch_begin(self, epoch: int) -> None:
        self._epoch = epoch

    def on_step(self, done: int) -> None:
        training = self.training
        of_epoch = (training.updates_before + done) % training.steps_per_epoch
        if not of_epoch or of_epoch % self._every:
            return
        training.backend.barrier()  # a dispatched step is not a finished one
        # The chief writes what it holds, which must be what all hold.
        training.backend.average_statistics(training.model)
        self._save(self._epoch, training.totals.so_far(of_epoch, feed(training)))


class _TensorBoard(Listener):
    """A TensorBoard log of the epochs, written by Keras' own callback."""

    def __init__(self, folder: Path) -> None:
        self._log = tf.keras.callbacks.TensorBoard(
            log_dir=str(folder), write_graph=False, update_freq="epoch"
        )

    def on_start(self) -> None:
        with self.training.backend.scope():
            self._log.set_model(self.training.model)
            self._log.on_train_begin()

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        validation = {f"val_{name}": value for name, value in record.validation.items()}
        self._log.on_epoch_end(epoch, {**record.train, **validation})

    def on_end(self) -> None:
        self._log.on_train_end()


class _Export(Listener):
    """model.keras: a plain Keras model with the trained weights.

    It is built outside of the strategy and not compiled, so that it loads without Ringside and
    Horovod.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_end(self) -> None:
        weights = get_weights(self.training.model)  # in every process, see checkpoint.snapshot
        if self.training.backend.is_chief:
            plain = self.training.workload.build_model()
            set_weights(plain, weights)
            plain.save(self._path)
