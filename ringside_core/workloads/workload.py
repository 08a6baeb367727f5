"""Workload: what is trained. A user's own is a function that returns one of these."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ringside_core.keras import (
    MEANS,
    VERSION,
    compiled_by,
    has_own_step,
    has_own_test_step,
    new_optimizer,
    optimizers_of,
    tf,
    variables_of,
    weights_of,
)
from ringside_core.specs import RefusalError
from ringside_core.workloads.augment import Augment, check_tied
from ringside_core.workloads.functions import as_tuple, one_after_another
from ringside_core.workloads.metrics import is_own, of_each
from ringside_core.workloads.source import Source, as_source, first_batches, first_elements, whole
from ringside_core.workloads.unbuilt import build_by_step, unbuilt
from ringside_core.workloads.weights import (
    as_fed,
    check_class_weight,
    inputs_together,
    labels,
    packed,
    takes_inputs,
)
from ringside_core.workloads.without_horovod import check_not_horovods


@dataclass(frozen=True)
class QualityTarget:
    """A validation metric and the value that counts as trained."""

    metric: str
    at_least: float


@dataclass(frozen=True)
class Workload:
    """A model and its data, written once for every backend.

    Attributes:
        model: builds the Keras model (tf.keras, legacy); called within the backend's scope.
        train, validation: the data: nests of arrays, each [num_examples, …]; tf.data.Datasets; or
            sources. validation None: nothing is evaluated.
        loss: a per-example loss as for `Model.compile`; a list or dict for several outputs.
        optimizer: a name or an instance, as for `Model.compile`, or a function that returns one;
            with the learning rate for `reference_batch`. None: `model` returns a compiled model,
            which says what its loss, optimizer and metrics are.
        loss_weights: as for `Model.compile`: the weight of each output's loss in the sum.
        class_weight: as for `Model.fit`: class → factor for the weights of its examples, in
            training only. A class is an integer label, or the index of a one-hot label's maximum.
        metrics: as for `Model.compile`: a list of names and instances, for several outputs a dict
            from the output's name to its metrics; or a function that builds them anew at each
            call. All metrics are weighted, so that padding counts 0.
        augment: a single element → the element as it is trained on, in TensorFlow ops. What it
            draws (tf.image.random_*, tf.random) is drawn anew for each example in each epoch, the
            same under every backend. Not done in validation. None: nothing is drawn.
        preprocess: a batch of elements → (x, y) or (x, y, sample_weight), in TensorFlow ops,
            without randomness. None: the elements have this form already.
        target: the quality at which training counts as done; None: there is none.
        reference_batch: global batch for which the learning rate was chosen; needed by the
            learning-rate rules `linear` and `sqrt`.
        callbacks: as for `Model.fit`, or a function that returns them anew. They are called in a
            training of its own, not in certificates and comparisons (docs/own-model.md).
        validates: whether there are validation data; set by itself.
        counts_once: whether metrics count each example once, although examples have weights; set by
            itself, where a compiled model has `metrics` and no `weighted_metrics`.
    """

    name: str
    model: Callable[[], Any]
    train: Any
    validation: Any = None
    loss: Any = None
    optimizer: Any = None
    metrics: Any = ()
    augment: Callable[..., Any] | None = None
    preprocess: Callable[..., Any] | None = None
    target: QualityTarget | None = None
    reference_batch: int | None = None
    loss_weights: Any = None
    class_weight: Mapping[int, float] | None = None
    callbacks: Any = ()
    validates: bool = True
    counts_once: bool = False

    def __post_init__(self) -> None:
        if self.validation is None:
            object.__setattr__(self, "validates", False)
            object.__setattr__(self, "validation", self.train)
        for attribute in ("train", "validation"):
            source: Source = as_source(getattr(self, attribute), what=f"{attribute} data")
            object.__setattr__(self, attribute, source)
        if self.augment is not None:
            before = self.train.augment or Augment(one_after_another())
            augment = replace(
                before, of_one=one_after_another(before.of_one, self.augment), of_batch=None
            )
            elements = whole(first_elements(self.train, 1), augment)
            check_tied(augment.of_one, elements.element_spec)
            object.__setattr__(self, "train", replace(self.train, augment=augment))
            object.__setattr__(self, "augment", None)  # the source does it from now on
        object.__setattr__(self, "metrics", partial(_new_metrics, self.metrics))
        if not callable(self.callbacks):
            check_not_horovods(*self.callbacks)
        if self.optimizer is None:
            self._take_what_was_compiled()
        if self.optimizer is not None:
            object.__setattr__(self, "optimizer", partial(_new_optimizer, self.optimizer))
        if self.class_weight is not None:
            preprocessed = self.preprocess is not None
            check_class_weight(self.class_weight, self.train, preprocessed=preprocessed)

    def build_model(self) -> Any:
        """Call `model` and check what comes back.

        Raises:
            RefusalError: it is not a tf.keras model, or has several outputs where one is needed.
        """
        model = self.model()
        self.check_model(model)
        return model

    def check_model(self, model: Any) -> None:
        """Refuse what `build_model` refuses."""
        if not isinstance(model, tf.keras.Model):
            kind = f"{type(model).__module__}.{type(model).__name__}"
            hint = "Let the function return the model."
            if kind.startswith(("keras.", "tf_keras.")):
                name = kind.partition(".")[0]
                hint = (
                    f"Write `import {name}` in the workload's own file: it says which Keras runs."
                )
            raise RefusalError(
                "The workload's `model` function must return a model of the Keras that runs: "
                f"{'legacy Keras' if VERSION == 2 else 'Keras 3'}.",
                received=kind,
                advice=hint,
            )
        check_not_horovods(*optimizers_of(model), *model._flatten_layers())
        self._check_reductions(own_step=has_own_step(model))
        why = self._build_layers(model)
        try:
            model.weights  # noqa: B018  # Keras raises if a part has none yet
        except ValueError as error:
            raise RefusalError(
                "A model must have all its weights before its first step.",
                received=f"{model.name} ({type(model).__name__}): {str(error).split('.')[0]}"
                + (f"; its {why}" if why else ""),
                advice="Give its Sequential models an input shape, or call its networks once in "
                "its constructor.",
            ) from None
        _check_made_here(model)
        # A subclassed model has no `outputs` before its first call.
        outputs = tf.nest.flatten(getattr(model, "outputs", None))
        self.check_metrics(len(outputs))
        if len(outputs) > 1 and self.class_weight is not None:
            raise RefusalError(
                "class_weight needs a model with a single output.",
                received=f"{len(outputs)} outputs",
                advice="Use sample weights.",
            )

    def _build_layers(self, model: Any) -> str:
        """Let layers make their weights now: every backend must begin with the same.

        Returns:
            The step that should make them, and its error; empty: none.
        """
        # Keras 3 calls a model built after `build()` in its constructor, without its layers.
        if not unbuilt([model]):
            return ""
        # With a training step of its own it may have no call, or one of something else.
        own = has_own_step(model)
        with suppress(Exception if own else NotImplementedError):
            model(self._first_batch[0])
        if not own or not optimizers_of(model) or {*map(id, unbuilt([model]))} <= {id(model)}:
            return ""
        batch = packed(*self._first_batch, of_arrays=self.train.of_arrays)
        # An evaluation may call other layers, such as its own augmentation.
        steps = ["train_step", *(["test_step"] if has_own_test_step(model) else [])]
        whys = {step: build_by_step(model, step, batch) for step in steps}
        return next((f"{step} ends with {why}" for step, why in whys.items() if why), "")

    @property
    def _first_batch(self) -> tuple[Any, Any, Any]:
        """(x, y, weight) of the first examples; None for what they do not have."""
        first = next(iter(first_batches(self.train, self.preprocess, 2)))
        fed = as_fed(as_tuple(first), of_arrays=self.train.of_arrays)
        x, *others = fed if isinstance(fed, tuple) else (fed,)
        y, weight = (*others, None, None)[:2]
        return x, labels(y), weight

    def _check_reductions(self, *, own_step: bool) -> None:
        for loss in tf.nest.flatten(self.loss):
            if not isinstance(loss, tf.keras.losses.Loss) or loss.reduction in MEANS:
                continue
            if not own_step:
                # Within a strategy, Keras refuses or rescales other reductions; Horovod averages
                # them over the ranks. The same workload would train differently under each.
                raise RefusalError(
                    "A workload's loss must be a mean over the batch.",
                    received=f"{type(loss).__name__} with reduction={loss.reduction!r}",
                    advice="Leave `reduction` away, and multiply the learning rate by the batch. "
                    "Keras trains both by the sum: a strategy adds the replicas' sums, and "
                    "Horovod averages them.",
                )
            if VERSION == 2 and loss.reduction == "sum":
                raise RefusalError(
                    "A compiled loss must be a mean over the batch: of a sum Keras 2 tells another "
                    "number for each number of replicas.",
                    received=f"{type(loss).__name__} with reduction='sum'",
                    advice="Call it in the train_step itself, not by compiled_loss.",
                )

    def _take_what_was_compiled(self) -> None:
        """Set optimizer, loss and metrics from a compiled model.

        A model whose class has a `compile` and a `train_step` of its own is left as it is.

        Raises:
            RefusalError: the model has no optimizer.
        """
        model = self.model()
        if self.preprocess is None and not self.train.of_arrays:
            batches = first_batches(self.train, None, 1)
            if takes_inputs(model, batches.element_spec):
                object.__setattr__(self, "preprocess", inputs_together)
        self.check_model(model)
        if not optimizers_of(model):
            raise RefusalError(
                "A workload without an optimizer needs a compiled model.",
                received=f"{model.name} ({type(model).__name__}), which has no optimizer",
                advice="Give the workload an optimizer, or let `model` call model.compile(…).",
            )
        if type(model).compile is not tf.keras.Model.compile and has_own_step(model):
            return
        found = compiled_by(model)
        if isinstance(found["optimizer"], list | tuple):
            raise RefusalError(
                "A model is compiled with one optimizer; others are attributes of it.",
                received=f"compile(optimizer=[…]) of {type(model).__name__}",
                advice="Write its training step with both, as @ringside.step.",
            )
        weighted = found.pop("weighted_metrics")
        once = found["metrics"] and not weighted and self.is_weighted()
        once = once and not has_own_test_step(model)
        object.__setattr__(self, "counts_once", bool(once))
        both = _merged(found["metrics"], weighted)
        found["metrics"] = partial(_new_metrics, both)
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def optimizer_of(self, model: Any) -> Any:
        """The optimizer for a model: a new one, or a script's own, which a step of it may name."""
        return self.optimizer()

    def new_callbacks(self) -> list[Any]:
        """The author's callbacks, built anew if a function builds them."""
        return list(self.callbacks() if callable(self.callbacks) else self.callbacks)

    def is_weighted(self) -> bool:
        """Whether examples have weights of their own, in training or in validation."""
        sources = (self.train, self.validation)
        forms = [first_batches(one, self.preprocess, 1).element_spec for one in sources]
        given = any(isinstance(form, tuple) and len(form) == 3 for form in forms)
        return given or self.class_weight is not None

    def has_own_metric(self) -> bool:
        """Whether a metric is a function of the author's.

        Raises:
            RefusalError: a metric is the same at each call.
        """
        with tf.Graph().as_default():  # thrown away, so that Keras does not count these metrics
            made, again = (tf.nest.flatten(self.metrics()) for _ in range(2))
        for one, other in zip(made, again, strict=False):
            if one is other and isinstance(one, tf.keras.metrics.Metric):
                raise RefusalError(
                    "`metrics` must build new metrics at each call: training and validation need "
                    "their own.",
                    received=f"{one.name} twice",
                )
        return any(map(is_own, made))

    def check_metrics(self, num_outputs: int) -> None:
        """Refuse a plain list of metrics for several outputs: it does not say which is whose."""
        if num_outputs < 2:
            return
        with tf.Graph().as_default():  # thrown away, so that Keras does not count these metrics
            metrics = self.metrics()
        if metrics and not isinstance(metrics, dict):
            raise RefusalError(
                "The metrics of a model with several outputs must be a dict from output to list.",
                received=f"a {type(metrics).__name__} for {num_outputs} outputs",
                advice='Return {"name of an output": [its metrics]}.',
            )


def _check_made_here(model: Any) -> None:
    """Refuse a model that is of another strategy than the current one."""
    here = tf.distribute.get_strategy()
    held = [*weights_of(model), *(v for one in optimizers_of(model) for v in variables_of(one))]
    outside = [v.name for v in held if not here.extended.variable_created_in_scope(v)]
    if model.distribute_strategy is not here or outside:
        raise made_outside(outside[0] if outside else model.name)


def made_outside(what: str) -> RefusalError:
    """Of a model, or a variable of one, that is made outside of a script's scope."""
    return RefusalError(
        "Models and optimizers must be made within ringside.scope().",
        received=f"{what}, made outside of it",
        advice="Write: with ringside.scope(): model = …; model.compile(…)",
    )


def _merged(metrics: Any, weighted: Any) -> Any:
    """Metrics and weighted metrics of `Model.compile` as one: here all are weighted."""
    if isinstance(metrics, dict) or isinstance(weighted, dict):
        both = (metrics or {}, weighted or {})
        names = {name: None for given in both for name in given}
        return {name: [m for given in both for m in _listed(given.get(name))] for name in names}
    return [*_listed(metrics), *_listed(weighted)]


def _listed(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _new_optimizer(given: Any) -> Any:
    """A new optimizer of a name, of an instance, or from a function that returns one of these."""
    made = given() if callable(given) else given
    check_not_horovods(made)
    if made is not given and not isinstance(made, str):
        return made
    try:
        return new_optimizer(made)
    except ValueError:
        raise RefusalError(
            "A workload's optimizer must be a name that Keras knows, an optimizer of tf.keras, or "
            "a function that returns one.",
            received=repr(made),
        ) from None


def _new_metrics(given: Any) -> list[Any] | dict[str, Any]:
    """New metrics of names and instances, or from a function that builds them."""
    if callable(given):
        made: list[Any] | dict[str, Any] = tf.nest.map_structure(of_each, given())
        return made
    copies = tf.nest.map_structure(
        lambda one: (
            type(one).from_config(one.get_config())
            if isinstance(one, tf.keras.metrics.Metric)
            else of_each(one)
        ),
        given,
    )
    return copies if isinstance(copies, dict) else list(copies)
