"""A training step in passes: parts of a batch one after the other, and one update from them all."""

from collections.abc import Callable
from typing import Any

from backends.base import statistics
from ringside_core.keras import tf, trainable_of
from ringside_core.specs import RefusalError, RunSpec
from trainers.lookups import Lookups
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

    def __init__(self, model: Any, spec: RunSpec, virtual_replicas: int, lookups: Lookups) -> None:
        """Refuse a model that cannot run a batch in passes.

        Args:
            model: compiled.
            spec: of the run.
            virtual_replicas: see `trainers.train_step.instrument`.
            lookups: of the model; they add what passes give.
        """
        replicas = spec.topology.num_replicas * virtual_replicas
        plan = spec.batch_plan.replace(num_replicas=replicas)
        self._model, self.size, self._lookups = model, plan.per_pass_batch, lookups
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
        losses, variables = [], trainable_of(self._model)
        for number in range(self.number):
            if number % self._accumulated == 0:
                _assign(kept, before)
            x, y, weight, ids = self._part(data, number, after=total)
            begin_pass(weight, ids)
            loss, gradients = self.one_pass(x, y, weight * scale)
            losses.append(loss)
            shares = [_over(gradient, self.number) for gradient in gradients]
            total = shares if total is None else self._plus(total, shares, variables)
            if (number + 1) % self._accumulated == 0:
                ends.append([tf.identity(variable) for variable in kept])
        _assign(kept, [tf.add_n(values) / len(values) for values in zip(*ends, strict=True)])
        apply(tf.add_n(losses) / self.number, _tape_of(total))

    def _plus(self, total: list[Any], shares: list[Any], variables: list[Any]) -> list[Any]:
        pairs = zip(total, shares, strict=True)
        added = self._lookups.added
        return [added(pair, one) for pair, one in zip(pairs, variables, strict=True)]

    def one_pass(self, x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
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


def _over(gradient: Any, number: int) -> Any:
    """One pass's share of the mean gradient."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / number, gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient / number


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
