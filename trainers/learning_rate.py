"""The learning-rate rule, applied by the trainer: the same rate under every backend."""

from typing import Any

from ringside_core.keras import tf
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.workload import Workload


def apply_rule(optimizer: Any, spec: RunSpec, workload: Workload, steps_per_epoch: int) -> None:
    """Scale the optimizer's learning rate by the spec's rule, with a linear warm-up to it.

    The warm-up is a schedule that Keras knows by itself, so that a saved optimizer needs no
    Ringside to be loaded.

    Args:
        optimizer: changed in place.
        spec: holds the rule and the global batch.
        workload: holds the reference batch.
        steps_per_epoch: updates in an epoch, for the length of the warm-up.

    Raises:
        RefusalError: a rule without a reference batch, or on top of a schedule.
    """
    rule = spec.learning_rate_rule
    if rule.rule == "none":
        return
    if workload.reference_batch is None:
        raise RefusalError(
            f"The learning-rate rule {rule.rule} needs the batch that the rate was chosen for.",
            received=f"workload {workload.name} without reference_batch",
            advice="Set reference_batch in the workload, or use --learning-rate-rule none.",
        )
    # A new optimizer hides a schedule behind its current value; a legacy one shows it.
    rate = getattr(optimizer, "_learning_rate", optimizer.learning_rate)
    if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        raise RefusalError(
            "A learning-rate rule needs a constant learning rate.",
            received=type(rate).__name__,
            advice="Use --learning-rate-rule none, or a constant rate.",
        )
    base = float(optimizer.learning_rate.numpy())
    scaled = base * rule.factor(
        global_batch=spec.global_batch, reference_batch=workload.reference_batch
    )
    if rule.warmup_epochs == 0:
        optimizer.learning_rate = scaled
        return
    optimizer.learning_rate = tf.keras.optimizers.schedules.PolynomialDecay(
        initial_learning_rate=base,
        decay_steps=rule.warmup_epochs * steps_per_epoch,
        end_learning_rate=scaled,
        power=1.0,
    )
