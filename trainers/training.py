"""What a training is made of, and what it leaves behind."""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.specs import EpochRecord, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.evaluate import Evaluation
from trainers.train_step import Totals


@dataclass
class FitResult:
    """What `fit` saw; filled while it runs, so that a failure leaves what came before it.

    Attributes:
        initial_digest, final_digest: SHA-256 of all weights of this process, in order.
        first_step_done: `time.time()` after the first step.
        train_examples: training examples that there are, after the filter.
        replica_deviation, data_digest, clock_s_per_step, gradient_bytes: see RunRecord.
        fed: ids in each epoch, [steps, replicas, per_replica_batch], where the spec asks for the
            full list; -1 where padding was fed, -2 where nothing was.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    initial_digest: str = ""
    final_digest: str = ""
    first_step_done: float | None = None
    train_examples: int | None = None
    replica_deviation: float | None = None
    data_digest: str = ""
    clock_s_per_step: float | None = None
    gradient_bytes: int | None = None
    fed: list[NDArray[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """A training before its first step: what whoever watches it needs to look at.

    Attributes:
        model: compiled, with its initial weights.
        totals: what the training step adds up.
        evaluate: of the validation split.
        steps_per_epoch: updates, over all readers.
    """

    spec: RunSpec
    workload: Workload
    backend: Backend
    train: Pipeline
    validation: Pipeline
    steps_per_epoch: int
    model: Any
    totals: Totals
    evaluate: Evaluation
