"""The arguments of `ringside.fit`, which are those of `Model.fit`: checked, and made sources."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringside_core.keras import VERSION, compiled_by, has_own_test_step, optimizers_of, tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.dataset import REPEAT_TOLD
from ringside_core.workloads.source import (
    ArraySource,
    Source,
    StreamSource,
    as_source,
    check_dense,
    first_batches,
    going_on,
)
from ringside_core.workloads.step import Step
from ringside_core.workloads.weights import takes_inputs
from ringside_core.workloads.without_horovod import check_not_horovods

KERAS_BATCH = 32  # of `Model.fit`, for arrays


@dataclass(frozen=True)
class FitArguments:
    """What a script asks of `ringside.fit`: the arguments of `Model.fit`, checked.

    Attributes:
        model: compiled.
        train, validation: the data; validation None: there are none.
        global_batch: examples in one update.
        epochs: how many.
        first_epoch: number of the first one, for callbacks and the history.
        class_weight: as for `Model.fit`.
        callbacks: as for `Model.fit`.
        verbose: whether to print how the training goes.
    """

    model: Any
    train: Source
    validation: Any
    global_batch: int
    epochs: int
    first_epoch: int = 0
    class_weight: Any = None
    callbacks: tuple[Any, ...] = ()
    verbose: bool = True


def checked_arguments(
    model: Any,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int = 1,
    **performance: Any,
) -> FitArguments:
    """Check the arguments of `Model.fit`: model, x, y and so on, as Keras names them.

    `workers`, `max_queue_size` and `use_multiprocessing` have no effect: the input is Ringside's.

    Raises:
        RefusalError: what cannot be trained the same under every backend.
    """
    del validation_batch_size  # says how fast an evaluation is, and nothing else
    for name in performance:
        if name not in ("workers", "max_queue_size", "use_multiprocessing"):
            raise TypeError(f"ringside.fit() got an unexpected keyword argument {name!r}")
    optimizers = optimizers_of(model) if isinstance(model, tf.keras.Model) else []
    check_not_horovods(*optimizers, *_listed(callbacks))
    if validation_freq != 1:
        raise RefusalError(
            "Ringside evaluates after each epoch.",
            received=f"validation_freq={validation_freq}",
            advice="Leave it out.",
        )
    if isinstance(model, tf.keras.Model) and not optimizers:
        raise RefusalError(
            "A model must be compiled before fit.",
            received=f"{model.name} ({type(model).__name__}), which has no optimizer",
            advice="Write model.compile(…) within ringside.scope().",
        )
    if getattr(model, "_run_eagerly", None):
        raise RefusalError(
            "A distributed step is a graph.",
            received="run_eagerly=True",
            advice="Leave it out of compile.",
        )
    if batch_size is not None and batch_size < 1:
        raise RefusalError(
            "A batch holds an example at least.", received=f"batch_size={batch_size}"
        )
    if validation_split and validation_data is not None:
        raise RefusalError(
            "Validation data are given, or split off.",
            received="validation_data and validation_split",
            advice="Leave one of them out.",
        )
    if isinstance(x, tf.data.Dataset):
        _check_alone(x, y, sample_weight, batch_size, validation_split)
        train, validation = _of_dataset(x), None
        batch = train.batch_size
    elif isinstance(x, tf.keras.utils.Sequence):
        _check_alone(x, y, sample_weight, batch_size, validation_split)
        source, validation = as_source(x, what="training data"), None
        train = source if shuffle else replace(source, shuffled=False, said=source.said[:1])
        batch = len(tf.nest.flatten(x[0])[0])
    else:
        arrays = _arrays(x, y, sample_weight)
        arrays, validation = _divided(arrays, validation_split)
        source = as_source(arrays, what="training data")
        assert isinstance(source, ArraySource)
        train = ArraySource(source.arrays, shuffled=bool(shuffle))
        batch = batch_size or KERAS_BATCH
    if validation_data is not None:
        validation = _validation(validation_data)
    if isinstance(model, Step):
        model = model.model(lambda: next(iter(first_batches(train, None, batch))))
    of_inputs = isinstance(x, tf.data.Dataset) and takes_inputs(model, x.element_spec)
    if not of_inputs:
        _check_metrics(model, weighted=_is_weighted(x, sample_weight, class_weight, validation))
    if steps_per_epoch is not None:
        train = _in_epochs_of(steps_per_epoch, train, batch)
    if validation_steps is not None and validation is not None:
        held_out = as_source(validation, what="validation data")
        size = getattr(held_out, "batch_size", None) or batch
        wanted, kept = validation_steps * size, isinstance(held_out, ArraySource)
        # Of a data set that is shuffled, each evaluation would take others.
        if 0 < wanted < held_out.num_examples and (kept or not held_out.shuffled):
            validation = held_out.first(wanted)
        else:
            _check_validation_steps(validation_steps, held_out.num_examples, size)
    return FitArguments(
        model=model,
        train=train,
        validation=validation,
        global_batch=batch,
        epochs=max(0, epochs - initial_epoch),
        first_epoch=initial_epoch,
        class_weight=class_weight,
        callbacks=tuple(_listed(callbacks)),
        verbose=verbose not in (0, "0"),
    )


def _is_weighted(x: Any, sample_weight: Any, class_weight: Any, validation: Any) -> bool:
    def in_data(data: Any) -> bool:
        form = data.element_spec if isinstance(data, tf.data.Dataset) else data
        return isinstance(form, tuple) and len(form) == 3

    given = sample_weight is not None or class_weight is not None
    if isinstance(x, tf.keras.utils.Sequence):
        x = x[0]
        given = given or in_data(x)
    return given or in_data(validation) or (isinstance(x, tf.data.Dataset) and in_data(x))


def _check_metrics(model: Any, *, weighted: bool) -> None:
    """Refuse metrics of both kinds beside weights: those that count each example once, and not."""
    is_model = isinstance(model, tf.keras.Model) and optimizers_of(model)
    found = compiled_by(model) if weighted and is_model else {}
    own_test = has_own_test_step(model) if found else False
    if found.get("metrics") and own_test:
        raise RefusalError(
            "Metrics of weighted examples are weighted, in a test_step of one's own.",
            received="compile(metrics=…) beside sample_weight or class_weight",
            advice="Write compile(weighted_metrics=…).",
        )
    if found.get("metrics") and found.get("weighted_metrics"):
        raise RefusalError(
            "The metrics of weighted examples are all weighted, or none is.",
            received="compile(metrics=…, weighted_metrics=…) beside sample_weight or class_weight",
            advice="Leave one of them out.",
        )


def _listed(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, tf.keras.callbacks.Callback):
        return [callbacks]
    return list(getattr(callbacks, "callbacks", callbacks) or ())


def _check_alone(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, validation_split: float
) -> None:
    """Refuse what is for arrays beside data that come in batches."""
    kind = "tf.data.Dataset" if isinstance(x, tf.data.Dataset) else "keras.utils.Sequence"
    given = {"y": y, "sample_weight": sample_weight}
    if VERSION == 2:  # Keras 3 takes no notice of it
        given["batch_size"] = batch_size
    if beside := [name for name, value in given.items() if value is not None]:
        raise RefusalError(
            f"A {kind} brings its labels, weights and batches.",
            received=f"{' and '.join(beside)} beside it",
            advice="Leave it out." if len(beside) == 1 else "Leave them out.",
        )
    if validation_split:
        raise RefusalError(
            "validation_split is for arrays.", received=f"a {kind}", advice="Give validation_data."
        )


def _of_dataset(x: Any) -> Any:
    source: Any = as_source(x, what="training data")
    if source.batch_size is None:
        raise RefusalError(
            "A tf.data.Dataset for fit must be batched.",
            received="one without batch()",
            advice="Write dataset.batch(32): that is the global batch, under every backend.",
        )
    return source


def _arrays(x: Any, y: Any, sample_weight: Any) -> Any:
    """What Keras calls x, y and sample_weight as one nest."""
    if x is None:
        raise RefusalError("fit needs data.", received="x=None")
    given = [x, y, sample_weight]
    while given[-1] is None:
        given.pop()
    if given[1:] and y is None:
        raise RefusalError("Weights of examples need labels.", received="sample_weight without y")
    return tuple(map(_nest_of_arrays, given))


def _nest_of_arrays(given: Any) -> Any:
    """Arrays as Keras takes them; a list of numbers is one of them, a list of arrays several."""
    check_dense(given, what="data")
    if isinstance(given, dict):
        return {name: _nest_of_arrays(part) for name, part in given.items()}
    if isinstance(given, list | tuple) and any(hasattr(part, "shape") for part in given):
        return tuple(map(_nest_of_arrays, given))
    if isinstance(given, list | tuple) or hasattr(given, "__array__"):  # a pandas frame, too
        return np.asarray(given)
    raise RefusalError(
        "The data for fit must be arrays, a tf.data.Dataset or a keras.utils.Sequence.",
        received=type(given).__name__,
        advice="tf.data.Dataset.from_generator makes one of a generator.",
    )


def _divided(arrays: Any, share: float) -> tuple[Any, Any]:
    """Training and validation data as Keras divides them: the last ones are held out."""
    if not share:
        return arrays, None
    size = len(tf.nest.flatten(arrays)[0])
    kept = int(size * (1.0 - share))
    if not 0 < kept < size:
        raise RefusalError(
            "validation_split must leave examples on both sides.",
            received=f"validation_split={share} of {size} examples",
        )
    return (
        tf.nest.map_structure(lambda one: one[:kept], arrays),
        tf.nest.map_structure(lambda one: one[kept:], arrays),
    )


def _validation(given: Any) -> Any:
    """validation_data of `Model.fit`: (x, y), (x, y, sample_weight), or a data set."""
    if isinstance(given, tf.data.Dataset | tf.keras.utils.Sequence):
        return given
    parts = (*given, None, None)[:3] if isinstance(given, list | tuple) else (given, None, None)
    return _arrays(*parts)


def _in_epochs_of(steps: int, train: Source, batch: int) -> Source:
    """The data in epochs of so many updates.

    As in Keras, an epoch goes on where the last one ended if the data have no end. A pass over them
    is an epoch as it is without `steps_per_epoch`.

    Raises:
        RefusalError: the data end, and this is not one pass over them.
    """
    examples = train.num_examples
    endless = isinstance(train, StreamSource) and train.endless
    if steps * batch == examples:
        return train
    shortened = train.of_arrays and 0 < steps * batch < examples
    if _is_a_pass(steps, examples, batch) and not (endless or shortened):
        if steps * batch >= examples or train.drops_rest:
            return train
        note = f"steps_per_epoch={steps} leaves out the short last batch; it is trained on"
        return replace(train, said=(*train.said, note))
    if steps < 1 or not (endless or shortened):
        raise RefusalError(
            "An epoch is one pass over the data, unless they are repeated without end.",
            received=f"steps_per_epoch={steps}, and {examples} examples in batches of {batch}",
            advice="Write repeat() behind the shuffle() of a tf.data.Dataset, or leave out "
            "steps_per_epoch.",
        )
    said = tuple(one for one in train.said if one != REPEAT_TOLD)
    return going_on(replace(train, said=said), steps)


def _is_a_pass(steps: int, examples: int, batch: int) -> bool:
    """Whether so many batches are one pass over the data; a short last one may be left out."""
    return steps > 0 and steps in (examples // batch, -(-examples // batch))


def _check_validation_steps(steps: int, examples: int, batch: int) -> None:
    """Refuse an evaluation that is not one pass over the data."""
    if not _is_a_pass(steps, examples, batch):
        raise RefusalError(
            "An evaluation is one pass over the data.",
            received=f"validation_steps={steps}, and {examples} examples in batches of {batch}",
            advice="Leave validation_steps out, or leave out what shuffles the data.",
        )
