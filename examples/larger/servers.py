"""An embedding that does not fit one parameter server's memory, but two, by a partitioner.

Once a server has started, it may take only so much more memory; the kernel refuses the rest.

python examples/larger/servers.py [--servers 1|2] [--shard-bytes 1048576]
"""

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from beside_serial import Clock, alone, compared, peak

ROWS, SIZE, SLOTS, BATCH, UPDATES, RATE = 2**19, 64, 4, 64, 10, 1.0
TABLE, ROW = ROWS * SIZE * 8, SIZE * 8
MORE = TABLE * 7 // 8


def start(shard_info: Any = None) -> Any:
    """The table's first values, or a shard of them."""
    first, rows = (shard_info.offset[0], shard_info.shape[0]) if shard_info else (0, ROWS)
    # Powers of two, so every shard has exactly the numbers that the whole table has there.
    values = tf.range(first / ROWS, (first + rows) / ROWS, 1 / ROWS / SIZE, dtype=tf.float64)
    return tf.reshape(values, [rows, SIZE])


def train(coordinator: Any = None) -> tuple[list[Any], str]:
    """The weights after all updates, in slices, and memory and speed; serially by default."""
    drawn, clock = np.random.default_rng(0), Clock(BATCH)
    table = tf.Variable(start, shape=(ROWS, SIZE), dtype=tf.float64)
    dense = tf.Variable(drawn.normal(scale=0.1, size=(SLOTS * SIZE, 1)))
    shards = list(getattr(table, "variables", [table]))

    @tf.function(autograph=False)
    def update(ids: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(shards, ids)
            loss = tf.reduce_mean((tf.tanh(tf.reshape(rows, [BATCH, -1])) @ dense - y) ** 2)
        *of_shards, of_dense = tape.gradient(loss, [*shards, dense])
        for shard, found in zip(shards, of_shards, strict=True):
            shard.scatter_sub(tf.IndexedSlices(RATE * found.values, found.indices))
        dense.assign_sub(RATE * of_dense)

    for ids in drawn.integers(ROWS, size=(UPDATES, BATCH, SLOTS)):
        given = ids, np.cos(ids).sum(axis=1, keepdims=True)
        if coordinator:
            coordinator.schedule(update, given)
            coordinator.join()
        else:
            update(*given)
        clock.tick()
    # Row by row: a server that reads its shard whole needs it twice.
    parts = [tf.nn.embedding_lookup(shards, rows).numpy() for rows in tf.split(tf.range(ROWS), 32)]
    return [*parts, dense.numpy()], str(clock)


def limit(server: int) -> None:
    """Allow what it has, and a part of the table."""
    has = int(Path(f"/proc/{server}/status").read_text().split("VmData:")[1].split()[0]) * 1024
    resource.prlimit(server, resource.RLIMIT_DATA, (has + MORE, has + MORE))


def on_servers(count: int, shard_bytes: int, processes: list[Any]) -> tuple[list[Any], str]:
    """The same by a worker, with the table on so many servers."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count + 1)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    cluster = {"worker": addresses[:1], "ps": addresses[1:]}
    for job, index in [("worker", 0), *(("ps", n) for n in range(count))]:
        task = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        }
        processes.append(subprocess.Popen([sys.executable, __file__], env=os.environ | task))
    spec = tf.train.ClusterSpec(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    cut = tf.distribute.experimental.partitioners.MinSizePartitioner(shard_bytes, count)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=cut)
    for server in processes[1:]:
        limit(server.pid)
    with strategy.scope():
        return train(tf.distribute.coordinator.ClusterCoordinator(strategy))


def main(options: argparse.ArgumentParser, servers: int, shard_bytes: int) -> int:
    """The exit code."""
    if not ROW <= shard_bytes <= TABLE // servers:
        options.error(
            f"a shard holds at least one row of {ROW} bytes and at most its server's part; "
            f"{shard_bytes} bytes do not; fits: {ROW} to {TABLE // servers}"
        )
    serial, serially = alone(train)
    processes: list[Any] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end with it
    try:
        found, here = on_servers(servers, shard_bytes, processes)
        print(f"serial: {serially}\ncoordinator: {here}")
        names = ["worker", *(f"server {n}" for n in range(servers))]
        for name, process in zip(names, processes, strict=True):
            print(f"{name}: {peak(process.pid)}")
        return compared(found, serial, UPDATES)
    except (tf.errors.ResourceExhaustedError, tf.errors.UnavailableError) as error:
        part = TABLE // servers >> 20
        print(
            f"{part} MiB do not fit a server that may take {MORE >> 20} MiB: {error.message[:60]}"
        )
        return 1
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        mine = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        place = mine.cluster_spec(), mine.task_type, mine.task_id
        tf.distribute.Server(*place, protocol="grpc").join()
    asked = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    asked.add_argument("--servers", type=int, choices=(1, 2), default=2)
    asked.add_argument("--shard-bytes", type=int, default=2**20)
    code = main(asked, **vars(asked.parse_args()))
    sys.stdout.flush()
    os._exit(code)  # the coordinator would wait for servers that are gone
