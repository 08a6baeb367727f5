"""The request to a set of processes: a list of cases, which they run one after the other.

Starting processes takes seconds, and a small training a fraction of a second. So one start serves
many cases.
"""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from ringside_core.specs import Document, Noun, RunSpec
from ringside_core.specs.run_spec import Precision

REQUEST = "request.json"
INSPECTION = "inspection.json"
CASES = "cases"
TRACES = "traces"
STATES = "states"
PLAIN = "plain-keras.npz"

DEFAULT_STEPS, FEWEST_STEPS = 20, 4


class Case(Noun):
    """One training that is watched.

    Attributes:
        name: unique in its request; its traces are in files of this name.
        spec: what is trained; its backend and topology are those of the processes.
        steps: updates to watch. The data are cut so that the updates hold two epoch ends with short
            last batches; the number of epochs follows. None: all data and `spec.epochs`.
        tail: examples of the last batch of each epoch, in the cut data; None: as many as the last
            batch of all data has, or about a third of a batch where that one is whole.
        watch: `steps`: everything after each update. `last`: everything after the last update.
            `ends`: validation before and after only. `draws`: nothing is trained; what each replica
            draws first in each random layer, untied.
        resumed: stop after the first epoch, and continue from its checkpoint with a new model. Both
            parts are watched after each update.
        virtual_replicas: the serial backend computes as this number of replicas would, if a layer
            depends on how the batch is split.
        keep_states: also write the whole state before each update (`states_folder`), of large
            models for fewer updates.
        states: folder with such states; each update begins from them. Empty: from the update before
            it.
        plain: let plain Keras repeat the training; its trace is in PLAIN in the case's folder.
        updates_per_batch: the serial backend makes so many updates of each global batch, each from
            one slice, as so many asynchronous workers would if none ever waited.
        moved: begin with each trained weight moved to a neighbouring number; with `states`, each
            update. It shows what rounding does, where that matters.
    """

    name: str
    spec: RunSpec
    steps: PositiveInt | None = DEFAULT_STEPS
    tail: PositiveInt | None = None
    watch: Literal["steps", "last", "ends", "draws"] = "steps"
    resumed: bool = False
    virtual_replicas: PositiveInt = 1
    keep_states: bool = False
    states: str = ""
    plain: bool = False
    updates_per_batch: PositiveInt = 1
    moved: bool = False


class Request(Document):
    """What one set of processes does.

    Attributes:
        cases: run in this order.
        inspect: numbers of replicas; first find out what of the model cannot be certified for them.
        precision: of the certified run.
        look: seed of the places at which the fed elements are looked at; None: they are not.

    Schema history: 1 first version.
    """

    cases: tuple[Case, ...]
    inspect: tuple[PositiveInt, ...] = ()
    precision: Precision = "float64"
    look: NonNegativeInt | None = None


def trace_file(run_dir: Path, case: str, task: str) -> Path:
    """The file into which a process writes its trace of a case."""
    return run_dir / TRACES / case / f"{task}.npz"


def case_folder(run_dir: Path, case: str) -> Path:
    """The folder of a case's training."""
    return run_dir / CASES / case


def states_folder(run_dir: Path, case: str) -> Path:
    """Where a case keeps its states."""
    return case_folder(run_dir, case) / STATES


def looked_file(run_dir: Path, task: str) -> Path:
    """The file into which a process writes what it found at the places of `Request.look`."""
    return run_dir / "looked" / f"{task}.json"


# Where the last batch of an epoch ends: what is part-filled, whole or empty in it, and for whom, is
# where distributed training goes wrong. So each case has a short batch of another kind.


def part_filled_tail(global_batch: int, most_replicas: int) -> int:
    """Examples of a last batch that fills the last replica's slice in part, at each size.

    About half of the smallest slice is filled. The number is odd where that can be; slices of one
    example cannot be part-filled.

    Args:
        global_batch: of the run.
        most_replicas: among all sizes that are certified together.
    """
    smallest = global_batch // most_replicas
    half = global_batch - max(1, smallest // 2)
    near = (half, half + 1, half - 1)
    fitting = (n for n in near if n % 2 and global_batch - smallest < n < global_batch)
    return next(fitting, max(1, half))


def low_tail(global_batch: int) -> int:
    """Examples of a last batch below half a batch, odd where that can be: a third, and one more."""
    third = global_batch // 3 + 1
    return third + 1 if third % 2 == 0 and 2 * (third + 1) < global_batch else third


def examples_to_watch(
    available: int, *, global_batch: int, steps: int, tail: int | None = None
) -> int:
    """How many examples to keep so that `steps` updates hold an epoch end and a short last batch.

    Half of the steps make an epoch, fewer if there are not so many examples.

    Args:
        available: examples that there are.
        global_batch: of the run.
        steps: updates to watch.
        tail: examples of the last batch; None: see Case.
    """
    last = tail or available % global_batch or low_tail(global_batch)
    whole = min(max(0, steps // 2 - 1), max(0, available - last) // global_batch)
    return min(available, whole * global_batch + last)
