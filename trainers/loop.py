"""Trains a workload on a backend with a loop that is written out.

It computes what `trainers.fit` computes. Clock, ledger, record, proof and checkpoints are behind
the driver; `trainers.train_step` scales the weights of the examples before the step gets them.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from ringside_core.keras import (
    apply,
    count_step,
    functions_in_python,
    scaled_loss,
    tf,
    trainable_of,
)
from trainers.driver import Driver


def loop(driver: Driver) -> None:
    """Train for the epochs of a prepared training (`trainers.prepare`)."""
    training = driver.training
    spec, model, backend = training.spec, training.model, training.backend
    driver.start()
    with backend.scope():
        batches = backend.distribute(training.batches)
        make = backend.steps_over(_step(model), batches, most=spec.steps_per_execution)
        model.stop_training = False
        done, before = 0, training.updates_before  # of the first epoch, by the run that began it
        for epoch in range(training.first_epoch, spec.epochs):
            model.reset_metrics()
            driver.begin_epoch(epoch)
            while left := training.steps_per_epoch - before:
                steps = min(left, spec.steps_per_execution)
                # Virtual replicas run in threads of their own, which a graph would not reach.
                with functions_in_python() if model.run_eagerly else nullcontext():
                    make(steps)
                before, done = before + steps, done + steps
                driver.step(done)
            before = 0
            driver.end_epoch()
            if model.stop_training:  # a callback has said so
                break
        if isinstance(model.optimizer, tf.keras.optimizers.Optimizer):
            model.optimizer.finalize_variable_values(model.trainable_variables)  # moving averages
    if training.updates:
        driver.measure(partial)
    driver.end()


def written_out(model: Any, wrap_tape: Callable[[Any, Any], Any], data: Any) -> None:
    """One step of a plain Keras model, in the place of its `train_step`.

    Args:
        model: compiled, with an optimizer from `Backend.wrap_optimizer`.
        wrap_tape: `Backend.wrap_tape`.
        data: (x, y, weight) of one replica.
    """
    x, y, weight = data
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x, y, y_pred, weight)
        scaled = scaled_loss(model.optimizer, loss)
    apply_gradients(model, wrap_tape, scaled, tape)
    model.compute_metrics(x, y, y_pred, weight)


def apply_gradients(model: Any, wrap_tape: Callable[[Any, Any], Any], loss: Any, tape: Any) -> None:
    """One update: Horovod's tape combines the gradients of all replicas, or a strategy does.

    Args:
        model: see `written_out`.
        wrap_tape: see there.
        loss: times the loss scale, if there is one.
        tape: that has recorded the loss.
    """
    optimizer, variables = model.optimizer, trainable_of(model)
    gradients = wrap_tape(tape, optimizer).gradient(loss, variables)
    apply(optimizer, gradients, variables)


def _step(model: Any) -> Callable[[Any], None]:
    """What a replica does with a batch."""

    def step(batch: Any) -> None:
        model.train_step(batch)
        count_step(model)

    count_step(model, first=True)
    return tf.function(step, jit_compile=True, reduce_retracing=True) if model.jit_compile else step
