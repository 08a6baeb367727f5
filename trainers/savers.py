"""What a run leaves on disk beside its records: checkpoint, TensorBoard log, model."""

from pathlib import Path
from typing import Any

from backends.base import Backend
from legacy_keras import tf
from trainers import checkpoint
from workloads.workload import Workload


def savers(backend: Backend, run_dir: Path) -> list[Any]:
    """The callbacks that save after each epoch."""
    found: list[Any] = [_Checkpoint(backend, run_dir / "checkpoint.npz")]
    if backend.is_chief:
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
