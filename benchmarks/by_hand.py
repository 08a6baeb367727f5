"""A program of `benchmarks/programs.py` under one backend, written by hand: nothing of Ringside.

    python -m benchmarks.by_hand --backend mirrored --replicas 2 --out result.json
    horovodrun -np 2 python -m benchmarks.by_hand --backend horovod --replicas 2 --out result.json
    TF_CONFIG='{…}' python -m benchmarks.by_hand --backend parameter_server --replicas 2 --out F

Each function below is what the stack's own tutorial has. Of Ringside it has only the turns between
epochs, which nothing times. Without `--cores-per-replica` the stack chooses processors and threads.
"""

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.programs import PROGRAMS, whole
from launch.turns import allowed_until, takes_turns
from launch.watch import WAITING, progress_line

Task = dict[str, Any]  # `task` of a TF_CONFIG


def serial() -> None:
    """Plain Keras."""
    tf = tensorflow()
    fit(tf, program.compiled(tf), whole_batches(tf))


def one_device() -> None:
    """OneDeviceStrategy."""
    tf = tensorflow()
    fit_under(tf, tf.distribute.OneDeviceStrategy("CPU:0"))


def mirrored() -> None:
    """MirroredStrategy on logical processors."""
    tf = tensorflow(replicas=job.replicas)
    fit_under(tf, tf.distribute.MirroredStrategy(devices()))


def central_storage() -> None:
    """CentralStorageStrategy on logical processors."""
    tf = tensorflow(replicas=job.replicas)
    of = tf.distribute.experimental.CentralStorageStrategy
    fit_under(tf, of(compute_devices=devices(), parameter_device="CPU:0"))


def multi_worker_mirrored() -> None:
    """MultiWorkerMirroredStrategy, one process for each task of TF_CONFIG."""
    index = own_task()["index"]
    tf = tensorflow(first_replica=index)
    if takes_turns(folder):  # TensorFlow gives a peer up that was frozen for 10 s
        from tensorflow.python.eager import context

        service = context.context().configure_coordination_service
        patient = partial(service, heartbeat_timeout_in_ms=3_600_000)
        context.context().configure_coordination_service = patient
    # `fit` gives each worker its part of a global batch.
    fit_under(tf, tf.distribute.MultiWorkerMirroredStrategy(), is_chief=index == 0)


def parameter_server() -> None:
    """ParameterServerStrategy, one process for each task of TF_CONFIG (chief, worker, ps).

    A step is one worker's update: each worker makes as many as a synchronous run has.
    """
    task = own_task()
    if task["type"] == "worker":
        tf = tensorflow(first_replica=task["index"])
    else:
        tf = tensorflow(cores_of=job.replicas)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] != "chief":
        threads = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=job.intra, inter_op_parallelism_threads=job.inter
        )
        place = resolver.cluster_spec(), task["type"], task["index"]
        tf.distribute.Server(*place, protocol="grpc", config=threads).join()  # until it is killed

    def batches(context: Any) -> Any:
        batch = context.get_per_replica_batch_size(program.batch // job.replicas)
        part = context.num_input_pipelines, context.input_pipeline_id
        return program.data(tf, batch, lambda rows: rows.shard(*part))

    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = program.compiled(tf)
    creator = tf.keras.utils.experimental.DatasetCreator(batches)
    fit(tf, model, creator, steps=program.steps * job.replicas)
    os._exit(0)  # a coordinator that was frozen takes minutes to end


def horovod() -> None:
    """Horovod, after its tensorflow2_keras_synthetic_benchmark.py.

    The global batch is the same at every size, so the learning rate is not scaled.
    """
    local = os.environ.get("HOROVOD_LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK")
    tf = tensorflow(first_replica=int(local or 0))
    if job.keras == 3:
        horovod_keras_3(tf)
        return
    import horovod.tensorflow.keras as hvd  # after legacy Keras was chosen

    hvd.init()
    model = program.compiled(tf, hvd.DistributedOptimizer)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callbacks = (broadcast, hvd.callbacks.MetricAverageCallback())
    data = own_batches(tf, (hvd.size(), hvd.rank()))
    fit(tf, model, data, callbacks=callbacks, is_chief=hvd.rank() == 0)


def horovod_keras_3(tf: Any) -> None:
    """Horovod's tape in a step, as in its tensorflow2_mnist.py.

    Its optimizer does not reduce the gradients of Keras 3 (docs/upstream.md).
    """
    import horovod.tensorflow as hvd

    hvd.init()

    class Averaged(tf.keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predictions = self(x, training=True)
                loss = self.compute_loss(x, y, predictions)
            variables = [variable.value for variable in self.trainable_variables]
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, predictions)
            return {metric.name: metric.result() for metric in self.metrics}

    model = program.compiled(tf, kind=Averaged)
    hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)
    data = own_batches(tf, (hvd.size(), hvd.rank()))
    fit(tf, model, data, is_chief=hvd.rank() == 0)


# What they share


def flags() -> argparse.Namespace:
    """The command line: what is trained, on how many replicas, with which processors."""
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS)  # a wrong flag gets one line
    parser.add_argument("--backend", choices=[run.__name__ for run in BACKENDS], default="serial")
    parser.add_argument("--program", choices=PROGRAMS, default="digits")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--cores-per-replica", type=int, default=0)
    parser.add_argument("--intra", type=int, default=0)
    parser.add_argument("--inter", type=int, default=0)
    parser.add_argument("--keras", type=int, choices=[2, 3], default=2)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def tensorflow(*, first_replica: int = 0, replicas: int = 1, cores_of: int = 0) -> Any:
    """TensorFlow in a process with so many replicas; each has a logical processor of its own.

    Args:
        first_replica: of this process.
        replicas: in this process.
        cores_of: the number of replicas whose processors it takes; 0: its own.
    """
    each, count = job.cores_per_replica, (cores_of or replicas) * job.cores_per_replica
    if each:
        here = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(
            0, {here[(first_replica * each + i) % len(here)] for i in range(count)}
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if job.keras == 2 else "0"
    import tensorflow as tf

    if job.keras == 2:
        import tf_keras

        sys.modules["keras"] = tf_keras  # Horovod imports `keras`: horovod#4290
    tf.get_logger().setLevel("ERROR")
    if job.intra:
        tf.config.threading.set_intra_op_parallelism_threads(job.intra * replicas)
        tf.config.threading.set_inter_op_parallelism_threads(job.inter * replicas)
    if replicas > 1:
        logical = [tf.config.LogicalDeviceConfiguration()] * replicas
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, logical)
    return tf


def devices() -> list[str]:
    """The logical processors of all replicas."""
    return [f"CPU:{index}" for index in range(job.replicas)]


def own_task() -> Task:
    """This process in TF_CONFIG."""
    task: Task = json.loads(os.environ["TF_CONFIG"])["task"]
    return task


def whole_batches(tf: Any) -> Any:
    """Global batches, which a strategy divides."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return program.data(tf, program.batch, whole).with_options(options)


def own_batches(tf: Any, part: tuple[int, int]) -> Any:
    """Batches of one replica, from its part of the data."""
    return program.data(tf, program.batch // job.replicas, lambda rows: rows.shard(*part))


def fit_under(tf: Any, strategy: Any, *, is_chief: bool = True) -> None:
    """`Model.fit` under a strategy."""
    with strategy.scope():
        model = program.compiled(tf)
    fit(tf, model, whole_batches(tf), is_chief=is_chief)


def fit(
    tf: Any,
    model: Any,
    data: Any,
    *,
    steps: int = 0,
    callbacks: tuple[Any, ...] = (),
    is_chief: bool = True,
) -> None:
    """`Model.fit` with a timer, which is not called in a step; the chief writes what came out."""
    steps = steps or program.steps

    class Timer(tf.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds.append(time.perf_counter() - self.began)

    class Turns(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch + 1 < job.epochs and takes_turns(folder):
                wait_for_turn(folder, (epoch + 1) * steps, job.epochs * steps, speaks=is_chief)

    timer = Timer()
    every = [timer, *callbacks, Turns()]
    history = model.fit(
        data, epochs=job.epochs, steps_per_epoch=steps, callbacks=every, verbose=0
    ).history
    if is_chief:
        found = {
            "epoch_s": timer.seconds,
            "losses": [float(loss) for loss in history["loss"]],
            "steps_per_epoch": steps,
            "updates": int(model.optimizer.iterations.numpy()),
            "cores": sorted(os.sched_getaffinity(0)),
        }
        Path(job.out).write_text(json.dumps(found))


def wait_for_turn(folder: Path, done: int, total: int, *, speaks: bool) -> None:
    """Wait while another run trains, as a run of Ringside does.

    Args:
        folder: of the run.
        done: updates of this run.
        total: of this run, when it is over.
        speaks: whether this process says that it waits.
    """
    if speaks and done >= allowed_until(folder):
        (folder / "progress").mkdir(exist_ok=True)
        (folder / "progress" / "chief").write_bytes(progress_line(WAITING, done, total))
    while done >= allowed_until(folder):
        time.sleep(0.0005)


BACKENDS = (
    serial, one_device, mirrored, central_storage,
    multi_worker_mirrored, parameter_server, horovod,
)  # fmt: skip

if __name__ == "__main__":
    job = flags()
    folder, program = Path(job.out).parent, PROGRAMS[job.program]
    {run.__name__: run for run in BACKENDS}[job.backend]()
