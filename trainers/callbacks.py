"""Keras callbacks of a training's author: with metrics that are merged over all replicas."""

from collections.abc import Sequence
from typing import Any

from ringside_core.keras import tf
from trainers.callback_state import CallbackState

_kinds = tf.keras.callbacks
# Every process takes part where a strategy reads variables by a collective; there Keras lets all
# but the chief write into folders that it removes.
_WRITE_TOGETHER = (_kinds.ModelCheckpoint, _kinds.TensorBoard)
_WRITE_ALONE = (_kinds.CSVLogger, _kinds.RemoteMonitor)
_DONE_ANYWAY = (_kinds.ProgbarLogger, _kinds.TerminateOnNaN)


def learned_by(
    given: Sequence[Any], state: CallbackState | None, model: Any, *, stopped: bool
) -> tuple[CallbackState | None, tuple[str, ...]]:
    """From what callbacks go on at a restart (None: from nothing), and warnings of what does not.

    Args:
        given: the callbacks.
        state: of a checkpoint; None: it has none.
        model: that is trained.
        stopped: they have stopped that training, which is trained on now.
    """
    if not given:
        return None, ()
    if stopped or state is None or not state.fits(given, model):
        names = sorted({type(callback).__name__ for callback in given})
        said = "the checkpoint does not hold what these callbacks have learned"
        if stopped:
            said = "callbacks had stopped this training"
        return None, (f"{', '.join(names)} began anew at the restart: {said}.",)
    if not state.left_out:
        return state, ()
    said = "a checkpoint holds numbers, texts and NumPy arrays of a callback, and lists of them"
    return state, (f"{', '.join(state.left_out)} began anew at the restart: {said}.",)


def _is_called(callback: Any) -> bool:
    return type(callback) not in _DONE_ANYWAY


def of_this_process(given: Sequence[Any], model: Any, backend: Any) -> list[Any]:
    """Those that this process calls: a file is written once.

    Args:
        given: Keras callbacks.
        model: that is trained.
        backend: started.
    """
    together = model.distribute_strategy.extended._in_multi_worker_mode()

    def here(one: Any) -> bool:
        if isinstance(one, _WRITE_ALONE) or (isinstance(one, _WRITE_TOGETHER) and not together):
            return bool(backend.is_chief)
        return True

    return [one for one in given if _is_called(one) and here(one)]
