"""Workload: a model and its data, which a function returns in place of a script."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringside_core.keras import tf
from ringside_core.specs import RefusalError

KERAS_BATCH = 32  # of `Model.fit`, for arrays


@dataclass(frozen=True)
class QualityTarget:
    """A validation metric and the value that counts as trained."""

    metric: str
    at_least: float


@dataclass(frozen=True)
class Workload:
    """What a script would give to `Model.compile` and `Model.fit`.

    The function that returns it is called within `ringside.scope()`.

    Attributes:
        name: for a reader.
        model: builds the Keras model. If it is compiled, `optimizer` and what follows may be None.
        train: x, (x, y) or (x, y, sample_weight) of arrays [num_examples, …]; or what `Model.fit`
            takes as x and has batches: a tf.data.Dataset or a keras.utils.Sequence.
        validation: likewise. None: nothing is evaluated.
        loss, optimizer, metrics, loss_weights: as for `Model.compile`; optimizer and metrics may be
            functions that return them.
        class_weight, callbacks: as for `Model.fit`.
        target: the quality at which training counts as done; None: there is none.
        reference_batch: the global batch for which the learning rate was chosen: the batch of
            arrays, and that of the learning-rate rules `linear` and `sqrt`.

    Example:
        examples/own_model.py
    """

    name: str
    model: Callable[[], Any]
    train: Any
    validation: Any = None
    loss: Any = None
    optimizer: Any = None
    metrics: Any = None
    loss_weights: Any = None
    class_weight: Mapping[int, float] | None = None
    callbacks: Any = ()
    target: QualityTarget | None = None
    reference_batch: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer is None and (self.loss is not None or self.metrics is not None):
            raise RefusalError(
                "A Workload that compiles its model needs an optimizer.",
                received=f"{self.name} with a loss or metrics, and without one",
                advice="Give it, or let `model` return a compiled model, and leave loss and "
                "metrics out.",
            )
        for data in (self.train, self.validation):
            if isinstance(data, tuple) and not 1 <= len(data) <= 3:
                raise RefusalError(
                    "Data of a Workload are x, (x, y) or (x, y, sample_weight).",
                    received=f"a tuple of {len(data)}",
                    advice="Give several inputs as one list or dict.",
                )

    def compiled(self) -> Any:
        """The model, compiled; within `ringside.scope()`."""
        model = self.model()
        if self.optimizer is not None and isinstance(model, tf.keras.Model):
            model.compile(
                optimizer=_made(self.optimizer, tf.keras.optimizers.Optimizer),
                loss=self.loss,
                metrics=_made(self.metrics, tf.keras.metrics.Metric),
                loss_weights=self.loss_weights,
            )
        return model

    def arguments(self, *, epochs: int) -> dict[str, Any]:
        """Those of `Model.fit`, by name."""
        callbacks = self.callbacks() if callable(self.callbacks) else self.callbacks or ()
        found: dict[str, Any] = {"epochs": epochs, "callbacks": list(callbacks) or None}
        found["class_weight"] = self.class_weight
        found |= dict(zip(("x", "y", "sample_weight"), _parts(self.train), strict=False))
        if not _has_batches(self.train):
            found["batch_size"] = self.reference_batch or KERAS_BATCH
        if self.validation is not None:
            parts = _parts(self.validation)
            found["validation_data"] = parts[0] if len(parts) == 1 else parts
        return {name: value for name, value in found.items() if value is not None}


def _has_batches(data: Any) -> bool:
    """Whether data are batches; else they are arrays."""
    return isinstance(data, tf.data.Dataset | tf.keras.utils.Sequence) or hasattr(data, "__next__")


def _parts(data: Any) -> tuple[Any, ...]:
    return data if isinstance(data, tuple) else (data,)


def _made(given: Any, kind: type) -> Any:
    """What a function returns, where an author gives one; metrics can be called too."""
    return given() if callable(given) and not isinstance(given, kind) else given


def made_outside(what: str) -> RefusalError:
    """Of a model, or a variable of one, that is made outside of a script's scope."""
    return RefusalError(
        "Models and optimizers must be made within ringside.scope().",
        received=f"{what}, made outside of it",
        advice="Write: with ringside.scope(): model = …; model.compile(…)",
    )
