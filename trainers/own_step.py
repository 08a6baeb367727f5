"""A training step that the model's author wrote, made exact under every backend.

It is given what plain Keras would give it: the true examples of a batch, without padding, and
sample weights only if the data have them. Its losses are means over these examples. So the gradient
of each replica counts by its share of the global batch's examples, where an optimizer applies it.
The author's code knows nothing of this, and may have any number of optimizers, losses and metrics.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from backends.base import Backend
from ringside_core.keras import build_optimizer, losses_utils, optimizers_of, tf, weights_of
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.weights import labels

_here = threading.local()  # a strategy traces each replica in a thread of its own


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step."""
    return type(model).train_step is not tf.keras.Model.train_step


def has_own_test_step(model: Any) -> bool:
    """Whether the model's author wrote its step of an evaluation."""
    return type(model).test_step is not tf.keras.Model.test_step


@dataclass(frozen=True)
class Returned:
    """What one of the author's steps returns.

    Attributes:
        names: of the numbers, in its order.
        raw: those of them that no metric of the model holds.
    """

    names: tuple[str, ...]
    raw: tuple[str, ...]

    @property
    def loss(self) -> str:
        """Which of the numbers is told as the loss."""
        return "loss" if "loss" in self.names else self.names[0]


@dataclass(frozen=True)
class Trial:
    """What one run of the author's steps showed, on a model that is thrown away.

    Attributes:
        trained: what its train_step returns; None: it is Keras' own.
        tested: what its test_step returns; None: it is Keras' own.
        updated: for each optimizer of `optimizers_of` the numbers, in `weights_of(model)`, of the
            variables that it updated.
    """

    trained: Returned | None
    tested: Returned | None
    updated: tuple[tuple[int, ...], ...]


def build_compiled(model: Any, batch: tuple[Any, Any, Any]) -> None:
    """Make the compiled losses and metrics now: the step that makes them could not be watched.

    Args:
        model: compiled.
        batch: (x, y, weight).
    """
    losses, metrics = model.compiled_loss, model.compiled_metrics
    if losses is None or losses.built:
        return
    with suppress(NotImplementedError):  # a model may have a step, and no call
        made = model(batch[0], training=False)
        losses.build(made)
        if not metrics.built:
            metrics.build(made, metrics._conform_to_outputs(made, labels(batch[1])))


def try_out(model: Any, batch: tuple[Any, Any, Any], *, weighted: bool) -> Trial:
    """Run the author's steps once, in Python.

    Args:
        model: built and compiled outside of any strategy; it is trained by this.
        batch: (x, y, weight).
        weighted: whether the weights are the user's.

    Raises:
        RefusalError: a step returns no numbers by name.
    """
    x, y, weight = batch
    data = packed(x, labels(y), weight if weighted else None)
    build_compiled(model, batch)
    results = Results(model)
    tested = _returned(model, model.test_step, data, results) if has_own_test_step(model) else None
    optimizers, numbers = (
        optimizers_of(model),
        {v.ref(): i for i, v in enumerate(weights_of(model))},
    )
    updated: list[list[int]] = [[] for _ in optimizers]
    trained = None
    if has_own_step(model):
        for optimizer, mine in zip(optimizers, updated, strict=True):
            _watch_updates(optimizer, partial(_note_number, numbers, mine))
        trained = _returned(model, model.train_step, data, results)
    return Trial(trained, tested, tuple(tuple(dict.fromkeys(mine)) for mine in updated))


def _note_number(numbers: dict[Any, int], mine: list[int], variable: Any) -> None:
    mine.append(numbers[variable.ref()])


def _returned(model: Any, step: Callable[[Any], Any], data: Any, results: "Results") -> Returned:
    with losses_of_one_replica():
        told = step(data)
    if not isinstance(told, dict) or not told:
        raise RefusalError(
            "A train_step or test_step must return its losses and metrics by name.",
            received=f"a {type(told).__name__} from {type(model).__name__}",
            advice='Return a dict, such as {"loss": loss}.',
        )
    raw = tuple(name for name, value in told.items() if results.metric_of(value) is None)
    return Returned(tuple(told), raw)


class OwnStep:
    """Runs the author's step on each replica.

    Attributes:
        cuts: whether some batches hold padding, which the author's step must not see.
        means: metrics of the numbers that the step returns and that no metric of the model holds:
            their means over the batches.
    """

    def __init__(
        self, model: Any, backend: Backend, spec: RunSpec, pipeline: Pipeline, trial: Trial
    ) -> None:
        """Let every optimizer combine the replicas' gradients by their shares.

        Args:
            model: compiled, in the backend's scope.
            backend: started.
            spec: of the run.
            pipeline: of the training split.
            trial: of the model's step.

        Raises:
            RefusalError: the run asks for what only Keras' own step can do.
        """
        _check(model, spec)
        assert trial.trained is not None
        self._model, self._author, self._returned = model, model.train_step, trial.trained
        self._metrics = [metric for metric in model.metrics if metric.variables]
        synchronous = backend.capabilities.synchronous
        self._batch = spec.global_batch if synchronous else spec.batch_plan.per_replica_batch
        self._alone = spec.topology.num_replicas == 1 or not synchronous
        self._weighted = pipeline.weighted
        whole = pipeline.num_examples % spec.global_batch == 0 and spec.pipeline.shard == "batch"
        self.cuts = not whole
        with backend.scope():
            self.means = [tf.keras.metrics.Mean(name=name) for name in trial.trained.raw]
            for optimizer, numbers in zip(optimizers_of(model), trial.updated, strict=True):
                variables = weights_of(model)
                build_optimizer(optimizer, [variables[number] for number in numbers])
                if not self._alone:
                    backend.combine_on_apply(optimizer, lambda: _here.share)
                    if spec.ablation == "no_reduction":
                        backend.change_reduction(optimizer, lambda reduce, gradients, _: gradients)
        self._results = Results(model)

    def __call__(self, x: Any, y: Any, weight: Any, true: Any, scale: Any) -> Any:
        """Run the step on true examples only.

        Args:
            x: of max(1, true) examples, as all of them.
            y: labels; None: there are none.
            weight: of the examples.
            true: number of true examples.
            scale: of this global batch: its size ÷ its true examples.

        Returns:
            The loss, as a mean over the examples of this replica.
        """
        share = tf.cast(true, scale.dtype) * scale / self._batch
        data = packed(x, y, weight if self._weighted else None)
        with keeping_states([] if self._alone else self._metrics, true), counted_by(share):
            told = self._author(data)
        for mean in self.means:
            mean.update_state(told[mean.name], sample_weight=share)
        return self._results.of_batch(told[self._returned.loss])


@contextmanager
def keeping_states(metrics: Sequence[Any], true: Any) -> Iterator[None]:
    """Leave metrics as they are if this replica has no true example: it is given one of another.

    Args:
        metrics: with variables.
        true: number of true examples.
    """
    kept = [variable for metric in metrics for variable in metric.variables]
    before = [tf.identity(variable) for variable in kept]
    yield
    for variable, old in zip(kept, before, strict=True):
        variable.assign(tf.where(true > 0, variable, old))


@contextmanager
def counted_by(share: Any) -> Iterator[None]:
    """Within this block of a thread, an author's step runs on this replica's part of a batch.

    Args:
        share: how much this part counts, in gradients and in means of single numbers.
    """
    _here.share = share
    with losses_of_one_replica():
        yield


def packed(x: Any, y: Any, weight: Any) -> Any:
    """A batch as Keras gives it to `train_step`: without what there is not."""
    if weight is not None:
        return x, y, weight
    if y is not None:
        return x, y
    return (x,) if tf.nest.is_nested(x) else x


class Results:
    """Tells from which metric of a model a number came, and what that was told last.

    A mean that is told a single number for a batch counts it by the replica's share (`counted_by`).
    """

    def __init__(self, model: Any) -> None:
        self._seen = threading.local()  # a strategy traces each replica in a thread of its own
        for metric in model.metrics:
            metric.result = partial(self._result, metric, metric.result)
            if type(metric) is tf.keras.metrics.Mean:
                metric.update_state = partial(self._update, metric, metric.update_state)

    def metric_of(self, value: Any) -> Any:
        """The metric whose result this very object is, or None."""
        return self._noted("results").get(id(value), (None,))[0]

    def of_batch(self, value: Any) -> Any:
        """What the metric of this result was told in this step; the value itself if of none."""
        return self._noted("told").get(id(self.metric_of(value)), value)

    def _noted(self, what: str) -> dict[int, Any]:
        found: dict[int, Any] = vars(self._seen).setdefault(what, {})
        return found

    def _result(self, metric: Any, result: Callable[[], Any]) -> Any:
        value = result()
        # The value too, so that its id is not used again.
        self._noted("results")[id(value)] = (metric, value)
        return value

    def _update(self, metric: Any, update: Callable[..., Any], values: Any, **weight: Any) -> Any:
        number = tf.convert_to_tensor(values)
        if getattr(_here, "alone", False) and number.shape.rank == 0:
            self._noted("told")[id(metric)] = number
            share = getattr(_here, "share", None)
            if weight.get("sample_weight") is None and share is not None:
                weight = {"sample_weight": share}
        return update(values, **weight)


def _watch_updates(optimizer: Any, seen: Callable[[Any], None]) -> None:
    apply = optimizer.apply_gradients

    def watched(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        for _, variable in pairs:
            seen(variable)
        return apply(pairs, *args, **kwargs)

    optimizer.apply_gradients = watched


@contextmanager
def losses_of_one_replica() -> Iterator[None]:
    """Within this block of a thread, Keras' losses are means over this replica's own examples.

    Under a strategy Keras would divide them by the number of replicas, or refuse them.
    """
    before = getattr(_here, "alone", False)
    _here.alone = True
    try:
        yield
    finally:
        _here.alone = before


def _of_one_replica(
    upstream: Callable[..., Any], instead: Callable[..., Any]
) -> Callable[..., Any]:
    def chosen(given: Any) -> Any:
        return instead(given) if getattr(_here, "alone", False) else upstream(given)

    return chosen


losses_utils.scale_loss_for_distribution = _of_one_replica(
    losses_utils.scale_loss_for_distribution, lambda loss: loss
)
_MEAN = tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE
tf.keras.losses.Loss._get_reduction = _of_one_replica(
    tf.keras.losses.Loss._get_reduction,
    lambda loss: _MEAN if loss.reduction == tf.keras.losses.Reduction.AUTO else loss.reduction,
)


def _check(model: Any, spec: RunSpec) -> None:
    """Refuse what only Keras' own step can do."""
    name = f"{type(model).__name__}.train_step"
    if spec.options.passes_per_reduction > 1:
        raise RefusalError(
            "Horovod's own accumulation needs Keras' own training step.",
            received=f"backward_passes_per_step={spec.options.passes_per_reduction} with {name}",
            advice="Leave out -o backward_passes_per_step.",
        )
