"""A training step that the model's author wrote, made exact under every backend.

It is given what plain Keras would give it: the true examples of a batch, without padding, and
sample weights only if the data have them. Its losses are means over these examples. So the gradient
of each replica counts by its share of the global batch's examples, where an optimizer applies it.
The author's code knows nothing of this, and may have any number of optimizers, losses and metrics.
"""

from typing import Any

from backends.base import Backend
from ringside_core.keras import (
    build_optimizer,
    note_unused,
    optimizers_of,
    python_of,
    tf,
    weights_of,
)
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.weights import labels, packed
from trainers.gather import Together, gathering
from trainers.lookups import Lookups
from trainers.own_trial import Trial, step_name
from trainers.results import Results, by_name, counted_by, number, share_here
from trainers.virtual_replicas import TOGETHER, VirtualReplicas


class OwnStep:
    """Runs the author's step on each replica.

    Attributes:
        cuts: whether some batches hold padding, which the author's step must not see.
        means: metrics of the numbers that the step returns and that no metric of the model holds:
            their means over the batches.
        returned: what the step returns.
        replica_batch: examples of a replica in one step, padding included.
        virtual: makes the step as several replicas would; None: one does.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        spec: RunSpec,
        pipeline: Pipeline,
        trial: Trial,
        lookups: Lookups,
        virtual_replicas: int = 1,
    ) -> None:
        """Let every optimizer combine the replicas' gradients by their shares.

        Args:
            model: compiled, in the backend's scope.
            backend: started.
            spec: of the run.
            pipeline: of the training split.
            trial: of the model's step.
            lookups: of the model.
            virtual_replicas: see `trainers.train_step.instrument`.

        Raises:
            RefusalError: the run asks for what only Keras' own step can do.
        """
        assert trial.trained is not None
        _check(model, spec)
        self._author, self.returned = python_of(model.train_step), trial.trained
        self._sums = trial.sums
        synchronous = backend.capabilities.synchronous
        self._batch = spec.global_batch if synchronous else spec.batch_plan.per_replica_batch
        replicas = spec.topology.num_replicas * virtual_replicas
        self._alone = replicas == 1 or not synchronous
        self.replica_batch = spec.batch_plan.replace(num_replicas=replicas).per_replica_batch
        self._weighted, self._of_arrays = pipeline.weighted, pipeline.of_arrays
        self._together = TOGETHER if virtual_replicas > 1 else together(backend)
        self.cuts = bool(pipeline.shares.last_batch) or spec.pipeline.shard != "batch"
        with backend.scope():
            self.means = [tf.keras.metrics.Mean(name=name) for name in trial.trained.raw]
            variables = weights_of(model)
            note_unused(model, [bool(numbers) for numbers in trial.updated])
            for optimizer, numbers in zip(optimizers_of(model), trial.updated, strict=True):
                build_optimizer(optimizer, [variables[number] for number in numbers])
            self.virtual = None
            if virtual_replicas > 1:
                updated = {number for numbers in trial.updated for number in numbers}
                others = [v for number, v in enumerate(variables) if number not in updated]
                self.virtual = VirtualReplicas(model, others, lookups)
            for optimizer in optimizers_of(model):
                if not self._alone:
                    backend.combine_on_apply(optimizer, share_here)
                    if spec.ablation == "no_reduction":
                        backend.change_reduction(optimizer, lambda reduce, gradients, _: gradients)
        self._results = Results.of(model)

    def __call__(self, x: Any, y: Any, weight: Any, true: Any, scale: Any) -> Any:
        """Run the step on true examples only.

        Args:
            x: of max(1, true) examples, as all of them.
            y: labels; None: there are none.
            weight: of the examples.
            true: number of true examples.
            scale: of this global batch: its size ÷ its true examples.

        Returns:
            The loss, as a mean over the examples of this replica; 0 if it cannot be told.
        """
        share = tf.cast(true, scale.dtype) * scale / self._batch
        weight = weight if self._weighted else None
        self._results.forget()
        whole = gathering(self._together, share, true)
        empty = self.cuts and not self._alone  # a replica may have no example
        examples = self._batch / scale  # of the global batch
        part = None if self._alone else share, true if empty else None
        with counted_by(*part, examples, sums=self._sums and not self._alone), whole:
            told = by_name(self._author(packed(x, y, weight, of_arrays=self._of_arrays)))
        for mean in self.means:
            mean.update_state(number(told[mean.name], share), sample_weight=share)
        named = self.returned.loss
        if named is None or not self.returned.loss_by_step:
            return tf.zeros([], scale.dtype)
        loss = told[named] if named in self.returned.raw else self._results.of_batch(told[named])
        return tf.zeros([], scale.dtype) if loss is None else tf.cast(loss, scale.dtype)


def together(backend: Backend) -> Together | RefusalError | None:
    """How the replicas of a backend gather rows; None: there is one; an error: they cannot."""
    if backend.num_replicas == 1:
        return None
    if not backend.capabilities.gathers:
        return RefusalError(
            f"ringside.gather needs replicas that make a step together, unlike {backend.name}'s.",
            received=f"{backend.name} with {backend.num_replicas} replicas",
            advice="Use mirrored, multi_worker_mirrored or horovod, or one replica.",
        )
    return Together(backend.all_gather, backend.all_sum, backend.replica_number)


def as_given(pipeline: Pipeline, batch: tuple[Any, Any, Any]) -> Any:
    """A batch (x, y, weight) of a split as the author's step gets it."""
    x, y, weight = batch
    weight = weight if pipeline.weighted else None
    return packed(x, labels(y), weight, of_arrays=pipeline.of_arrays)


def one_pass_only(model: Any) -> RefusalError:
    """Of gradient accumulation: only Keras' own step can be run on parts of a batch."""
    return RefusalError(
        "A model with a train_step of its own, losses of its activations, or a mask on its output "
        "must run its batch in one pass.",
        received=step_name(model),
        advice="Use --gradient-accumulation-steps 1.",
    )


def _check(model: Any, spec: RunSpec) -> None:
    """Refuse what only Keras' own step can do."""
    name = step_name(model)
    if spec.options.passes_per_reduction > 1:
        raise RefusalError(
            "Horovod's own accumulation needs Keras' own training step, and losses that are means "
            "over the examples.",
            received=f"backward_passes_per_step={spec.options.passes_per_reduction} with {name}",
            advice="Leave out -o backward_passes_per_step.",
        )
    if spec.gradient_accumulation_steps > 1:
        raise one_pass_only(model)
    if spec.learning_rate_rule.rule != "none" and len(optimizers_of(model)) > 1:
        raise RefusalError(
            "A learning-rate rule needs a model with one optimizer.",
            received=f"{len(optimizers_of(model))} in {type(model).__name__}",
            advice="Use --learning-rate-rule none.",
        )
