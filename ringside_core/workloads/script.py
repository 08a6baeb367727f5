"""A user's script: run whole, or, to ask what its fit takes, up to one `ringside.fit`.

python -m ringside_core.workloads.script request.json answer.json

The request is {"script": "my_script.py --its flags", "fit": 1}. Fits before that one train nothing.

`ringside/script.py` has the functions that a script calls.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ringside_core.keras import number_names_anew, optimizers_of, tf, weights_of
from ringside_core.seeds import seed_script
from ringside_core.specs import RefusalError, write_whole
from ringside_core.text import plural
from ringside_core.users_errors import in_one_line
from ringside_core.workloads.registry import place_of, script_words, search_first


@dataclass
class _Probe:
    """A script that is run up to a fit, to see what that asks for.

    Attributes:
        skips: fits before it that are still to come; nothing is trained by them.
        skipped: how many of them it has reached.
    """

    skips: int
    skipped: int = 0


class _ReachedFitError(BaseException):
    """Ends a script at its fit; not an Exception, which scripts catch."""

    def __init__(self, call: Any) -> None:
        self.call = call


class ScriptIsOver(BaseException):
    """Ends a script after what is asked of it; not an Exception, which scripts catch."""


_probes: list[_Probe] = []


def probing() -> bool:
    """Whether a script is being run up to its fit only."""
    return bool(_probes)


def reached(call: Any) -> Any:
    """A probed script has reached a fit; a skipped one tells no numbers."""
    probe = _probes[-1]
    if not probe.skips:
        raise _ReachedFitError(call)
    probe.skips -= 1
    probe.skipped += 1
    return call.no_history()


def fit_of(script: str, number: int = 1) -> Any:
    """What a script asks of a fit (`trainers.fit_call.FitCall`); this process is good for no other.

    Args:
        script: it and its arguments.
        number: of the fit, from 1.

    Raises:
        RefusalError: it ends before.
    """
    probe = _Probe(skips=number - 1)
    _probes.append(probe)
    try:
        run(script)
    except _ReachedFitError as end:
        return end.call
    except SystemExit as end:
        raise _ended(Path(script_words(script)[0]), end, probe) from None
    except RefusalError:
        raise
    except Exception as error:
        path = script_words(script)[0]
        raise RefusalError(
            "A script must run up to its fit without an error.",
            received=f"{in_one_line(error)} ({place_of(error, path)})",
            advice=_OF_SKIPPED if probe.skipped else "",
        ) from error
    finally:
        _probes.pop()
    raise no_fit(script, fits=probe.skipped)


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
        advice="For a loop with a tape, write the update as @ringside.step, and call "
        "ringside.fit(step, …). If the script does call it, a bare `except:` may have caught how "
        "Ringside ends it there.",
    )


def run(script: str) -> None:
    """Run a script to its end, as Python would, but with seeds, which it may set itself."""
    path = Path(script_words(script)[0])
    code = compile(path.read_bytes(), str(path), "exec")
    seed_script()
    number_names_anew()  # an author's own name may be a number that counting on would reach
    with _as_main(path, script_words(script)) as module:
        exec(code, vars(module))


_OF_SKIPPED = (
    "The fits before that of -w fit train nothing: their History has no numbers, and their "
    "callbacks write no files."
)


def _ended(path: Path, end: SystemExit, probe: _Probe) -> RefusalError:
    """Of a script that ends itself before its fit."""
    told = _told_by_argparse(end)
    advice = "Its own flags stand behind --: my_script.py -- --its-flag 3."
    if probe.skipped:
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
    """A module that is the main one, as it is when Python runs this file."""
    module = ModuleType("__main__")
    module.__file__ = str(path.resolve())
    sys.modules[f"ringside_user_{path.stem}"] = module  # certificates name the files they are of
    search_first(path.resolve().parent)
    main, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = module, list(words)
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv = main, arguments


def _first_batch(call: Any) -> int:
    """Rows of a global batch, read where this process ends afterwards."""
    if call.global_batch is not None:
        return int(call.global_batch)
    return len(tf.nest.flatten(call.first_batch())[0])


def _asks(call: Any) -> dict[str, Any]:
    """What a fit asks for: its batch and epochs, which a run needs, and what `check` prints."""
    model = call.model
    return {
        "global_batch": _first_batch(call),
        "epochs": max(1, call.epochs),
        "updates": call.steps_per_epoch,
        "model": type(model).__name__,
        "parameters": sum(int(v.shape.num_elements()) for v in weights_of(model)),
        "optimizers": [type(one).__name__ for one in optimizers_of(model)],
        "callbacks": [type(one).__name__ for one in call.callbacks],
    }


if __name__ == "__main__":
    from ringside_core.workloads import script as _script  # this module runs as __main__

    _, _asked, _answers = sys.argv  # the script's own take their place
    try:
        _request = json.loads(Path(_asked).read_text(encoding="utf-8"))
        _call = _script.fit_of(_request["script"], _request["fit"])
    except RefusalError as error:
        _answer: dict[str, Any] = {"refused": str(error)}
    else:
        _answer = _asks(_call)
    write_whole(Path(_answers), json.dumps(_answer))
