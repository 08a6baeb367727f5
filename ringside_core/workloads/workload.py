"""Workload: what is trained. A user's own is a function that returns one of these."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside_core.keras import new_optimizer, tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.source import Source, as_source
from ringside_core.workloads.weights import check_class_weight

MEANS = (tf.keras.losses.Reduction.AUTO, tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE)


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
        train, validation: the data in one fixed order: nests of arrays, each [num_examples, …];
            tf.data.Datasets of single elements; or sources.
        loss: a per-example loss as for `Model.compile`; a list or dict for several outputs.
        optimizer: a name or an instance, as for `Model.compile`, or a function that returns one;
            with the learning rate for `reference_batch`.
        loss_weights: as for `Model.compile`: the weight of each output's loss in the sum.
        class_weight: as for `Model.fit`: class → factor for the weights of its examples, in
            training only. A class is an integer label, or the index of a one-hot label's maximum.
        metrics: as for `Model.compile`: a list of names and instances, for several outputs a dict
            from the output's name to its metrics; or a function that builds them anew at each
            call. All metrics are weighted, so that padding counts 0.
        preprocess: a batch of elements → (x, y) or (x, y, sample_weight), in TensorFlow ops,
            without randomness. None: the elements have this form already.
        target: the quality at which training counts as done; None: there is none.
        reference_batch: global batch for which the learning rate was chosen; needed by the
            learning-rate rules `linear` and `sqrt`.
    """

    name: str
    model: Callable[[], Any]
    train: Any
    validation: Any
    loss: Any
    optimizer: Any
    metrics: Any = ()
    preprocess: Callable[..., Any] | None = None
    target: QualityTarget | None = None
    reference_batch: int | None = None
    loss_weights: Any = None
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for attribute in ("train", "validation"):
            source: Source = as_source(getattr(self, attribute), what=f"{attribute} data")
            object.__setattr__(self, attribute, source)
        object.__setattr__(self, "optimizer", partial(_new_optimizer, self.optimizer))
        object.__setattr__(self, "metrics", partial(_new_metrics, self.metrics))
        for loss in tf.nest.flatten(self.loss):
            if isinstance(loss, tf.keras.losses.Loss) and loss.reduction not in MEANS:
                # Within a strategy, Keras refuses or rescales other reductions; Horovod averages
                # them over the ranks. The same workload would train differently under each.
                raise RefusalError(
                    "A workload's loss must be a mean over the batch.",
                    received=f"{type(loss).__name__} with reduction={loss.reduction!r}",
                    advice="Leave `reduction` away.",
                )
        if self.class_weight is not None:
            preprocessed = self.preprocess is not None
            check_class_weight(self.class_weight, self.train, preprocessed=preprocessed)

    def build_model(self) -> Any:
        """Call `model` and check what comes back.

        Raises:
            RefusalError: it is not a tf.keras model, has no weights yet, has a masked output, or
                has several outputs where one is needed.
        """
        model = self.model()
        if not isinstance(model, tf.keras.Model):
            kind = f"{type(model).__module__}.{type(model).__name__}"
            hint = (
                "Take keras from tensorflow (tf.keras), not from the keras package: Ringside runs "
                "legacy Keras."
                if kind.startswith("keras.")
                else "Let the function return the model."
            )
            raise RefusalError(
                "The workload's `model` function must return a tf.keras model.",
                received=kind,
                advice=hint,
            )
        if not model.built:
            # Weights made in the first step would not be those with which every backend begins.
            raise RefusalError(
                "A model must have its weights when the `model` function returns it.",
                received=f"{model.name} ({type(model).__name__}), which is not built",
                advice="Let the function call it once, or call model.build(input_shape).",
            )
        # A subclassed model has no `outputs` before its first call.
        outputs = tf.nest.flatten(getattr(model, "outputs", None))
        self.check_metrics(len(outputs))
        if len(outputs) > 1 and self.class_weight is not None:
            raise RefusalError(
                "class_weight needs a model with a single output.",
                received=f"{len(outputs)} outputs",
                advice="Use sample weights.",
            )
        if any(getattr(output, "_keras_mask", None) is not None for output in outputs):
            # Keras divides such a loss by the number of valid elements in each replica's own part.
            # The gradient would then depend on how the batch is split.
            raise RefusalError(
                "A model's output must not carry a mask.",
                received=f"a masked output of {model.name}",
                advice="Drop the mask before the last layer, and weigh the elements in the loss.",
            )
        return model

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


def _new_optimizer(given: Any) -> Any:
    """A new optimizer of a name, of an instance, or from a function that returns one of these."""
    made = given() if callable(given) else given
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
        made: list[Any] | dict[str, Any] = given()
        return made
    copies = tf.nest.map_structure(
        lambda one: (
            type(one).from_config(one.get_config())
            if isinstance(one, tf.keras.metrics.Metric)
            else one
        ),
        given,
    )
    return copies if isinstance(copies, dict) else list(copies)
