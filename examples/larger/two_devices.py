"""Layers placed on two devices by hand; the gradients of micro-batches are added.

While one half of the layers works on a micro-batch, the other may have the next.

python examples/larger/two_devices.py [--micro-batches 4]
"""

import argparse
from typing import Any

import numpy as np
import tensorflow as tf
from beside_serial import Clock, alone, compared

WIDTH, BATCH, UPDATES, RATE, DEVICES = 512, 96, 20, 0.05, ("/CPU:0", "/CPU:1")


def half(weights: list[tf.Variable], x: Any) -> Any:
    """Two layers."""
    return tf.tanh(tf.tanh(x @ weights[0]) @ weights[1])


def whole(weights: list[tf.Variable], x: Any, y: Any, _: int) -> list[Any]:
    """Gradients of the mean loss of the batch."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((half(weights[2:], half(weights[:2], x)) - y) ** 2) / BATCH
    return tape.gradient(loss, weights)


def in_parts(weights: list[tf.Variable], x: Any, y: Any, parts: int) -> list[Any]:
    """The same: those of its micro-batches, added."""
    found = []
    for some_x, some_y in zip(tf.split(x, parts), tf.split(y, parts), strict=True):
        # One tape for each half: a single one would work back through both on one device.
        with tf.device(DEVICES[0]), tf.GradientTape() as lower:
            middle = half(weights[:2], some_x)
        with tf.device(DEVICES[1]), tf.GradientTape() as upper:
            upper.watch(middle)
            loss = tf.reduce_sum((half(weights[2:], middle) - some_y) ** 2) / BATCH  # to be added
            back, *second = upper.gradient(loss, [middle, *weights[2:]])
        with tf.device(DEVICES[0]):
            found.append([*lower.gradient(middle, weights[:2], output_gradients=back), *second])
    return [tf.add_n(gradients) for gradients in zip(*found, strict=True)]


def train(parts: int) -> tuple[list[Any], str]:
    """All weights, and memory and speed; 0 parts: serially, on one device."""
    drawn, weights, clock = np.random.default_rng(0), [], Clock(BATCH)
    for number in range(4):
        with tf.device(DEVICES[number // 2 if parts else 0]):
            weights.append(tf.Variable(drawn.normal(scale=WIDTH**-0.5, size=(WIDTH, WIDTH))))
    gradients = tf.function(in_parts if parts else whole, autograph=False)
    for x in drawn.normal(size=(UPDATES, BATCH, WIDTH)):
        for weight, gradient in zip(weights, gradients(weights, x, np.sin(x), parts), strict=True):
            weight.assign_sub(RATE * gradient)
        clock.tick()
    return [weight.numpy() for weight in weights], str(clock)


if __name__ == "__main__":
    options = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    options.add_argument("--micro-batches", type=int, default=4)
    parts, fits = options.parse_args().micro_batches, [n for n in range(1, 97) if BATCH % n == 0]
    if parts not in fits:
        options.error(f"micro-batches divide the batch of {BATCH}; {parts} does not; fits: {fits}")
    serial, serially = alone(train, 0)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found, here = train(parts)
    print(f"serial: {serially}\ntwo devices: {here}")
    options.exit(compared(found, serial, UPDATES))
