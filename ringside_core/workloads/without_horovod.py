"""What a program written for Horovod must leave out: Ringside reduces, under every backend.

Left in, it would reduce twice under Horovod, and fail or do nothing under the others.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringside_core.keras import KERAS
from ringside_core.specs import RefusalError

_PACKAGE = "horovod"
_TENSORFLOW = "horovod.tensorflow"
_TAPE = "DistributedGradientTape"
# Operations that combine nothing.
_HARMLESS = ("size", "rank", "local_size", "local_rank", "process_set_included")


def check_not_horovods(*held: Any) -> None:
    """Refuse optimizers, layers and callbacks of a program that are of a class of Horovod's.

    Raises:
        RefusalError: see above.
    """
    found = [
        _named(one)
        for one in held
        if any(kind.__module__.partition(".")[0] == _PACKAGE for kind in type(one).__mro__)
    ]
    if found:
        raise _refused(", ".join(dict.fromkeys(found)))


@contextmanager
def without_reductions() -> Iterator[None]:
    """Refuse that an author's code, which runs within this block, reduces by Horovod.

    Nothing of Ringside's may reduce meanwhile.

    Raises:
        RefusalError: also if the author's code has caught it, or TensorFlow has changed it.
    """
    hvd = sys.modules.get(_TENSORFLOW)
    if hvd is None:
        yield
        return
    module: Any = hvd
    called: list[str] = []
    # A script may have taken functions out of the modules, so what lies below them is changed.
    tape, operations = module._DistributedGradientTape, module.mpi_ops
    begin, library = tape.__init__, operations.MPI_LIB

    def refuse(name: str) -> RefusalError:
        called.append(name)
        return _refused(f"hvd.{name} in a training step")

    def no_tape(*_: Any, **__: Any) -> None:
        raise refuse(_TAPE)

    tape.__init__, operations.MPI_LIB = no_tape, _Refusing(library, refuse)
    try:
        yield
    except Exception as error:
        name = called[0] if called else _function_of(error)
        if not name:
            raise
        raise refuse(name) from None
    finally:
        tape.__init__, operations.MPI_LIB = begin, library
    if called:
        raise refuse(called[0])


class _Refusing:
    """Stands for Horovod's library of operations."""

    def __init__(self, library: Any, refuse: Any) -> None:
        self._library, self._refuse = library, refuse

    def __getattr__(self, name: str) -> Any:
        own = name.removeprefix("horovod_")
        if own == name or own in _HARMLESS:
            return getattr(self._library, name)
        raise self._refuse(own)


def _named(one: Any) -> str:
    """Horovod gives the class of an optimizer the name of the one that it wraps."""
    name = type(one).__name__
    return f"{name} in hvd.DistributedOptimizer" if isinstance(one, KERAS.optimizers) else name


def _function_of(error: BaseException) -> str:
    """The function of Horovod's in which an error was raised, such as one before hvd.init."""
    folder = f"{Path(sys.modules[_PACKAGE].__file__ or '').parent}/"
    frames = traceback.extract_tb(error.__traceback__)
    traced = "allreduce" if folder in str(error) else ""  # AutoGraph keeps the text only
    return next((one.name for one in frames if one.filename.startswith(folder)), traced)


def _refused(received: str) -> RefusalError:
    return RefusalError(
        "Ringside combines the replicas itself, so a program must leave Horovod's reductions out.",
        received=received,
        advice="Delete hvd.DistributedOptimizer, hvd.DistributedGradientTape, hvd.callbacks and "
        'each hvd.allreduce: "Coming from Horovod" in docs/own-model.md says what replaces them.',
    )
