"""A user's script as a workload: run up to its first `ringside.fit`, whose arguments it is.

python -m ringside_core.workloads.script "my_script.py --its flags" answer.json

`ringside/script.py` has the functions that a script calls, and runs one to its end.
"""

import contextlib
import io
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ringside_core.keras import optimizers_of, same_chance, tf
from ringside_core.specs import RefusalError, write_whole
from ringside_core.workloads.registry import place_of, script_words, search_first
from ringside_core.workloads.source import ArraySource, Source, as_source
from ringside_core.workloads.step import Step
from ringside_core.workloads.workload import Workload

KERAS_BATCH = 32  # of `Model.fit`, for arrays


@dataclass(frozen=True)
class Asked:
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

    def workload(self, script: str, number: int = 0) -> Workload:
        """The workload.

        Args:
            script: it and its arguments, by which the model can be built once more.
            number: of the fit in it, from 0.
        """
        again = _Again(script, self, number)
        return Workload(
            name=Path(script_words(script)[0]).stem if script else self.model.name,
            model=again,
            train=self.train,
            validation=self.validation,
            class_weight=self.class_weight,
            callbacks=lambda: again.newest.callbacks,
        )


class _Again:
    """Builds the model of a script: the one that is there, and then each by another run of it."""

    def __init__(self, script: str, first: Asked, number: int) -> None:
        self.newest = first
        self._script, self._number, self._calls = script, number, 0

    def __call__(self) -> Any:
        self._calls += 1
        if self._calls > 1:
            if not self._script:
                raise RefusalError(
                    "A model with steps of its own must be built by a script: Ringside tries them "
                    "on a second model.",
                    received="ringside.fit without a script, in a notebook or an interpreter",
                    advice="Write the program into a file.",
                )
            # What it prints was printed the first time.
            with contextlib.redirect_stdout(io.StringIO()), same_chance():
                self.newest = asked_by(self._script, self._number)
        return self.newest.model


@dataclass
class _Capture:
    """A script that is run up to its fit.

    Attributes:
        seed: of the weights that it draws.
        skips: fits before the one that is asked for; nothing is trained by them.
    """

    seed: int
    skips: int


class _ReachedFitError(BaseException):
    """Ends a script at its fit; not an Exception, which scripts catch."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked


@dataclass
class _Running:
    """What of a script lasts longer than one run of it."""

    capture: _Capture | None = None
    modules: list[ModuleType] = field(default_factory=list)  # the functions of a script need them
    registered: set[str] = field(default_factory=set)


_running = _Running()


def capturing() -> bool:
    """Whether a script is being run up to its fit only."""
    return _running.capture is not None


def begin_model() -> None:
    """A script that is being captured begins to build its model: its weights are the run's."""
    assert _running.capture is not None
    tf.keras.utils.set_random_seed(_running.capture.seed)


def reached(asked: Asked) -> Any:
    """A script that is being captured has reached a fit; a skipped one tells no numbers."""
    capture = _running.capture
    assert capture is not None
    if not capture.skips:
        raise _ReachedFitError(asked)
    capture.skips -= 1
    return no_history(asked)


def no_history(asked: Asked) -> Any:
    """A History of epochs that were not trained: each metric is no number."""
    history = tf.keras.callbacks.History()
    history.set_model(asked.model)
    history.epoch = [asked.first_epoch + epoch for epoch in range(asked.epochs)]
    history.history = defaultdict(lambda: [math.nan] * asked.epochs) if asked.epochs else {}
    return history


def workload_of(script: str) -> Workload:
    """The workload that a script is.

    Args:
        script: it and its arguments, as a shell would read them.

    Raises:
        RefusalError: it does not reach a fit that can be distributed.
    """
    return asked_by(script).workload(script)


def asked_by(script: str, number: int = 0) -> Asked:
    """Run a script up to a fit.

    Args:
        script: it and its arguments.
        number: of the fit, from 0.

    Raises:
        RefusalError: it ends before, or its fit cannot be distributed.
    """
    _running.capture = _Capture(seed=random.randrange(2**31), skips=number)
    try:
        run(script)
    except _ReachedFitError as end:
        return end.asked
    finally:
        _running.capture = None
    raise no_fit(script)


def no_fit(script: str) -> RefusalError:
    """Of a script that ends, and has trained nothing."""
    return RefusalError(
        "A script must call ringside.fit(model, …) in the place of model.fit(…).",
        received=f"{script_words(script)[0]}, which ends without it",
        advice="Where it does, a bare `except:` may catch how Ringside leaves it.",
    )


def run(script: str) -> None:
    """Run a script to its end, as Python would.

    Raises:
        RefusalError: an error within it, with the line.
    """
    path = Path(script_words(script)[0])
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        with _as_main(path, script_words(script)) as module:
            exec(code, vars(module))
    except RefusalError:
        raise
    except SystemExit as end:
        if capturing():
            raise RefusalError(
                "A script must reach ringside.fit.",
                received=f"{path}, which ends with exit code {end.code}",
                advice="Its own flags stand behind --: my_script.py -- --its-flag 3",
            ) from None
        raise
    except Exception as error:
        if capturing():
            raise RefusalError(
                "A script must run up to its fit without an error.",
                received=f"{type(error).__name__}: {error} ({place_of(error, str(path))})",
            ) from error
        raise


@contextmanager
def _as_main(path: Path, words: Sequence[str]) -> Iterator[ModuleType]:
    """A module in the place of the main one, as it is when Python runs this file."""
    module = ModuleType("__main__")
    module.__file__ = str(path.resolve())
    _running.modules.append(module)
    sys.modules[f"ringside_user_{path.stem}"] = module  # certificates name the files they are of
    search_first(path.resolve().parent)
    custom = tf.keras.utils.get_custom_objects()
    for name in _running.registered:  # a second run registers its classes again
        custom.pop(name, None)
    known = set(custom)
    main, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = module, list(words)
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv = main, arguments
        _running.registered = set(custom) - known


def asked_of(
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
) -> Asked:
    """Check the arguments of `Model.fit`: model, x, y and so on, as Keras names them.

    `workers`, `max_queue_size` and `use_multiprocessing` have no effect: the input is Ringside's.

    Raises:
        RefusalError: what cannot be trained the same under every backend.
    """
    if isinstance(model, Step):
        model = model.model()
    del validation_batch_size  # says how fast an evaluation is, and nothing else
    for name in performance:
        if name not in ("workers", "max_queue_size", "use_multiprocessing"):
            raise TypeError(f"ringside.fit() got an unexpected keyword argument {name!r}")
    if validation_freq != 1:
        raise RefusalError(
            "Ringside evaluates after each epoch.",
            received=f"validation_freq={validation_freq}",
            advice="Leave it out.",
        )
    if isinstance(model, tf.keras.Model) and not optimizers_of(model):
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
        train, validation = _of_dataset(x, y, sample_weight, batch_size), None
        if validation_split:
            raise RefusalError(
                "validation_split is for arrays.",
                received="a tf.data.Dataset",
                advice="Give validation_data.",
            )
        batch = train.batch_size
    else:
        arrays = _arrays(x, y, sample_weight)
        arrays, validation = _divided(arrays, validation_split)
        source = as_source(arrays, what="training data")
        assert isinstance(source, ArraySource)
        train = ArraySource(source.arrays, shuffled=bool(shuffle))
        batch = batch_size or KERAS_BATCH
    if validation_data is not None:
        validation = _validation(validation_data)
    _check_metrics(model, weighted=_is_weighted(x, sample_weight, class_weight))
    _check_steps(steps_per_epoch, train.num_examples, batch, what="steps_per_epoch")
    if steps_per_epoch is not None and steps_per_epoch * batch < train.num_examples:
        note = f"of steps_per_epoch={steps_per_epoch} the short last batch is trained on too"
        train = replace(train, said=(*train.said, note))
    if validation_steps is not None and validation is not None:
        held_out = as_source(validation, what="validation data")
        size = getattr(held_out, "batch_size", None) or batch
        _check_steps(validation_steps, held_out.num_examples, size, what="validation_steps")
    return Asked(
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


def _is_weighted(x: Any, sample_weight: Any, class_weight: Any) -> bool:
    form = x.element_spec if isinstance(x, tf.data.Dataset) else ()
    in_data = isinstance(form, tuple) and len(form) == 3
    return in_data or sample_weight is not None or class_weight is not None


def _check_metrics(model: Any, *, weighted: bool) -> None:
    """Refuse metrics that count each example once, beside weights: all are weighted."""
    compiled = getattr(model, "compiled_metrics", None)
    if weighted and compiled is not None and compiled._user_metrics:
        raise RefusalError(
            "Metrics of weighted examples are weighted, under every backend.",
            received="compile(metrics=…) beside sample_weight or class_weight",
            advice="Write compile(weighted_metrics=…).",
        )


def _listed(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, tf.keras.callbacks.Callback):
        return [callbacks]
    return list(getattr(callbacks, "callbacks", callbacks) or ())


def _of_dataset(x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> Any:
    if y is not None or sample_weight is not None or batch_size is not None:
        raise RefusalError(
            "A tf.data.Dataset brings its labels, weights and batches.",
            received="y, sample_weight or batch_size beside it",
            advice="Leave them out.",
        )
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
    if isinstance(given, dict):
        return {name: _nest_of_arrays(part) for name, part in given.items()}
    if isinstance(given, list | tuple) and any(hasattr(part, "shape") for part in given):
        return tuple(map(_nest_of_arrays, given))
    if isinstance(given, list | tuple) or hasattr(given, "__array__"):  # a pandas frame, too
        return np.asarray(given)
    raise RefusalError(
        "The data for fit must be arrays or a tf.data.Dataset.",
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
    if isinstance(given, tf.data.Dataset):
        return given
    parts = (*given, None, None)[:3] if isinstance(given, list | tuple) else (given, None, None)
    return _arrays(*parts)


def _check_steps(steps: int | None, examples: int, batch: int, *, what: str) -> None:
    """Refuse an epoch that is not one pass over the data; a short last batch may be left out."""
    if steps is None or steps in (examples // batch, -(-examples // batch)):
        return
    raise RefusalError(
        "An epoch is one pass over the data.",
        received=f"{what}={steps}, and {examples} examples in batches of {batch}",
        advice=f"Leave out {what}, or cut the data: dataset.take({steps}) behind its batch().",
    )


if __name__ == "__main__":
    from ringside_core.workloads import script as _script  # this module runs as __main__

    try:
        _asked = _script.asked_by(sys.argv[1])
    except RefusalError as error:
        _answer: dict[str, Any] = {"refused": str(error)}
    else:
        _answer = {"global_batch": _asked.global_batch, "epochs": _asked.epochs}
    write_whole(Path(sys.argv[2]), json.dumps(_answer))
