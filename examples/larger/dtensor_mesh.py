"""DTensor: a dense and a transformer block on a mesh of data × model.

Rows of the batch are divided over `data`, heads and hidden units over `model`: logical devices of
one process, or of two (DTENSOR_JOBS). Another process trains the same model serially.

python examples/larger/dtensor_mesh.py [--mesh 2x2] [--processes 2]
"""

import argparse
import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from beside_serial import Clock, alone, compared
from tensorflow.experimental import dtensor

BATCH, LENGTH, WIDTH, HEADS, UPDATES, RATE = 16, 12, 64, 4, 10, 0.05
HEAD = (WIDTH, HEADS, WIDTH // HEADS)
SHAPES = (HEAD, HEAD, HEAD, (*HEAD[1:], WIDTH), *[(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * 2)
DIVIDED = (1, 1, 1, 0, 1, 0, 1, 0)  # the axis of each weight that is divided over `model`


def loss(w: list[tf.Variable], x: Any, y: Any) -> Any:
    """A transformer block (attention, then two layers), then a dense block; its mean error."""
    query, key, value = (tf.einsum("blw,whd->blhd", x, weight) for weight in w[:3])
    seen = tf.nn.softmax(tf.einsum("blhd,bmhd->bhlm", query, key) / HEAD[2] ** 0.5)
    x += tf.einsum("blhd,hdw->blw", tf.einsum("bhlm,bmhd->blhd", seen, value), w[3])
    for first, second in (w[4:6], w[6:]):
        x += tf.einsum("blh,hw->blw", tf.tanh(tf.einsum("blw,wh->blh", x, first)), second)
    return tf.reduce_sum((x - y) ** 2) / (BATCH * LENGTH)


def train(mesh: dtensor.Mesh | None) -> tuple[list[Any], str]:
    """All weights, and memory and speed; no mesh: serially."""
    drawn, clock = np.random.default_rng(0), Clock(BATCH)

    def placed(value: Any, axis: int | None, name: str = "model") -> Any:
        names = [name if n == axis else dtensor.UNSHARDED for n in range(value.ndim)]
        on_all = dtensor.copy_to_mesh(value, dtensor.Layout.replicated(mesh, value.ndim))
        return dtensor.relayout(on_all, dtensor.Layout(names, mesh))

    starts = [drawn.normal(scale=WIDTH**-0.5 / 2, size=shape) for shape in SHAPES]
    if mesh:
        axes = zip(starts, DIVIDED, strict=True)
        weights = [dtensor.DVariable(placed(start, axis)) for start, axis in axes]
    else:
        weights = [tf.Variable(start) for start in starts]

    @tf.function(autograph=False)
    def update(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            error = loss(weights, x, y)
        for weight, gradient in zip(weights, tape.gradient(error, weights), strict=True):
            weight.assign_sub(RATE * gradient)

    for x in drawn.normal(size=(UPDATES, BATCH, LENGTH, WIDTH)):
        pair = x, np.sin(x)
        update(*(placed(value, 0, "data") for value in pair) if mesh else pair)
        clock.tick()
    if mesh:
        weights = [placed(weight.read_value(), None) for weight in weights]
    return [weight.numpy() for weight in weights], str(clock)


def start_two() -> int:
    """This program twice, as two clients of DTensor; the exit code."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    jobs = ",".join(f"localhost:{one.getsockname()[1]}" for one in sockets)
    for one in sockets:
        one.close()
    named = {"DTENSOR_JOBS": jobs, "DTENSOR_NUM_CLIENTS": "2"}
    each = [os.environ | named | {"DTENSOR_CLIENT_ID": number} for number in "01"]
    clients = [subprocess.Popen([sys.executable, *sys.argv], env=env) for env in each]
    return max(client.wait() for client in clients)


if __name__ == "__main__":
    options = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    options.add_argument("--mesh", default="2x2")
    options.add_argument("--processes", type=int, choices=(1, 2), default=1)
    mesh, processes = vars(options.parse_args()).values()
    sizes = [(data, model) for data in (1, 2, 4, 8, 16) for model in (1, 2, 4)]
    fits = [f"{data}x{model}" for data, model in sizes if data * model % processes == 0]
    if mesh not in fits:
        rule = (
            f"data divides the batch of {BATCH}, model the {HEADS} heads, processes their product"
        )
        options.error(f"{rule}; {mesh} does not; fits: {', '.join(fits)}")
    if processes == 2 and "DTENSOR_JOBS" not in os.environ:
        options.exit(start_two())
    rank, (data, model) = os.environ.get("DTENSOR_CLIENT_ID", "0"), map(int, mesh.split("x"))
    serial, serially = alone(train, None) if rank == "0" else ([], "")
    dtensor.initialize_accelerator_system("CPU", num_logical_cpu_devices=data * model // processes)
    found, here = train(dtensor.create_distributed_mesh([("data", data), ("model", model)]))
    print(f"process {rank}: {here}")
    if rank == "0":
        print(f"serial: {serially}")
        options.exit(compared(found, serial, UPDATES))
