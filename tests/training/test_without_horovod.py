"""A program that still reduces by Horovod is refused before anything is trained, by every door."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.horovod_ring import import_horovod
from ringside.probe import fit_of
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.without_horovod import without_reductions
from trainers.fit import make_variables
from trainers.fit_call import fit_call

X, Y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)


def network(*layers: Any) -> Any:
    """A model of one weight matrix, and of these layers."""
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,)), *layers])


def wrapped() -> Any:
    """An optimizer of Horovod's."""
    return import_horovod().DistributedOptimizer(tf.keras.optimizers.SGD(0.1))


def compiled(optimizer: Any, *layers: Any) -> Any:
    """The model, compiled."""
    model = network(*layers)
    model.compile(optimizer, "mse")
    return model


def test_a_script_s_optimizer_and_callbacks() -> None:
    """All are named at once."""
    callback = import_horovod().callbacks.BroadcastGlobalVariablesCallback(0)

    with pytest.raises(RefusalError) as refused:
        fit_call(compiled(wrapped()), X, Y, callbacks=[callback])

    assert "SGD in hvd.DistributedOptimizer, BroadcastGlobalVariablesCallback" in str(refused.value)
    assert "docs/own-model.md" in str(refused.value)


REDUCING = """
import numpy as np
import ringside
from ringside import tf
import horovod.tensorflow as hvd
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    optimizer = tf.keras.optimizers.SGD(0.1)
@ringside.step
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    BY
    mine = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine))
    return loss
ringside.fit(train_step, np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=4)
"""
REDUCTIONS = {
    "tape": "tape = hvd.DistributedGradientTape(tape)",
    "operation": "hvd.allreduce(loss)",  # it says first that hvd.init was not called
    "in a function": "tf.function(lambda one: hvd.mpi_ops._allreduce(one))(loss)",
    "in a function that fails": "tf.function(hvd.allreduce)(loss)",
    "caught": "try: hvd.DistributedGradientTape(tape)\n    except Exception: pass",
}


@pytest.mark.parametrize("by", REDUCTIONS)
def test_a_step_of_one_s_own(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen where the step is traced before the training."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_horovod()
    (tmp_path / "mine.py").write_text(REDUCING.replace("BY", REDUCTIONS[by]))

    with pytest.raises(RefusalError, match=r"Received: hvd\.\w+ in a training step"):
        make_variables(fit_of(str(tmp_path / "mine.py")))


def test_horovod_works_again_afterwards() -> None:
    """Ringside's own backend reduces by it."""
    import_horovod()
    from horovod.tensorflow import mpi_ops

    before = mpi_ops.MPI_LIB
    with pytest.raises(RefusalError), without_reductions():
        mpi_ops.MPI_LIB.horovod_allreduce()
    with without_reductions():
        assert mpi_ops.MPI_LIB.horovod_size == before.horovod_size
    assert mpi_ops.MPI_LIB is before
