"""Started in place of Ringside's train.py: the same, but it dies or misfeeds as it is told.

The options of the workload tell it (tests/training/momentum.py), so that every process knows.
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trainers.prepare
from backends.base import Backend
from launch.task import end_process
from ringside_core.specs import RecordInProgress
from ringside_core.workloads.workload import Workload
from tests.training.misfed import feed_twice
from tests.training.momentum import OnceDone
from trainers.driver import Driver, Listener

real_prepare = trainers.prepare.prepare


def death(backend: Backend, options: Mapping[str, Any]) -> list[Listener]:
    """Ends the last process without a word, or signals it, after so many updates of its life."""
    acts = {
        "dies_after": lambda: os._exit(9),
        "signalled_after": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    }
    last = backend.rank == backend.size - 1 or backend.role == "coordinator"
    return [OnceDone(int(options[n]), act) for n, act in acts.items() if last and options.get(n)]


def broken_prepare(
    record: RecordInProgress,
    workload: Workload,
    backend: Backend,
    *,
    listeners: Sequence[Listener] = (),
    **named: Any,
) -> Driver:
    """`prepare` with what the options ask for."""
    options = record.spec.workload_options
    if options.get("twice"):
        feed_twice()
    listeners = [*listeners, *death(backend, options)]
    return real_prepare(record, workload, backend, listeners=listeners, **named)


trainers.prepare.prepare = broken_prepare
found = importlib.util.spec_from_file_location(
    "real_train", Path(trainers.prepare.__file__).parent.parent / "train.py"
)
assert found is not None
assert found.loader is not None
real_train = importlib.util.module_from_spec(found)
found.loader.exec_module(real_train)
end_process(real_train.main(sys.argv[1:]))
