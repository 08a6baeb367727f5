"""Beyond Ringside's backends: one model and its data on two devices, beside the run on one.

Keras 3 on JAX by `keras.distribution` (two devices of a process), Keras 3 on PyTorch by
DistributedDataParallel (two processes), DTensor (two devices of a process). docs/alternatives.md
says in which environments.

python examples/alternatives/two_devices.py jax|torch|dtensor
"""

import argparse
import importlib.util
import itertools
import os
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

WIDTH, BATCH, UPDATES, RATE, SEED = 256, 128, 60, 0.05, 1
SIZES = (WIDTH, 4 * WIDTH, 4 * WIDTH, 1)
# Of the largest weight of its array. Keras 3.15 multiplies float64 in float32 on PyTorch.
MOST = {"jax": 1e-10, "torch": 4e-5, "dtensor": 1e-10}
Trained = tuple[list[Any], float]  # all weights, and examples/s without the first update


def data() -> tuple[Any, Any]:
    """Every batch, one after the other."""
    x = np.random.default_rng(SEED).normal(size=(UPDATES * BATCH, WIDTH))
    return x, np.sin(x.sum(1, keepdims=True))


def model_of(keras: Any) -> Any:
    """Two hidden layers in float64."""
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(SEED)
    hidden = [keras.layers.Dense(size, activation="tanh") for size in SIZES[1:-1]]
    return keras.Sequential([keras.Input(SIZES[:1]), *hidden, keras.layers.Dense(1)])


def on_jax(devices: int) -> Trained:
    """By `fit`; the batch is divided over the devices."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model, ends = model_of(keras), list[float]()
    model.compile(keras.optimizers.SGD(RATE), "mse")
    timed = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    model.fit(*data(), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[timed])
    return model.get_weights(), BATCH * (UPDATES - 1) / (ends[-1] - ends[0])


def on_torch(rank: int, ranks: int, port: int) -> Trained:
    """By a loop as in Keras' guide; DistributedDataParallel averages the gradients of the ranks."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import torch

    model = model_of(keras).to("cpu")
    if ranks > 1:
        meeting = f"tcp://127.0.0.1:{port}"
        torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=ranks)
    trained = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    optimizer, ends = torch.optim.SGD(model.parameters(), lr=RATE), list[float]()
    x, y = (torch.tensor(each).reshape(UPDATES, BATCH, -1) for each in data())
    for rows, right in zip(x[:, rank::ranks], y[:, rank::ranks], strict=True):
        optimizer.zero_grad()
        ((trained(rows) - right) ** 2).mean().backward()
        optimizer.step()
        ends.append(time.perf_counter())
    weights = [each.detach().numpy() for each in model.parameters()]
    if ranks > 1:
        torch.distributed.destroy_process_group()
    return weights, BATCH * (UPDATES - 1) / (ends[-1] - ends[0])


def on_dtensor(devices: int) -> Trained:
    """By a loop; rows of the batch are divided over the mesh, and each device has all weights."""
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    dtensor.initialize_accelerator_system("CPU", num_logical_cpu_devices=devices)
    mesh = dtensor.create_distributed_mesh([("data", devices)])

    def placed(value: Any, *names: str) -> Any:
        on_all = dtensor.copy_to_mesh(value, dtensor.Layout.replicated(mesh, value.ndim))
        return dtensor.relayout(on_all, dtensor.Layout([*names, dtensor.UNSHARDED], mesh))

    drawn, ends = np.random.default_rng(SEED), list[float]()
    pairs = list(itertools.pairwise(SIZES))
    kernels = [
        dtensor.DVariable(placed(drawn.normal(scale=a**-0.5, size=(a, b)), dtensor.UNSHARDED))
        for a, b in pairs
    ]
    biases = [dtensor.DVariable(placed(np.zeros(b))) for _, b in pairs]

    @tf.function
    def update(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
                x = tf.tanh(x @ kernel + bias)
            loss = tf.reduce_mean((x @ kernels[-1] + biases[-1] - y) ** 2)
        weights = [*kernels, *biases]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * gradient)

    for rows in zip(*(each.reshape(UPDATES, BATCH, -1) for each in data()), strict=True):
        update(*(placed(each, "data") for each in rows))
        ends.append(time.perf_counter())
    found = [weight.numpy() for weight in (*kernels, *biases)]
    return found, BATCH * (UPDATES - 1) / (ends[-1] - ends[0])


def in_processes(train: Any, each: Sequence[tuple[int, ...]]) -> Trained:
    """The first result of processes of their own."""
    with ProcessPoolExecutor(len(each), get_context("spawn")) as others:
        started = [others.submit(train, *arguments) for arguments in each]
        found: Trained = started[0].result()
        return found


if __name__ == "__main__":
    options = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    options.add_argument("kind", choices=MOST)
    kind = options.parse_args().kind
    package = "tensorflow" if kind == "dtensor" else kind
    if importlib.util.find_spec(package) is None:
        options.error(f"{kind} needs {package}, which is not here; see docs/alternatives.md")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = []
    for count in (1, 2):
        each = [(rank, count, port) for rank in range(count)]
        found.append(
            in_processes(on_torch, each)
            if kind == "torch"
            else in_processes(on_jax if kind == "jax" else on_dtensor, [(count,)])
        )
    (one, one_s), (two, two_s) = found
    worst = max(abs(a - b).max() / abs(b).max() for a, b in zip(two, one, strict=True))
    print(f"one device: {one_s:.0f} examples/s, two: {two_s:.0f}; largest deviation {worst:.1e}")
    sys.exit(int(not worst < MOST[kind]))
