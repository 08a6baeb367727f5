"""The backend of one process of a run, started; a server serves at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from backends import make_backend
from backends.base import Backend
from backends.threads import inter_op_threads, intra_op_threads
from ringside_core.keras import tf
from ringside_core.specs import RunSpec, Surroundings


@contextmanager
def started(
    spec: RunSpec,
    surroundings: Surroundings,
    on_phase: Callable[[str], None],
    facts: dict[str, Any],
) -> Iterator[Backend | None]:
    """Threads and precision of the spec, and its backend; stopped at the end.

    Args:
        spec: of the run.
        surroundings: where this process stands in it.
        on_phase: called with `serving` by a server, which serves until its coordinator is gone.
        facts: `role` and `is_chief` are put in, for the record.

    Yields:
        The backend; None in a server, once it has served.
    """
    tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads(spec))
    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads(spec))
    tf.keras.backend.set_floatx(spec.precision)
    with make_backend(spec, surroundings) as backend:
        facts.update(role=backend.role, is_chief=backend.is_chief)
        if backend.role == "server":
            on_phase("serving")
            backend.serve()
            yield None
        else:
            yield backend
