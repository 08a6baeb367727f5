"""The request to a set of processes: a list of cases, which they run one after the other.

Starting processes takes seconds, and a small training a fraction of a second. So one start serves
many cases.
"""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from ringside_core.specs import Document, Noun, RunSpec
from ringside_core.specs.run_spec import Precision

REQUEST = "request.json"
INSPECTION = "inspection.json"

DEFAULT_STEPS = 20
# In float32 a difference of rounding is harmless by itself. But sooner or later it flips a ReLU or
# the choice of a maximum, and then it jumps. So only the beginning of a training can be held to a
# narrow tolerance. Four updates are two epochs, each with a whole batch and a short one.
FLOAT32_STEPS = 4


class Case(Noun):
    """One training that is watched.

    Attributes:
        name: unique in its request; its traces are in files of this name.
        spec: what is trained; its backend and topology are those of the processes.
        steps: updates to watch. The data are cut so that the updates hold an epoch end and short
            last batches; the number of epochs follows. None: all data and `spec.epochs`.
        watch: `steps`: everything after each update. `ends`: validation before and after only.
        mistake: a deliberate one, see ringside/verify/mistakes.py; empty: none.
        resumed: stop after the first epoch, and continue from its checkpoint with a new model.
        virtual_replicas: the serial backend computes as this number of replicas would, if a layer
            depends on how the batch is split.
    """

    name: str
    spec: RunSpec
    steps: PositiveInt | None = DEFAULT_STEPS
    watch: Literal["steps", "ends"] = "steps"
    mistake: str = ""
    resumed: bool = False
    virtual_replicas: PositiveInt = 1


class Request(Document):
    """What one set of processes does.

    Attributes:
        cases: run in this order.
        inspect: numbers of replicas; first find out what of the model cannot be certified for them.
        precision: of the certified run.

    Schema history: 1 first version.
    """

    cases: tuple[Case, ...]
    inspect: tuple[PositiveInt, ...] = ()
    precision: Precision = "float64"


def trace_file(run_dir: Path, case: str, task: str) -> Path:
    """The file into which a process writes its trace of a case."""
    return run_dir / "traces" / case / f"{task}.npz"


def examples_to_watch(available: int, *, global_batch: int, steps: int) -> int:
    """How many examples to keep so that `steps` updates hold an epoch end and a short last batch.

    Half of the steps make an epoch. The last batch of an epoch has a third of a whole batch and one
    example more. So with two replicas or more, some get nothing of it, and one may get a part.
    """
    whole = max(0, steps // 2 - 1)
    return min(available, whole * global_batch + max(1, global_batch // 3 + 1))
