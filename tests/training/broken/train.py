"""Started in place of Ringside's train.py: the same, but it dies or misfeeds as it is told.

The options of the workload tell it (tests/training/momentum.py), so that every process knows.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import trainers.fit
from launch.task import end_process
from ringside_core.specs import RunSpec
from tests.training.misfed import feed_twice
from tests.training.momentum import once_done
from trainers.training import Training

real_fit = trainers.fit.fit


def death(training: Training, after: int) -> list[Any]:
    """Ends the last process without a word after so many updates of its life."""
    backend = training.backend
    last = backend.rank == backend.size - 1 or backend.role == "coordinator"
    return [once_done(after, lambda: os._exit(9))] if after and last else []


def broken_fit(spec: RunSpec, *rest: Any, **named: Any) -> None:
    """`fit` with what the options ask for."""
    after = int(spec.workload_options.get("dies_after", 0))
    if spec.workload_options.get("twice"):
        feed_twice()
    real_fit(spec, *rest, **named, watchers=lambda training: death(training, after))


trainers.fit.fit = broken_fit
found = importlib.util.spec_from_file_location(
    "real_train", Path(trainers.fit.__file__).parent.parent / "train.py"
)
assert found is not None
assert found.loader is not None
real_train = importlib.util.module_from_spec(found)
found.loader.exec_module(real_train)
end_process(real_train.main(sys.argv[1:]))
