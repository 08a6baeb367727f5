"""What a set of processes is asked to verify: a list of cases, run one after the other.

Starting processes takes seconds, a small training a fraction of one: so one start serves many.
"""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from ringside_core.specs import Document, Noun, RunSpec
from ringside_core.specs.run_spec import Precision

REQUEST = "request.json"
INSPECTION = "inspection.json"

DEFAULT_STEPS = 20
# In float32 a difference of rounding, harmless by itself, sooner or later flips a ReLU or the
# choice of a maximum, and then jumps: an early part of the training can be held to a narrow
# tolerance, a late one cannot. Four updates are two epochs, each a whole batch and a short one.
FLOAT32_STEPS = 4


class Case(Noun):
    """One training that is watched.

    Attributes:
        name: unique in its request; names the files of its traces.
        spec: what is trained; its backend and topology are those of the processes.
        steps: updates to watch. The data are cut so that they hold an epoch end and short last
            batches, and `spec.epochs` follows from that. None: all data, `spec.epochs`.
        watch: `steps`: everything after each update. `ends`: validation before and after only.
        mistake: a deliberate one, see ringside/verify/mistakes.py; empty: none.
        resumed: stop after the first epoch, and go on from its checkpoint with a new model.
        virtual_replicas: the serial backend computes as so many replicas would, where a layer
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
        cases: in this order.
        inspect: look at the model first for what cannot be certified; of these numbers of replicas.
        precision: of the run that is certified.

    Schema history: 1 first version.
    """

    cases: tuple[Case, ...]
    inspect: tuple[PositiveInt, ...] = ()
    precision: Precision = "float64"


def trace_file(run_dir: Path, case: str, task: str) -> Path:
    """Where a process writes what it saw of a case."""
    return run_dir / "traces" / case / f"{task}.npz"


def examples_to_watch(available: int, *, global_batch: int, steps: int) -> int:
    """How many examples to keep so that `steps` updates hold an epoch end and a short last batch.

    Half the steps make an epoch, and its last batch has a third of the others and one more: with
    two replicas or more, some get nothing of it, and one may get a part.
    """
    whole = max(0, steps // 2 - 1)
    return min(available, whole * global_batch + max(1, global_batch // 3 + 1))
