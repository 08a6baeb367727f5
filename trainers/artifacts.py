"""What a run leaves on disk beside its records: checkpoints, TensorBoard log, model."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringside_core.keras import get_weights, set_weights, tf
from ringside_core.specs import AUTO, EpochRecord, RecordInProgress, is_full, remove_halves
from ringside_core.users_errors import in_one_line
from trainers import checkpoint
from trainers.callback_state import CallbackState
from trainers.checkpoint import Position
from trainers.driver import DivergedError, Listener, Training


def savers(
    training: Training,
    record: RecordInProgress,
    run_dir: Path,
    *,
    rebuilt: Callable[[], Any] | None,
    learned: Callable[[], CallbackState | None],
) -> list[Listener]:
    """The listeners that save what the spec asks for.

    Args:
        training: that is saved.
        record: of this process; a warning is written into it.
        run_dir: where.
        rebuilt: builds the model once more, to be exported; None: a script has it.
        learned: what the callbacks have learned so far.
    """
    spec, is_chief = training.spec, training.backend.is_chief
    found: list[Listener] = []
    if spec.save == "all":
        found.append(Checkpoint(run_dir, record, spec.checkpoint_steps, learned))
        if is_chief:
            found.append(_TensorBoard(run_dir / "tensorboard"))
        if rebuilt is not None:
            found.append(Export(run_dir / "model.keras", record, rebuilt))
    return found


class Checkpoint(Listener):
    """The newest checkpoint and the one before it: read by all processes, written by the chief.

    They are written after each epoch, and within one as far as is asked for. Weights that are no
    numbers never take the place of others. A checkpoint that does not fit on the disk ends nothing:
    the one before it stays. That of the epoch with the smallest validation loss is kept too.

    Attributes:
        said: what became of the last one, in words.
    """

    said = "nothing was saved"

    def __init__(
        self,
        run_dir: Path,
        record: RecordInProgress,
        every: int | None,
        learned: Callable[[], CallbackState | None],
    ) -> None:
        """Save nothing yet.

        Args:
            run_dir: folder of the run.
            record: of this process.
            every: updates after which it also saves within an epoch; None: it does not.
            learned: see `savers`.
        """
        self._learned = learned
        self._run_dir, self._record, self._every = run_dir, record, every
        self._path, self._epoch, self._best = run_dir / checkpoint.NEWEST, 0, float("inf")
        self._done_before = 0

    def on_start(self) -> None:
        """Look which weights are numbers, and what has been kept."""
        # A layer may keep an infinity on purpose, as a mask.
        self._numbers = checkpoint.all_numbers(get_weights(self.training.model))
        self._before = self._record.warnings
        if self.training.backend.is_chief:
            remove_halves(self._path)
            if self.training.spec.resume_from == AUTO:
                self._best = checkpoint.best_loss(self._run_dir)

    def on_epoch_begin(self, epoch: int) -> None:
        """Note it."""
        self._epoch, self._done_before = epoch, self.clock.done

    def on_step(self, done: int) -> None:
        """Save if it is time. What this takes is the epoch's time."""
        of_epoch = self._of_epoch(done)
        if self._every is not None and of_epoch and of_epoch % self._every == 0:
            self.save_after(done)

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Save, and keep the best."""
        training = self.training
        position = Position(epoch + 1, feed=training.feed, ended=training.model.stop_training)
        self._save(position, record.validation.get("loss"))

    def can_save_after(self, done: int) -> bool:
        """Whether a checkpoint after this update would be one within an epoch."""
        return self.training.backend.capabilities.synchronous and self._of_epoch(done) > 0

    def save_after(self, done: int) -> None:
        """Save within an epoch, after `done` updates of this run; all processes must call it."""
        training, of_epoch = self.training, self._of_epoch(done)
        self.tell_phase("saving")  # a disk may take its time; after this step: training
        training.backend.barrier()  # a dispatched step is not a finished one
        # The chief writes what it holds, which must be what all hold.
        training.backend.average_statistics(training.model)
        begun = training.totals.so_far(of_epoch, training.feed)
        self._save(Position(self._epoch, begun))

    def _of_epoch(self, done: int) -> int:
        """Updates of the epoch after `done` of this run; 0: it is over."""
        training = self.training
        resumed = self._epoch == training.first_epoch
        found = done - self._done_before + (training.updates_before if resumed else 0)
        return 0 if found == training.steps_per_epoch else found

    def _save(self, position: Position, loss: float | None = None) -> None:
        model = self.training.model
        arrays = checkpoint.snapshot(model)
        weights = checkpoint.values_in(arrays)[: len(self._numbers)]
        pairs = zip(self._numbers, checkpoint.all_numbers(weights), strict=True)
        if any(before and not now for before, now in pairs):
            raise DivergedError("weights are no longer numbers")
        self.said = f"saved in {checkpoint.NEWEST}"
        if self.training.backend.is_chief:
            self._record.warnings = self._before
            position = dataclasses.replace(
                position,
                learned=self._learned(),
                replicas=self.training.spec.topology.num_replicas,
                place=self.training.data.where(epoch_is_over=position.begun is None),
            )
            epoch = position.epochs_done + (position.begun is not None)
            if failure := self._unless_full(
                lambda: checkpoint.write(self._path, arrays, position, loss=loss),
                f"No checkpoint could be written after epoch {epoch}",
            ):
                self.said = failure
            elif loss is not None and loss < self._best:
                self._keep_best(loss, epoch)

    def _keep_best(self, loss: float, epoch: int) -> None:
        """Keep the newest checkpoint, which has just been written, as the best one."""
        if not self._unless_full(
            lambda: checkpoint.keep(self._path, self._run_dir / checkpoint.BEST),
            f"No best checkpoint could be written after epoch {epoch}",
        ):
            self._best = loss

    def _unless_full(self, write: Callable[[], None], otherwise: str) -> str:
        """Write, if it fits on the disk; else a warning, which is in the record too."""
        try:
            write()
        except OSError as error:
            if not is_full(error):
                raise
            failure = f"{otherwise}: {error}. The one before it is kept."
            self._record.warnings += (failure,)
            return failure
        return ""


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


class Export(Listener):
    """model.keras: a plain Keras model with the trained weights.

    It is built outside of the strategy and not compiled, so that it loads without Ringside and
    Horovod.
    """

    def __init__(self, path: Path, record: RecordInProgress, rebuilt: Callable[[], Any]) -> None:
        self._path, self._record, self._rebuilt = path, record, rebuilt

    def on_end(self) -> None:
        """Write it."""
        weights = get_weights(self.training.model)  # in every process, see checkpoint.snapshot
        if self.training.backend.is_chief:
            plain = self.training.model
            try:
                plain = self._rebuilt()
                set_weights(plain, weights)  # a model may have none before its first call
                plain.save(self._path)
            except OSError:  # the disk may be full
                raise
            except Exception as error:  # of Keras, or of a layer that cannot be saved
                self._path.unlink(missing_ok=True)
                # Keras 3 asks its layers for their configuration.
                without = isinstance(error, NotImplementedError)
                why = " without a get_config of its own" if without else f": {in_one_line(error)}"
                self._record.warnings += (
                    f"No {self._path.name} was written: Keras cannot save {type(plain).__name__}"
                    f"{why.rstrip('.')}. Its weights are in the checkpoint.",
                )
