"""What a program asks of its fit; this process runs it up to there, and ends.

python -m ringside.probe request.json answer.json

The request is {"workload": "my_script.py --its flags", "fit": 1, "options": {}, "data_dir": null,
"about": "fit"}; or about "stages": how long each part of its data takes; or about "speed": how fast
they are read.
Fits before that one train nothing.
"""

import argparse
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ringside import script
from ringside_core.keras import KERAS, optimizers_of, tf
from ringside_core.specs import RefusalError, write_whole
from ringside_core.users_errors import of_users
from ringside_core.workloads.registry import OWN, script_words
from ringside_core.workloads.script import no_fit
from trainers.data_stages import rows_per_second, stages
from trainers.fit import make_variables
from trainers.fit_call import FitCall
from trainers.reading import rows_of_arrays

SLOW_S = 10.0  # of a first batch: to read it again would cost as much


class _ReachedFitError(BaseException):
    """Ends a program at its fit; not an Exception, which scripts catch."""

    def __init__(self, call: FitCall) -> None:
        self.call = call


class _Probe:
    """A program that is run up to a fit, to see what that asks for."""

    def __init__(self) -> None:
        self.skips = self.skipped = 0  # fits before it, which train nothing
        self.sharded = False  # each process of a run reads a part of the data

    def reached(self, call: FitCall) -> Any:
        """The program has reached a fit; a skipped one tells no numbers."""
        if self.skipped == self.skips:
            raise _ReachedFitError(call)
        self.skipped += 1
        return call.no_history()


def fit_of(
    name: str,
    number: int = 1,
    options: dict[str, Any] | None = None,
    data_dir: str | None = None,
    probe: _Probe | None = None,
) -> FitCall:
    """What a program asks of a fit; this process is good for no other.

    Args:
        name: a script and its arguments, or a workload's function.
        number: of the fit, from 1.
        options: of the function.
        data_dir: where data sets are kept.
        probe: notes what the program does on its way.

    Raises:
        RefusalError: it ends before.
    """
    probe = script.probe = probe or _Probe()
    probe.skips = number - 1
    place = (*script_words(name)[:1], name.rpartition(":")[0])[0]
    try:
        script.run_program(name, options or {}, data_dir, epochs=OWN.epochs)
    except _ReachedFitError as end:
        return end.call
    except SystemExit as end:
        raise _ended(place, end, probe) from None
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(
            "A program must run up to its fit without an error.",
            received=of_users(error),
            advice=_OF_SKIPPED if probe.skipped else "",
        ) from error
    finally:
        script.probe = None
    raise no_fit(name, fits=probe.skipped)


_OF_SKIPPED = (
    "The fits before that of -w fit train nothing: their History has no numbers, and their "
    "callbacks write no files."
)


def _ended(path: str, end: SystemExit, probe: _Probe) -> RefusalError:
    """Of a script that ends itself before its fit."""
    wrong = _wrong_flag(end)
    advice = "Its own flags stand behind --: my_script.py -- --its-flag 3."
    if probe.skipped:
        advice += f" {_OF_SKIPPED}"
    return RefusalError(
        "A script must reach ringside.fit.",
        received=f"{path}, which ends with exit code {end.code}" + (f": {wrong}" if wrong else ""),
        advice=advice,
    )


def _wrong_flag(end: SystemExit) -> str:
    """What is wrong with a script's own flags; empty: something else has ended it."""
    for frame, _ in traceback.walk_tb(end.__traceback__):
        if (frame.f_code.co_filename, frame.f_code.co_name) == (argparse.__file__, "exit"):
            return str(frame.f_locals.get("message") or "").strip()
    return ""


def _first_batch(call: FitCall) -> int:
    """Rows of a global batch, read where this process ends afterwards."""
    if call.global_batch is not None:
        return int(call.global_batch)
    return len(tf.nest.flatten(call.first_batch())[0])


def _asks(call: FitCall) -> dict[str, Any]:
    """What a fit asks for: its batch and epochs, which a run needs, and what `check` prints."""
    model, rows = call.model, _first_batch(call)
    if not model.built:
        make_variables(call)
    return {
        "global_batch": rows,
        "epochs": max(1, call.last_epoch),
        "updates": call.steps_per_epoch,
        "model": type(model).__name__,
        "parameters": sum(int(v.shape.num_elements()) for v in KERAS.weights_of(model)),
        "optimizers": [type(one).__name__ for one in optimizers_of(model)],
        "callbacks": [type(one).__name__ for one in call.callbacks],
    }


def _speed(call: FitCall, *, sharded: bool) -> float | None:
    """Examples/s that one process reads; None: that would say nothing of a run."""
    x, began = call.arguments.get("x"), time.monotonic()
    if sharded or not isinstance(x, tf.data.Dataset):
        return None
    rows = _first_batch(call)
    slow = time.monotonic() - began > SLOW_S
    return None if slow else rows_per_second(x, rows)


def _stages(call: FitCall) -> list[dict[str, Any]]:
    """The parts of the training data, timed."""
    x = call.arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return stages(x)
    what = "arrays" if rows_of_arrays(call.arguments) is not None else "object"
    return [{"name": type(x).__name__, "kind": what, "seconds": 0.0, "draws": False}]


if __name__ == "__main__":
    _, _asked, _answers = sys.argv  # a script's own take their place
    _request = json.loads(Path(_asked).read_text(encoding="utf-8"))
    _way = _Probe()
    try:
        _call = fit_of(
            _request["workload"], _request["fit"], _request["options"], _request["data_dir"], _way
        )
        _answer: dict[str, Any]
        if _request["about"] == "stages":
            _answer = {"stages": _stages(_call), "global_batch": _call.global_batch}
        elif _request["about"] == "speed":
            _answer = {"input_examples_s": _speed(_call, sharded=_way.sharded)}
        else:
            _answer = _asks(_call)
    except RefusalError as error:
        _answer = {"refused": str(error)}
    write_whole(Path(_answers), json.dumps(_answer))
