"""The learning rate of a workload follows the global batch, if the run says so."""

from typing import Any

from ringside_core.keras import KERAS, tf
from ringside_core.specs import RefusalError, RunSpec


def apply_rule(
    optimizer: Any, spec: RunSpec, reference_batch: int | None, steps_per_epoch: int | None
) -> None:
    """Scale the optimizer's learning rate by the spec's rule, with a linear warm-up to it.

    The warm-up is a schedule that Keras knows by itself, so that a saved optimizer needs no
    Ringside to be loaded.

    Args:
        optimizer: changed in place.
        spec: holds the rule and the global batch.
        reference_batch: the batch that the rate was chosen for; None: it is not said.
        steps_per_epoch: updates in an epoch, for the length of the warm-up; None: not known.

    Raises:
        RefusalError: a rule without a reference batch, or on top of a schedule.
    """
    rule = spec.learning_rate_rule
    if rule.rule == "none":
        return
    if reference_batch is None:
        raise RefusalError(
            f"The learning-rate rule {rule.rule} needs the batch that the rate was chosen for.",
            received=f"{spec.workload} without reference_batch",
            advice="Set reference_batch in a Workload, or leave out --learning-rate-rule.",
        )
    # A new optimizer hides a schedule behind its current value; a legacy one shows it.
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    rate = getattr(scaled, "_learning_rate", scaled.learning_rate)
    if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        raise RefusalError(
            "A learning-rate rule needs a constant learning rate.",
            received=type(rate).__name__,
            advice="Use --learning-rate-rule none, or a constant rate.",
        )
    base = float(optimizer.learning_rate.numpy())
    scaled = base * rule.factor(global_batch=spec.global_batch, reference_batch=reference_batch)
    if rule.warmup_epochs == 0:
        optimizer.learning_rate = scaled
        return
    if steps_per_epoch is None:
        raise RefusalError(
            "A warm-up of epochs needs data whose size is known.",
            received="a data set that does not say how many batches it has",
            advice="Leave out --warmup-epochs, or give the size by assert_cardinality.",
        )
    warm_up = tf.keras.optimizers.schedules.PolynomialDecay(
        initial_learning_rate=base,
        decay_steps=rule.warmup_epochs * steps_per_epoch,
        end_learning_rate=scaled,
        power=1.0,
    )
    KERAS.set_schedule(optimizer, warm_up)
