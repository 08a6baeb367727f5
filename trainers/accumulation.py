"""A training step in passes: parts of a batch one after the other, and one update from them all."""

from collections.abc import Callable
from typing import Any

from backends.base import statistics
from ringside_core.keras import tf, trainable_of
from ringside_core.specs import RefusalError, RunSpec
from trainers.own_step import one_pass_only
from trainers.whole_batch import takes_true_examples


class Passes:
    """How a replica splits its batch into passes.

    A layer that looks at its whole batch, such as batch normalisation, sees one pass at a time. A
    synchronised layer sees the same pass of all replicas. These are not the examples that a single
    replica with the whole batch would have in that pass.

    Attributes:
        number: forward and backward passes in one update.
        size: examples of one replica in one pass.
    """

    def __init__(self, model: Any, spec: RunSpec, virtual_replicas: int) -> None:
        replicas = spec.topology.num_replicas * virtual_replicas
        plan = spec.batch_plan.replace(num_replicas=replicas)
        self._model, self.size = model, plan.per_pass_batch
        self._virtual_replicas = virtual_replicas
        self._accumulated = spec.gradient_accumulation_steps
        self.number = self._accumulated * virtual_replicas
        if self.number > 1:
            _check(model)

    def update(
        self,
        data: Any,
        scale: Any,
        begin_pass: Callable[[Any, Any], None],
        apply: Callable[[Any, Any], None],
    ) -> None:
        """Run a batch in passes, and apply the mean of their gradients once.

        Each virtual replica starts from the moving statistics of before the update. They end at the
        mean over all virtual replicas, as they do over real ones.

        Args:
            data: (x, y, weight, ids).
            scale: of the weights in the loss.
            begin_pass: told the weight and the ids of each pass.
            apply: makes the update from (loss, tape); the tape knows the gradients already.
        """
        kept = statistics(self._model) if self._virtual_replicas > 1 else []
        before, ends = [tf.identity(variable) for variable in kept], []
        total: list[Any] | None = None
        losses = []
        for number in range(self.number):
            if number % self._accumulated == 0:
                _assign(kept, before)
            x, y, weight, ids = self._part(data, number, after=total)
            begin_pass(weight, ids)
            loss, gradients = self._one_pass(x, y, weight * scale)
            losses.append(loss)
            pairs = zip(total, gradients, strict=True) if total else ((None, g) for g in gradients)
            total = [_plus(a, b, self.number) for a, b in pairs]
            if (number + 1) % self._accumulated == 0:
                ends.append([tf.identity(variable) for variable in kept])
        _assign(kept, [tf.add_n(values) / len(values) for values in zip(*ends, strict=True)])
        apply(tf.add_n(losses) / self.number, _tape_of(total))

    def _one_pass(self, x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        """As Keras' own train_step begins: the loss, and its gradients."""
        model = self._model
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x, y, y_pred, weight)
        model.compute_metrics(x, y, y_pred, weight)
        return loss, tape.gradient(loss, trainable_of(model))

    def _part(self, data: Any, number: int, after: Any) -> Any:
        """The examples of one pass; they can be read only when the previous pass is over.

        Otherwise TensorFlow would run all passes at once, and need memory for all of them.
        """
        begin, end = number * self.size, (number + 1) * self.size
        done = [t for t in tf.nest.flatten(after, expand_composites=True) if t is not None]
        with tf.control_dependencies(done):
            return tf.nest.map_structure(lambda tensor: tensor[begin:end], data)


def _tape_of(gradients: Any) -> Any:
    """A gradient tape that knows the gradients already, whatever it is asked.

    Horovod makes a subclass of a tape's class, and a new object of it. So the class knows them.
    """

    class Known(tf.GradientTape):
        def gradient(self, *asked: Any) -> Any:
            del asked
            return gradients

    return Known()


def _plus(total: Any, gradient: Any, number: int) -> Any:
    """Add one pass's share of the mean gradient; slices of an embedding are concatenated."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = gradient.values / number, gradient.indices
        if total is not None:
            values = tf.concat([total.values, values], 0)
            indices = tf.concat([total.indices, indices], 0)
        return tf.IndexedSlices(values, indices, gradient.dense_shape)
    return gradient / number if total is None else total + gradient / number


def _assign(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _check(model: Any) -> None:
    """Refuse a model or an optimizer that handles a whole step by itself."""
    if takes_true_examples(model):
        raise one_pass_only(model)
    if isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer):
        raise RefusalError(
            "An optimizer that scales the loss must get its batch in one pass.",
            received=type(model.optimizer).__name__,
            advice="Use --gradient-accumulation-steps 1, or an optimizer without loss scale.",
        )
