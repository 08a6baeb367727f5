"""tf.distribute, with either Keras or without."""

import os
from pathlib import Path
from typing import Any

from scripts.upstream.start import Finding, free_ports, run, say, strategy, trap, values


def unreduced(way: str) -> float:
    """A weight after an update whose gradients, 1 and 3, nobody has reduced."""
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        weight = tf.Variable(0.0)
        optimizer = tf.keras.optimizers.SGD(1.0)
        optimizer.build([weight])

    def step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = 1.0 + 2.0 * tf.cast(replica, tf.float32)
        optimizer.apply_gradients([(gradient, weight)], skip_gradients_aggregation=True)

    tf.function(lambda: place.run(step))()
    return float(weight.numpy())


@trap("central-storage-takes-the-first-gradient")
def takes_the_first() -> Finding:
    """Where nothing was reduced, the first replica's gradient is applied, without a word."""
    (weight,) = values(run(unreduced, "central", keras=2))
    return weight == -1.0, f"gradients 1 and 3 at rate 1 change the weight by {weight}"


def readers(way: str) -> list[Any]:
    """(pipeline, of how many) as the dataset functions of two workers are told."""
    import tensorflow as tf

    place = strategy(way)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(place)
    told = []

    def dataset(context: Any) -> Any:
        told.append([context.input_pipeline_id, context.num_input_pipelines])
        return tf.data.Dataset.range(1)

    iterator = iter(
        coordinator.create_per_worker_dataset(
            lambda: place.distribute_datasets_from_function(dataset)
        )
    )
    coordinator.schedule(tf.function(lambda one: next(one)), args=(iterator,))
    coordinator.join()
    return told


@trap("parameter-server-one-reader")
def one_reader() -> Finding:
    """Each worker's dataset function is told that it is pipeline 0 of 1."""
    (told,) = values(run(readers, "servers", keras=2))
    return all(one == [0, 1] for one in told), f"two workers' dataset function gets {told}"


def worker_draws(way: str) -> list[float]:
    """Forty numbers that two workers draw by one function."""
    import tensorflow as tf

    place = strategy(way)
    tf.random.set_seed(1)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(place)
    draw = tf.function(lambda: tf.random.uniform(()))
    drawn = [coordinator.schedule(draw) for _ in range(40)]
    coordinator.join()
    return [float(one.fetch()) for one in drawn]


@trap("parameter-server-same-draws")
def same_draws() -> Finding:
    """Workers run one function with one seed: each draws the numbers of the others."""
    (drawn,) = values(run(worker_draws, "servers", keras=2))
    twice = len(drawn) - len(set(drawn))
    return twice > 0, f"of {len(drawn)} numbers of two workers {twice} were drawn twice"


def listening(way: str) -> list[str]:
    """Addresses of listening sockets of a server that was told 127.0.0.1."""
    import tensorflow as tf

    del way
    (port,) = free_ports(1)
    server = tf.distribute.Server({"worker": [f"127.0.0.1:{port}"]}, job_name="worker")
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, number = line.split()[1].split(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                found.append(address)
    del server
    return found


@trap("server-listens-on-all-interfaces")
def listens_everywhere() -> Finding:
    """TensorFlow's server listens on all interfaces, whatever address it is given."""
    (found,) = values(run(listening))
    everywhere = any(not one.strip("0") for one in found)
    return everywhere, f"told 127.0.0.1, it listens at {found} (hexadecimal)"


def meeting(way: str) -> str:
    """Two workers meet."""
    import tensorflow as tf

    del tf  # the time that its import takes is no hang
    say(0)
    strategy(way)
    return "met"


@trap("http-proxy-hangs-local-runs")
def proxy() -> Finding:
    """With `http_proxy` set, workers on 127.0.0.1 do not meet; with `no_grpc_proxy` they do."""
    (nowhere,) = free_ports(1)
    told = {"http_proxy": f"http://127.0.0.1:{nowhere}", "no_proxy": "", "no_grpc_proxy": ""}
    first, _ = run(meeting, "workers", environment=told)
    values(run(meeting, "workers", environment={**told, "no_grpc_proxy": "127.0.0.1"}))
    return first.value is None, f"with http_proxy: {first}; with no_grpc_proxy too they meet"


def tpu(way: str) -> None:
    """A resolver without a TPU."""
    import tensorflow as tf

    del way
    os.environ.pop("TPU_NAME", None)
    tf.distribute.cluster_resolver.TPUClusterResolver("")


@trap("tpu-name")
def tpu_name() -> Finding:
    """TPUClusterResolver("") without a TPU raises a ValueError."""
    (answer,) = run(tpu)
    return "Please provide a TPU Name" in answer.error, str(answer)
