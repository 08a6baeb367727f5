"""A training step that the model's author wrote, made exact under every backend.

It is given what plain Keras would give it: the true examples of a batch, without padding, and
sample weights only if the data have them. Its losses are means over these examples. So the gradient
of each replica counts by its share of the global batch's examples, where an optimizer applies it.
The author's code knows nothing of this, and may have any number of optimizers, losses and metrics.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Self

from backends.base import Backend
from ringside_core.keras import (
    APPLY,
    build_losses,
    build_metrics,
    build_optimizer,
    compiled_losses,
    compiled_metrics,
    flat,
    has_own_step,
    let_averages_be_of_one_replica,
    let_losses_be_of_one_replica,
    loss_metrics,
    metrics_of,
    on_apply,
    optimizer_kinds,
    optimizers_of,
    python_of,
    raw,
    tf,
    weights_of,
)
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.metrics import tells_of_batch
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.step import StepFunction
from ringside_core.workloads.weights import labels
from ringside_core.workloads.without_horovod import without_reductions
from trainers.gather import Together, calls, gathering
from trainers.lookups import Lookups
from trainers.virtual_replicas import TOGETHER, VirtualReplicas
from trainers.whole_batch import losses_count_padding, takes_true_examples

_here = threading.local()  # a strategy traces each replica in a thread of its own


def step_name(model: Any) -> str:
    """How messages name the model's training step, or its losses, if the step is Keras'."""
    if isinstance(model, StepFunction):
        return str(model.name)
    if has_own_step(model):
        return f"{type(model).__name__}.train_step"
    return f"the training of {model.name}"


def has_own_test_step(model: Any) -> bool:
    """Whether the model's author wrote its step of an evaluation."""
    return type(model).test_step is not tf.keras.Model.test_step


@dataclass(frozen=True)
class Returned:
    """What one of the author's steps returns.

    Attributes:
        names: of the numbers, in its order.
        of_metrics: of those that a metric of the model holds, the metric's name.
        gathers: whether it has gathered the rows of all replicas (trainers/gather.py).
        loss_by_step: whether the loss of a single step can be told; else only that of an epoch.
    """

    names: tuple[str, ...]
    of_metrics: Mapping[str, str]
    loss_by_step: bool
    gathers: bool = False

    @property
    def loss(self) -> str:
        """Which of the numbers is told as the loss."""
        named = (name for name in self.names if name.endswith("loss"))
        return "loss" if "loss" in self.names else next(named, self.names[0])

    @property
    def raw(self) -> tuple[str, ...]:
        """Numbers that no metric of the model holds."""
        return tuple(name for name in self.names if name not in self.of_metrics)


@dataclass(frozen=True)
class Trial:
    """What one run of the author's steps showed, on a model that is thrown away.

    Attributes:
        trained: what its train_step returns; None: it is Keras' own, and is given padding too.
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
    losses, metrics = compiled_losses(model), compiled_metrics(model)
    if losses is None or losses.built:
        return
    # A model with a step of its own may have no call, or one of something else.
    with suppress(Exception if has_own_step(model) else NotImplementedError):
        made, y = model(batch[0], training=False), labels(batch[1])
        build_losses(losses, y, made)
        build_metrics(metrics, y, made)


def as_given(pipeline: Pipeline, batch: tuple[Any, Any, Any]) -> Any:
    """A batch (x, y, weight) of a split as the author's step gets it."""
    x, y, weight = batch
    weight = weight if pipeline.weighted else None
    return packed(x, labels(y), weight, of_arrays=pipeline.of_arrays)


def try_out(
    model: Any,
    batch: tuple[Any, Any, Any],
    data: Any,
    held_out: Any,
    *,
    several: bool = False,
    gathers: RefusalError | None = None,
) -> Trial:
    """Run the author's steps once, in Python.

    Args:
        model: built and compiled outside of any strategy; it is trained by this.
        batch: (x, y, weight) of the training split.
        data: the same as the author's train_step gets it.
        held_out: a batch as the author's test_step gets it.
        several: whether several replicas will make a step together.
        gathers: why rows of several replicas cannot be gathered; None: they can.

    Raises:
        RefusalError: a step returns what cannot be told, a metric cannot be weighted, or an
            optimizer or what it updates is not the model's.
    """
    build_compiled(model, batch)
    _check_names(model)
    results, tested, trained = Results.of(model), None, None
    one = tf.ones([], tf.keras.backend.floatx()) if several else None
    if has_own_test_step(model):
        with counted_by(one, one), gathering(gathers):
            tested = _returned(model, python_of(model.test_step), held_out, results)
    optimizers = optimizers_of(model)
    numbers = {weight.ref(): number for number, weight in enumerate(weights_of(model))}
    updated: list[list[int]] = [[] for _ in optimizers]
    if takes_true_examples(model):
        for optimizer, mine in zip(optimizers, updated, strict=True):
            _watch_updates(optimizer, partial(_note_number, model, numbers, mine))
        no_sums = _no_sums(model) if several else nullcontext()
        with _only_known(optimizers), counted_by(one, one), gathering(gathers), no_sums:
            trained = _returned(model, python_of(model.train_step), data, results)
        if not any(updated):
            raise RefusalError(
                "A training step must apply an optimizer each time: gradients are combined there.",
                received=f"{step_name(model)}, which applies none at its first call",
                advice="Do not add up gradients over several steps: write the step of one batch, "
                "and make the batch as much larger.",
            )
    return Trial(trained, tested, tuple(tuple(dict.fromkeys(mine)) for mine in updated))


def _note_number(model: Any, numbers: dict[Any, int], mine: list[int], variable: Any) -> None:
    if variable.ref() not in numbers:
        check_made_before(model, [ref.deref() for ref in numbers])
        raise RefusalError(
            "An optimizer may update weights of the model only.",
            received=f"{variable.name}, which the model does not hold",
            advice="Make the variable an attribute of the model.",
        )
    mine.append(numbers[variable.ref()])


def check_made_before(model: Any, weights: Sequence[Any]) -> None:
    """Refuse weights that the first step makes, beside these: runs could not begin with the same.

    Raises:
        RefusalError: see above.
    """
    before = {id(one) for one in weights}
    for weight in weights_of(model):
        if id(weight) not in before:
            raise RefusalError(
                "A model must have all its weights before its first step.",
                received=f"{weight.name}, which {step_name(model)} makes",
                advice=_BUILD_ITS_MODELS
                if isinstance(model, StepFunction)
                else "Call its layers once in its constructor, or in its `call`.",
            )


_BUILD_ITS_MODELS = (
    "Call what it uses once on a batch, within ringside.scope() and above the step: model(x[:1])."
)


def _check_names(model: Any) -> None:
    of_losses = {id(metric) for metric in loss_metrics(model)}
    names = [metric.name for metric in metrics_of(model) if id(metric) not in of_losses]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusalError(
            "Metrics must have names of their own.",
            received=f"several called {', '.join(twice)} in {type(model).__name__}",
            advice='Name each, such as tf.keras.metrics.Mean(name="kl_loss").',
        )


@contextmanager
def _no_sums(model: Any) -> Iterator[None]:
    """Refuse a loss for each example at a tape: it trains by their sum, which replicas would mean.

    A gradient by what is no variable, such as a penalty's by its inputs, is the author's affair.
    """
    upstream = tf.GradientTape.gradient

    @wraps(upstream)
    def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        by_weights = any(isinstance(raw(one), tf.Variable) for one in flat(sources))
        weighed = bool(args) or kwargs.get("output_gradients") is not None
        several = any(one.shape.num_elements() != 1 for one in flat(target))
        if by_weights and several and not weighed:
            raise RefusalError(
                "A training step's loss must be one number, a mean over its batch.",
                received=f"{step_name(model)}, which gives its tape a loss for each example: the "
                "gradient is that of their sum, and grows with the batch of a replica",
                advice="Write tf.reduce_mean(loss) in it. Plain Keras then trains by the mean too, "
                "so multiply the learning rate by the batch.",
            )
        return upstream(tape, target, sources, *args, **kwargs)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = upstream


@contextmanager
def _only_known(optimizers: Sequence[Any]) -> Iterator[None]:
    """Refuse an optimizer that is applied within this block, and that the model does not hold.

    Raises:
        RefusalError: see above.
    """
    known = {id(one) for one in optimizers}
    known |= {id(getattr(one, "inner_optimizer", None)) for one in optimizers}
    before = [getattr(kind, APPLY) for kind in optimizer_kinds]

    def checked(apply: Callable[..., Any]) -> Callable[..., Any]:
        def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in known:
                raise RefusalError(
                    "An optimizer must be an attribute of the model, or be in a list or dict that "
                    "is one: its gradients are combined over replicas.",
                    received=f"{type(self).__name__}, which the model does not hold",
                    advice="Write self.optimizer_of_… = it in the model.",
                )
            return apply(self, *args, **kwargs)

        return applied

    try:
        for kind, apply in zip(optimizer_kinds, before, strict=True):
            setattr(kind, APPLY, checked(apply))
        yield
    finally:
        for kind, apply in zip(optimizer_kinds, before, strict=True):
            setattr(kind, APPLY, apply)


def _returned(model: Any, step: Callable[[Any], Any], data: Any, results: "Results") -> Returned:
    before = calls()
    with without_reductions():
        told = step(data)
    kind = type(model).__name__
    of_losses = {id(metric) for metric in loss_metrics(model)}
    if isinstance(told, dict):
        # `build_compiled` makes a mean of Keras' own loss. Plain Keras has it if a step uses it.
        told = {
            name: value
            for name, value in told.items()
            if id(results.metric_of(value)) not in of_losses or results.of_batch(value) is not None
        }
    if not isinstance(told, dict) or not told:
        raise RefusalError(
            "A train_step or test_step must return its losses and metrics by name.",
            received=f"a {type(told).__name__} from {kind}",
            advice='Return a dict, such as {"loss": loss}.',
        )
    # Of Keras' own losses only the result itself is theirs: a bare loss may have their name.
    own = {metric.name: metric for metric in metrics_of(model) if id(metric) not in of_losses}
    of_metrics = {}
    for name, value in told.items():
        metric = results.metric_of(value) or own.get(name)
        if metric is None:
            continue
        if id(metric) not in {id(one) for one in metrics_of(model)}:
            raise RefusalError(
                "A metric whose result a step returns must be one of the model's `metrics`: they "
                "are reset at the beginning of an epoch.",
                received=f"{metric.name}, which {kind}.metrics does not hold",
                advice="Let the property `metrics` return it too.",
            )
        of_metrics[name] = metric.name
    found = Returned(tuple(told), of_metrics, loss_by_step=False, gathers=calls() > before)
    by_step = found.loss in found.raw or results.of_batch(told[found.loss]) is not None
    return replace(found, loss_by_step=by_step)


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
        synchronous = backend.capabilities.synchronous
        self._batch = spec.global_batch if synchronous else spec.batch_plan.per_replica_batch
        replicas = spec.topology.num_replicas * virtual_replicas
        self._alone = replicas == 1 or not synchronous
        self.replica_batch = spec.batch_plan.replace(num_replicas=replicas).per_replica_batch
        self._weighted, self._of_arrays = pipeline.weighted, pipeline.of_arrays
        self._together = TOGETHER if virtual_replicas > 1 else together(backend)
        self.cuts = bool(pipeline.last_batch) or spec.pipeline.shard != "batch"
        with backend.scope():
            self.means = [tf.keras.metrics.Mean(name=name) for name in trial.trained.raw]
            variables = weights_of(model)
            for optimizer, numbers in zip(optimizers_of(model), trial.updated, strict=True):
                build_optimizer(optimizer, [variables[number] for number in numbers])
            self.virtual = None
            if virtual_replicas > 1:
                updated = {number for numbers in trial.updated for number in numbers}
                others = [v for number, v in enumerate(variables) if number not in updated]
                self.virtual = VirtualReplicas(model, others, lookups)
            for optimizer in optimizers_of(model):
                if not self._alone:
                    backend.combine_on_apply(optimizer, lambda: _here.share)
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
        with counted_by(*part, examples), whole:
            told = self._author(packed(x, y, weight, of_arrays=self._of_arrays))
        for mean in self.means:
            mean.update_state(_number(told[mean.name], share), sample_weight=share)
        loss = told[self.returned.loss]
        if self.returned.loss not in self.returned.raw:
            loss = self._results.of_batch(loss)
        if loss is None or not self.returned.loss_by_step:
            return tf.zeros([], scale.dtype)
        return tf.cast(loss, scale.dtype)


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


@contextmanager
def counted_by(share: Any, true: Any, examples: Any = None) -> Iterator[None]:
    """Within this block of a thread, an author's step runs on this replica's part of a batch.

    Args:
        share: how much this part counts, in gradients and in metrics of single numbers; None: as
            in plain Keras.
        true: number of true examples: of a part without any, metrics count nothing. None: each has
            some.
        examples: true examples of the batch of which this is a part; None: of this part.
    """
    before = vars(_here).copy()
    _here.share, _here.true, _here.examples = share, true, examples
    try:
        with losses_of_one_replica():
            yield
    finally:
        vars(_here).clear()
        vars(_here).update(before)


def packed(x: Any, y: Any, weight: Any, *, of_arrays: bool) -> Any:
    """A batch as Keras gives it to `train_step`: without what there is not.

    Args:
        x: of the batch.
        y: labels; None: there are none.
        weight: of the examples; None: there are none.
        of_arrays: whether the data are arrays. Keras puts a nest without labels into a tuple then,
            and hands an element of a data set on as it is.
    """
    if weight is not None:
        return x, y, weight
    if y is not None:
        return x, y
    return (x,) if of_arrays and tf.nest.is_nested(x) else x


class Results:
    """Tells from which metric of a model a number came, and what that was told last.

    A metric that is told a single number for a batch counts it by the replica's share. One that is
    told examples counts them, unless the replica has none and was given one of another
    (`counted_by`).
    """

    @classmethod
    def of(cls, model: Any) -> Self:
        """The one of this model; it watches all metrics that the model has now."""
        found: Self = vars(model).setdefault("_ringside_results", None) or cls()
        vars(model)["_ringside_results"] = found
        # A second fit compiles the losses anew.
        held = [*model.metrics, *(one for one in vars(model).values() if _is_metric(one))]
        # Then Keras' own step runs. Keras 3 holds the compiled ones in one metric of its own.
        if losses_count_padding(model):
            compiled = compiled_metrics(model)
            held = [*(one for one in held if one is not compiled), *compiled.metrics]
        for metric in held:
            found._watch(metric)
        return found

    def __init__(self) -> None:
        self._seen = threading.local()  # a strategy traces each replica in a thread of its own
        self._watched: dict[int, Any] = {}

    def _watch(self, metric: Any) -> None:
        if id(metric) not in self._watched:
            self._watched[id(metric)] = metric
            metric.result = partial(self._result, metric, metric.result)
            metric.update_state = partial(self._update, metric, metric.update_state)

    def forget(self) -> None:
        """Begin a step: what this thread's last one told is of another graph, perhaps."""
        vars(self._seen).clear()

    def metric_of(self, value: Any) -> Any:
        """The metric whose result this very object is, or None."""
        return self._noted("results").get(id(value), (None,))[0]

    def of_batch(self, value: Any) -> Any:
        """What the mean of this result was told in this step, as a mean; None: it is no mean."""
        return self._noted("told").get(id(self.metric_of(value)))

    def _noted(self, what: str) -> dict[int, Any]:
        found: dict[int, Any] = vars(self._seen).setdefault(what, {})
        return found

    def _result(self, metric: Any, result: Callable[[], Any]) -> Any:
        value = result()
        # The value too, so that its id is not used again.
        self._noted("results")[id(value)] = (metric, value)
        return value

    def _update(self, metric: Any, update: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not getattr(_here, "alone", False):
            return update(*args, **kwargs)
        signature = inspect.signature(type(metric).update_state)
        given = signature.bind(metric, *args, **kwargs)
        told, weight = given.args[1] if len(given.args) > 1 else None, given.arguments.get(_WEIGHT)
        if type(metric) is tf.keras.metrics.Mean:
            self._noted("told")[id(metric)] = _mean(tf.convert_to_tensor(told), weight)
        counts = _counts(metric, told, weight)
        if counts is None:
            return update(*args, **kwargs)
        if type(metric) in (tf.keras.metrics.Mean, tf.keras.metrics.Sum):
            given.arguments["values"] = _number(told, tf.reduce_max(counts))
        if _WEIGHT not in signature.parameters:
            raise RefusalError(
                "A metric must take (…, sample_weight): a replica without examples counts 0.",
                received=f"{metric.name} ({type(metric).__name__})",
                advice="Add the argument to its update_state.",
            )
        given.arguments[_WEIGHT] = counts
        return update(*given.args[1:], **given.kwargs)


_WEIGHT = "sample_weight"


def _number(value: Any, weight: Any) -> Any:
    """What a part of weight 0 tells may be no number, and must not count."""
    value = tf.convert_to_tensor(value)
    return tf.math.multiply_no_nan(value, tf.cast(weight > 0, value.dtype))


def _counts(metric: Any, told: Any, weight: Any) -> Any:
    """The weight with which this replica's part counts in a metric; None: as it is given."""
    share, true = getattr(_here, "share", None), getattr(_here, "true", None)
    single = isinstance(metric, tf.keras.metrics.Mean | tf.keras.metrics.Sum)
    if single and weight is None and tf.convert_to_tensor(told).shape.rank == 0:
        return share
    first = tf.nest.flatten(told)[0]
    if weight is None and tells_of_batch(metric):  # a batch counts once, as in plain Keras
        examples = tf.shape(first)[0]
        once = tf.ones([], metric.dtype) if share is None else tf.cast(share, metric.dtype)
        return tf.fill([examples], once / tf.cast(tf.maximum(examples, 1), metric.dtype))
    if true is None:
        return None
    there = tf.cast(true > 0, tf.keras.backend.floatx())
    if weight is not None:
        return tf.cast(weight, there.dtype) * there
    return tf.fill([tf.shape(first)[0]], there)


def _is_metric(value: Any) -> bool:
    return isinstance(value, tf.keras.metrics.Metric)


def _mean(values: Any, weight: Any) -> Any:
    """The mean that a `Mean` is told in one step."""
    if weight is None or values.shape.rank == 0:
        return tf.reduce_mean(values)
    weight = tf.cast(weight, values.dtype) * tf.ones_like(values)
    return tf.math.divide_no_nan(tf.reduce_sum(values * weight), tf.reduce_sum(weight))


def _watch_updates(optimizer: Any, seen: Callable[[Any], None]) -> None:
    def watched(apply: Callable[..., Any], gradients: list[Any], variables: list[Any]) -> Any:
        for variable in variables:
            seen(variable)
        return apply(gradients)

    on_apply(optimizer, watched)


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


let_losses_be_of_one_replica(lambda: getattr(_here, "alone", False))
let_averages_be_of_one_replica(
    lambda: getattr(_here, "alone", False), lambda: getattr(_here, "examples", None)
)


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
