"""A user's script as a workload: run up to one `ringside.fit`, whose arguments it is.

python -m ringside_core.workloads.script request.json answer.json

The request is {"script": "my_script.py --its flags", "fit": 1}. Fits before that one train nothing.

`ringside/script.py` has the functions that a script calls, and runs one to its end.
"""

import argparse
import contextlib
import io
import json
import math
import random
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ringside_core.keras import (
    number_names_anew,
    optimizers_of,
    raw,
    same_chance,
    seed_script,
    seed_weights,
    tf,
    variables_of,
    weights_of,
)
from ringside_core.specs import RefusalError, write_whole
from ringside_core.text import plural
from ringside_core.users_errors import in_one_line
from ringside_core.workloads.fit_arguments import FitArguments
from ringside_core.workloads.registry import place_of, script_words, search_first
from ringside_core.workloads.workload import Workload, made_outside


def workload_from(asked: FitArguments, script: str, number: int = 0) -> Workload:
    """The workload of a fit.

    Args:
        asked: of the fit.
        script: it and its arguments, by which the model can be built once more; empty: there is
            none.
        number: of the fit in it, from 0.
    """
    again = _Again(script, asked, number)
    return Workload(
        name=Path(script_words(script)[0]).stem if script else asked.model.name,
        model=again,
        train=asked.train,
        validation=asked.validation,
        class_weight=asked.class_weight,
        callbacks=lambda: again.newest.callbacks,
        of_script=True,
    )


class _Again:
    """Builds the model of a script: the one that is there, and then each by another run of it."""

    def __init__(self, script: str, first: FitArguments, number: int) -> None:
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
                seed = random.randrange(2**31)  # the run has seeded Python's numbers
                self.newest = captured_fit(self._script, self._number, seed=seed)
        return self.newest.model


@dataclass
class _Capture:
    """A script that is run up to its fit.

    Attributes:
        seed: of the weights that it draws.
        skips: fits before the one that is asked for; nothing is trained by them.
        skipped: how many of them it has reached.
        scopes: that it is within.
        outside: variables that it has made outside of any, while a strategy's scope is open.
    """

    seed: int
    skips: int
    skipped: int = 0
    scopes: int = 0
    outside: list[Any] = field(default_factory=list)

    def noting(self, make: Any, **given: Any) -> Any:
        """Make a variable; see `tf.variable_creator_scope`."""
        made = make(**given)
        if not self.scopes:
            self.outside.append(made)
        return made


class _ReachedFitError(BaseException):
    """Ends a script at its fit; not an Exception, which scripts catch."""

    def __init__(self, asked: FitArguments) -> None:
        self.asked = asked


@dataclass
class _Running:
    """What of a script lasts longer than one run of it."""

    capture: _Capture | None = None
    registered: set[str] = field(default_factory=set)


_running = _Running()


def capturing() -> bool:
    """Whether a script is being run up to its fit only."""
    return _running.capture is not None


def begin_model() -> None:
    """A script that is being captured begins to build its model: its weights are the run's."""
    assert _running.capture is not None
    seed_weights(_running.capture.seed, also_if_seeded=True)


@contextmanager
def within_scope() -> Iterator[None]:
    """What is made in this block is made within a scope, where a script is being captured."""
    capture = _running.capture or _Capture(seed=0, skips=0)
    capture.scopes += 1
    try:
        yield
    finally:
        capture.scopes -= 1


def reached(asked: FitArguments) -> Any:
    """A script that is being captured has reached a fit; a skipped one tells no numbers.

    Raises:
        RefusalError: its model would not be the strategy's, if the script were run to its end.
    """
    capture = _running.capture
    assert capture is not None
    outside = {id(raw(one)) for one in capture.outside}
    with contextlib.suppress(ValueError):  # of a model that has no weights yet
        of_optimizers = [one for each in optimizers_of(asked.model) for one in variables_of(each)]
        for variable in [*weights_of(asked.model), *of_optimizers]:
            if id(raw(variable)) in outside:
                raise made_outside(variable.name)
    if not capture.skips:
        raise _ReachedFitError(asked)
    capture.skips -= 1
    capture.skipped += 1
    with contextlib.suppress(RefusalError), within_scope():  # it is not this fit that is asked for
        workload_from(asked, "").build_model()  # what follows may use weights that a fit makes
    return no_history(asked)


def no_history(asked: FitArguments) -> Any:
    """A History of epochs that were not trained: each metric is no number."""
    history = tf.keras.callbacks.History()
    history.set_model(asked.model)
    history.epoch = [asked.first_epoch + epoch for epoch in range(asked.epochs)]
    history.history = defaultdict(lambda: [math.nan] * asked.epochs) if asked.epochs else {}
    return history


def workload_of(script: str, fit: int = 1) -> Workload:
    """The workload that a script is.

    Args:
        script: it and its arguments, as a shell would read them.
        fit: which of its fits, from 1.

    Raises:
        RefusalError: it does not reach a fit that can be distributed.
    """
    return workload_from(captured_fit(script, fit - 1), script, fit - 1)


def captured_fit(script: str, number: int = 0, *, seed: int = 0) -> FitArguments:
    """Run a script up to a fit.

    Args:
        script: it and its arguments.
        number: of the fit, from 0.
        seed: of the weights, and of what TensorFlow draws after them; the same in every process.

    Raises:
        RefusalError: it ends before, or its fit cannot be distributed.
    """
    capture = _running.capture = _Capture(seed, skips=number)
    try:
        run(script)
    except _ReachedFitError as end:
        return end.asked
    finally:
        _running.capture = None
    raise no_fit(script, fits=number - capture.skips)


def no_fit(script: str, fits: int = 0) -> RefusalError:
    """Of a script that ends, and has trained nothing, or has fewer fits than were asked for."""
    if fits:
        return RefusalError(
            "A script must have the fit that is asked for.",
            received=f"{script_words(script)[0]}, which ends after {plural(fits, 'fit')}",
            advice=f"Use -w fit={fits} or less.",
        )
    return RefusalError(
        "A script must call ringside.fit(model, …) in the place of model.fit(…).",
        received=f"{script_words(script)[0]}, which ends without it",
        advice="For a loop of its own, write the update as @ringside.step, and call "
        "ringside.fit(step, …): a step is a graph, in which no Python is run at each batch. If the "
        "script does call it, a bare `except:` may have caught how Ringside ends it there.",
    )


def run(script: str) -> None:
    """Run a script to its end, as Python would, but with seeds, which it may set itself.

    Raises:
        RefusalError: an error within it, with the line.
    """
    path = Path(script_words(script)[0])
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        seed_script()
        number_names_anew()  # an author's own name may be a number that counting on would reach
        with _as_main(path, script_words(script)) as module, _noting_variables():
            exec(code, vars(module))
    except RefusalError:
        raise
    except SystemExit as end:
        if capturing():
            raise _ended(path, end) from None
        raise
    except Exception as error:
        if capturing():
            raise RefusalError(
                "A script must run up to its fit without an error.",
                received=f"{in_one_line(error)} ({place_of(error, str(path))})",
                advice=_OF_SKIPPED if _running.capture and _running.capture.skipped else "",
            ) from error
        raise


@contextmanager
def _noting_variables() -> Iterator[None]:
    """All of a script that is captured runs within the strategy's scope; run whole, it does not.

    Keras enters the scope of a model's own strategy where it compiles or evaluates it.
    """
    if _running.capture is None or not tf.distribute.has_strategy():
        yield
        return
    strategy = tf.distribute.get_strategy()
    upstream = strategy.scope

    @contextmanager
    def scope() -> Iterator[Any]:
        with upstream() as entered, within_scope():
            yield entered

    vars(strategy)["scope"] = scope
    try:
        with tf.variable_creator_scope(_running.capture.noting):
            yield
    finally:
        del vars(strategy)["scope"]


_OF_SKIPPED = (
    "The fits before that of -w fit train nothing: their History has no numbers, and their "
    "callbacks write no files."
)


def _ended(path: Path, end: SystemExit) -> RefusalError:
    """Of a script that ends itself before its fit."""
    assert _running.capture is not None
    told = _told_by_argparse(end)
    advice = "Its own flags stand behind --: my_script.py -- --its-flag 3."
    if _running.capture.skipped:
        advice += f" {_OF_SKIPPED}"
    return RefusalError(
        "A script must reach ringside.fit.",
        received=f"{path}, which ends with exit code {end.code}" + (f": {told}" if told else ""),
        advice=advice,
    )


def _told_by_argparse(end: SystemExit) -> str:
    """What is wrong with a script's own flags; empty: something else has ended it."""
    for frame, _ in traceback.walk_tb(end.__traceback__):
        if (frame.f_code.co_filename, frame.f_code.co_name) == (argparse.__file__, "exit"):
            return str(frame.f_locals.get("message") or "").strip()
    return ""


@contextmanager
def _as_main(path: Path, words: Sequence[str]) -> Iterator[ModuleType]:
    """A module in the place of the main one, as it is when Python runs this file."""
    module = ModuleType("__main__")
    module.__file__ = str(path.resolve())
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
    except _ReachedFitError:
        arguments = list(words)  # its model runs now, and may look at them in a step
        raise
    finally:
        sys.modules["__main__"], sys.argv = main, arguments
        _running.registered = set(custom) - known


if __name__ == "__main__":
    from ringside_core.workloads import script as _script  # this module runs as __main__

    _, _asks, _answers = sys.argv  # the script's own take their place
    try:
        _request = json.loads(Path(_asks).read_text(encoding="utf-8"))
        _asked = _script.captured_fit(_request["script"], _request["fit"] - 1)
    except RefusalError as error:
        _answer: dict[str, Any] = {"refused": str(error)}
    else:
        _answer = {"global_batch": _asked.global_batch, "epochs": _asked.epochs}
    write_whole(Path(_answers), json.dumps(_answer))
