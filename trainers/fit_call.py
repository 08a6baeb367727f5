"""What an author asks of `ringside.fit`: the arguments of `Model.fit`, by name."""

import inspect
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Literal

from ringside_core.keras import VERSION, optimizers_of, tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.step import Step
from ringside_core.workloads.without_horovod import check_not_horovods
from ringside_core.workloads.workload import KERAS_BATCH
from trainers.data_graph import authors_batch_of
from trainers.reading import rows_of_arrays
from trainers.shard import check_divides, own_batches

Gradients = Literal["optimizer", "tape"]


@dataclass(frozen=True)
class FitCall:
    """A call of `ringside.fit`.

    Attributes:
        model: compiled.
        arguments: those of `Model.fit` that are given, by name.
        gradients: where gradients are added over replicas: where an optimizer applies them, or
            where a tape gives them.
        shards: in how many parts the processes read the data; 1: each reads all of them.
        multiple: of which the rows of a global batch are one.
    """

    model: Any
    arguments: dict[str, Any]
    gradients: Gradients = "optimizer"
    shards: int = 1
    multiple: int = 1

    @property
    def first_epoch(self) -> int:
        """Number of the first epoch, as Keras counts them."""
        return int(self.arguments.get("initial_epoch", 0))

    @property
    def last_epoch(self) -> int:
        """Number behind that of the last epoch: the `epochs` of `Model.fit`."""
        return int(self.arguments.get("epochs", 1))

    @property
    def epochs(self) -> int:
        """Epochs to train."""
        return max(0, self.last_epoch - self.first_epoch)

    @property
    def callbacks(self) -> list[Any]:
        """The author's."""
        given = self.arguments.get("callbacks")
        if isinstance(given, tf.keras.callbacks.Callback):
            return [given]
        return list(getattr(given, "callbacks", given) or ())

    @property
    def says(self) -> bool:
        """Whether to print how the training goes."""
        return self.arguments.get("verbose", "auto") not in (0, "0")

    @property
    def global_batch(self) -> int | None:
        """Rows of a global batch; None: not known before one is read."""
        x = self.arguments.get("x")
        if isinstance(x, tf.data.Dataset):
            flat = tf.nest.flatten(x.element_spec)
            rows = next((t.shape[0] for t in flat if t.shape.rank), None)
            return None if rows is None else rows * self.shards
        return None if rows_of_arrays(self.arguments) is None else self._batch_of_arrays

    @property
    def _batch_of_arrays(self) -> int:
        return self.arguments.get("batch_size") or KERAS_BATCH

    @property
    def steps_per_epoch(self) -> int | None:
        """Global batches of an epoch; None: not known before they are read."""
        x, steps = self.arguments.get("x"), self.arguments.get("steps_per_epoch")
        if steps is not None:
            return int(steps)
        if isinstance(x, tf.data.Dataset):
            count = int(x.cardinality())
            return count if count >= 0 else None
        if isinstance(x, tf.keras.utils.Sequence):
            return len(x)
        rows = rows_of_arrays(self.arguments)
        return None if rows is None else -(-rows // self._batch_of_arrays)

    @property
    def begins_again(self) -> bool:
        """Whether each epoch makes another iterator of the data; else it goes on with the same."""
        x, steps = self.arguments.get("x"), self.arguments.get("steps_per_epoch")
        if VERSION == 3:
            return steps is None
        if isinstance(x, tf.data.Dataset):
            return steps is None or int(x.cardinality()) == steps
        return isinstance(x, tf.keras.utils.Sequence)

    @property
    def endless(self) -> bool:
        """Whether the data are a data set without an end."""
        x = self.arguments.get("x")
        return (
            isinstance(x, tf.data.Dataset) and int(x.cardinality()) == tf.data.INFINITE_CARDINALITY
        )

    def first_batch(self) -> Any:
        """The first batch of the data, read where nothing is trained from them afterwards."""
        x: Any = self.arguments.get("x")
        if isinstance(x, tf.keras.utils.Sequence):
            return x[0]
        if rows_of_arrays(self.arguments) is None:
            return next(iter(x))

        def first(array: Any) -> Any:
            rows = tf.convert_to_tensor(array[: self.global_batch])
            return tf.cast(rows, tf.keras.backend.floatx()) if rows.dtype.is_floating else rows

        return tf.nest.map_structure(first, self.arrays)

    @property
    def by_rows(self) -> dict[str, Any]:
        """The arguments that have a row for each example, by name."""
        names = ("x", "y", "sample_weight")
        return {
            name: self.arguments[name] for name in names if self.arguments.get(name) is not None
        }

    @property
    def arrays(self) -> Any:
        """Of a training from arrays: they, as Keras hands them to a step; a single one alone."""
        given = tuple(self.by_rows.values())
        alone = len(given) == 1 and not isinstance(self.arguments.get("x"), tuple | list)
        return _in_tuples(given[0] if alone else given)

    def no_history(self) -> Any:
        """Keras' History of a training that is not made here: each number is NaN."""
        history = tf.keras.callbacks.History()
        history.set_model(self.model)
        history.epoch = [self.first_epoch + epoch for epoch in range(self.epochs)]
        history.history = defaultdict(lambda: [math.nan] * self.epochs)
        return history

    def given(self, **arguments: Any) -> "FitCall":
        """The same call with other arguments; those that are None are left out."""
        left = {k: v for k, v in (self.arguments | arguments).items() if v is not None}
        return replace(self, arguments=left)

    def without_end(self, epochs: int) -> "FitCall":
        """The same training, which goes on until it is stopped: its data begin again.

        Behind the author's epochs nothing is validated; `validation_freq` is a list then.

        Args:
            epochs: more than anybody waits for.

        Example:
            >>> call.given(epochs=2).without_end(1000).arguments["validation_freq"]
            [1, 2]
        """
        every = self.arguments.get("validation_freq", 1)
        asked = range(1, self.last_epoch + 1)
        validates = [
            n for n in asked if (n in every if not isinstance(every, int) else not n % every)
        ]
        x = self.arguments.get("x")
        if (
            isinstance(x, tf.data.Dataset)
            and self.arguments.get("steps_per_epoch") is not None
            and not self.begins_again
        ):
            x = x.repeat()  # its author has as many batches as he asks for, perhaps no more
        return self.given(x=x, epochs=epochs, validation_freq=validates)

    def in_batches_of(self, rows: int, *, authors: int | None = None) -> "FitCall":
        """The same training with another global batch.

        Args:
            rows: of it.
            authors: the batch that the author's data were seen to have; None: it is not known.

        Raises:
            RefusalError: only the author can give its data other batches.
        """
        if rows in (self.global_batch, authors):
            return self
        x = self.arguments.get("x")
        if isinstance(x, tf.data.Dataset):
            if authors_batch_of(x) == rows:
                return self
            check_divides(rows, self.multiple)
            own = rows // self.shards
            return self.given(x=x.rebatch(own, drop_remainder=self.global_batch is not None))
        if self.global_batch is not None:
            return self.given(batch_size=rows)
        raise RefusalError(
            "The global batch of a generator is its author's.",
            received=f"--global-batch {rows}",
            advice="Leave it out, or give arrays or a tf.data.Dataset.",
        )


def _in_tuples(nest: Any) -> Any:
    """The same without lists, which a data set would take for tensors."""
    if isinstance(nest, dict):
        return {name: _in_tuples(part) for name, part in nest.items()}
    return tuple(map(_in_tuples, nest)) if isinstance(nest, list | tuple) else nest


def fit_call(
    model: Any, *data: Any, gradients: Gradients = "optimizer", **arguments: Any
) -> FitCall:
    """A call of `ringside.fit`, checked.

    Args:
        model: compiled; or a function with `@ringside.step`.
        data: the first arguments of `Model.fit`.
        gradients: see FitCall.
        arguments: the others.

    Raises:
        RefusalError: what no backend can train, or Keras does not take.
    """
    if gradients not in ("optimizer", "tape"):
        raise RefusalError(
            "Gradients are added at the optimizer or at the tape.",
            received=f"gradients={gradients!r}",
            advice='Write gradients="tape", or leave it out.',
        )
    if isinstance(model, Step):
        if validates := {"validation_data", "validation_split"} & arguments.keys():
            raise RefusalError(
                "A function with @ringside.step cannot be evaluated.",
                received=", ".join(sorted(validates)),
                advice="Leave it out, and evaluate behind fit.",
            )
        model = model.model()
    if not isinstance(model, tf.keras.Model):
        raise RefusalError(
            "ringside.fit takes a Keras model, or a function with @ringside.step.",
            received=type(model).__name__,
        )
    try:
        bound = dict(inspect.signature(type(model).fit).bind(model, *data, **arguments).arguments)
    except TypeError as error:
        raise RefusalError(
            "ringside.fit takes the arguments of Model.fit, and `gradients`.", received=error
        ) from None
    bound.pop("self", None)
    given = {**bound, **bound.pop("kwargs", {})}
    given["x"], *parts = own_batches(given.get("x"))
    call = FitCall(model, given, gradients, *parts)
    check_not_horovods(*optimizers_of(model), *call.callbacks)
    if not optimizers_of(model):
        raise RefusalError(
            "A model must be compiled before fit.",
            received=f"{model.name} ({type(model).__name__}), which has no optimizer",
            advice="Write model.compile(…) within ringside.scope().",
        )
    if call.steps_per_epoch == 0:
        raise no_batch()
    if call.endless and call.steps_per_epoch is None:
        raise RefusalError(
            "An epoch of data without an end must have a number of steps.",
            received="a tf.data.Dataset that repeats without end",
            advice="Give steps_per_epoch=…, or leave repeat() out.",
        )
    for callback in call.callbacks:
        if isinstance(callback, tf.keras.callbacks.BackupAndRestore):
            raise RefusalError(
                "Ringside writes and reads the checkpoints of a training itself.",
                received="BackupAndRestore among the callbacks",
                advice="Leave it out. Under ringside launch, go on with --resume-from.",
            )
    return call


def no_batch() -> RefusalError:
    """Of data that have none."""
    return RefusalError(
        "A training needs a batch.",
        received="data of which no batch is left",
        advice="Look whether drop_remainder, filter or skip leaves nothing.",
    )
