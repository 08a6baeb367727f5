"""Horovod and its launchers, with legacy Keras."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scripts.upstream.start import (
    AS_ROOT,
    Finding,
    die_with_parent,
    end,
    own_environment,
    run,
    same_or_other,
    trap,
    values,
)


def _hvd() -> Any:
    """Horovod for Keras; without the first line it would import Keras 3 (horovod#4290)."""
    import tf_keras

    sys.modules["keras"] = tf_keras
    import horovod.tensorflow.keras as hvd

    hvd.init()
    return hvd


def imports(way: str) -> str:
    """Whose backend Horovod's Keras module uses, where TF_USE_LEGACY_KERAS is 1."""
    import horovod.tensorflow.keras as hvd

    del way
    return str(hvd.K.__name__)


@trap("horovod-imports-keras3")
def imports_keras3() -> Finding:
    """With TF_USE_LEGACY_KERAS=1 Horovod's Keras module still imports Keras 3."""
    (name,) = values(run(imports, keras=2))
    return not name.startswith(
        "tf_keras"
    ), f"TF_USE_LEGACY_KERAS=1, and Horovod's backend is {name}"


def late(way: str) -> Any:
    """Weights of a rank that began with others than rank 0, after one update at rate 1."""
    import tensorflow as tf

    del way
    hvd = _hvd()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    model.set_weights([np.full((1, 1), 1.0 + hvd.rank())])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5)), "mse")
    model.fit(
        np.ones((1, 1)),
        np.zeros((1, 1)),
        verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
    )
    return float(model.get_weights()[0][0, 0])


@trap("horovod-broadcasts-after-the-first-batch")
def broadcasts_late() -> Finding:
    """BroadcastGlobalVariablesCallback acts after batch 1: its gradients are of other weights."""
    weight, right = values(run(late, "ranks", keras=2))[0], 1.0 - 0.5 * 2.0  # both at weight 1
    return weight != right, (
        f"ranks begin at 1 and 2; after one update the weight is {weight}, "
        f"had both begun at 1 it would be {right}"
    )


def normalised(way: str) -> float:
    """The largest output of batch normalisation for two ranks, which hold 0 and 10."""
    import tensorflow as tf

    del way
    hvd = _hvd()
    layer = tf.keras.layers.BatchNormalization(synchronized=True)
    return float(np.abs(layer(tf.fill((4, 1), 10.0 * hvd.rank()), training=True)).max())


@trap("horovod-synchronized-batch-norm")
def batch_norm() -> Finding:
    """`synchronized=True` is silently not synchronised."""
    output = values(run(normalised, "ranks", keras=2))[1]
    return output < 0.5, f"ranks hold 0 and 10: an output is {output}, synchronised it is 1"


def applied(way: str) -> float:
    """A weight after `apply_gradients` of 1 in rank 0 and 3 in rank 1, at rate 1."""
    import tensorflow as tf

    del way
    hvd = _hvd()
    weight = tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    optimizer.apply_gradients([(tf.constant(1.0 + 2.0 * hvd.rank()), weight)])
    return float(weight.numpy())


@trap("horovod-apply-gradients-does-not-reduce")
def apply_gradients() -> Finding:
    """DistributedOptimizer reduces in `minimize` only: an own training step trains alone."""
    weights = values(run(applied, "ranks", keras=2))
    return weights == [-1.0, -3.0], (
        f"gradients 1 and 3 change the weights of two ranks by {weights}, right is -2"
    )


def masks(way: str) -> Any:
    """The mask that a rank draws, seeded as people seed all ranks."""
    import tensorflow as tf

    del way
    _hvd()
    tf.keras.utils.set_random_seed(1)
    layer = tf.keras.layers.Dropout(0.5)
    return np.asarray(layer(tf.ones((1, 1000)), training=True)).ravel().tolist()


@trap("horovod-same-dropout-masks")
def same_masks() -> Finding:
    """Ranks with one seed drop the same units."""
    first, second = values(run(masks, "ranks", keras=2))
    return first == second, f"two ranks with one seed drop {same_or_other(first, second)} units"


def scaled(way: str) -> None:
    """DistributedOptimizer around a loss scale."""
    import tensorflow as tf

    del way
    scale = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    _hvd().DistributedOptimizer(scale)


@trap("horovod-around-a-loss-scale")
def around_a_loss_scale() -> Finding:
    """DistributedOptimizer(LossScaleOptimizer(…)) fails; the other way round works."""
    answer = run(scaled, "ranks", keras=2)[0]
    return bool(answer.error), str(answer)


def bfloat16(way: str) -> None:
    """An all-reduce of bfloat16."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    del way
    hvd.init()
    hvd.allreduce(tf.ones(4, tf.bfloat16))


@trap("horovod-no-bfloat16")
def no_bfloat16() -> Finding:
    """Horovod's all-reduce takes no bfloat16 tensors."""
    answer = run(bfloat16, "ranks")[0]
    return bool(answer.error), str(answer)


@trap("horovod-hostfile-comment")
def hostfile_comment() -> Finding:
    """A comment or an empty line in a hostfile raises IndexError."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts"
        hosts.write_text("# two of us\n\nlocalhost slots=2\n")
        done = _ended("horovodrun", "-np", "2", "--hostfile", str(hosts), "true")
    last = (done.strip().splitlines() or [""])[-1]
    return "IndexError" in last, last


@trap("horovodrun-shows-the-environment")
def shows_the_environment() -> Finding:
    """horovodrun --gloo puts the environment into the command lines, where all users read it."""
    process = _started(
        "horovodrun", "-np", "1", "--gloo", "sleep", "600", UPSTREAM_SECRET="hunter2"
    )
    try:
        assert process.stdout is not None
        for _ in range(1200):
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if b"UPSTREAM_SECRET=hunter2" in line.read_bytes():
                        return True, "a command line holds UPSTREAM_SECRET=hunter2"
                except OSError:  # it has ended meanwhile
                    continue
            try:
                process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                continue
    finally:
        end(process)
    return False, "no command line holds the variable"


@trap("horovodrun-imports-tensorflow")
def imports_tensorflow() -> Finding:
    """horovodrun imports TensorFlow before it starts a rank, seconds each time."""
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    done = _ended(sys.executable, "-X", "importtime", horovodrun, "-np", "1", "--gloo", "true")
    seen = re.search(r"\| +tensorflow$", done, re.MULTILINE) is not None
    return seen, f"tensorflow is {'' if seen else 'not '}among what horovodrun imports"


@trap("openmpi-refuses-root")
def refuses_root() -> Finding:
    """As root, mpirun wants two variables."""
    done = _ended("mpirun", "-np", "1", "true", as_root=False)
    text = "mpirun has detected an attempt to run as root"
    return text in done, text if text in done else done.strip()[:200] or "it runs"


@trap("openmpi-slots")
def slots() -> Finding:
    """More ranks than cores are refused without --oversubscribe."""
    ranks = str(2 * (os.cpu_count() or 1))
    # scripts/configure_mpi.py allows it in .venv: here Open MPI is as shipped.
    done = _ended("mpirun", "--mca", "rmaps_base_oversubscribe", "0", "-np", ranks, "true")
    text = "There are not enough slots available in the system"
    return text in done, text if text in done else "they run"


def _started(*command: str, as_root: bool = True, **environment: str) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in own_environment().items() if name not in AS_ROOT}
    return subprocess.Popen(
        command,
        env={**kept, **(AS_ROOT if as_root else {}), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _ended(*command: str, as_root: bool = True) -> str:
    process = _started(*command, as_root=as_root)
    try:
        return process.communicate(timeout=200)[0]
    except subprocess.TimeoutExpired:
        return ""
    finally:
        end(process)
