"""The document of a prediction: step times at other sizes, and how they were computed."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Document, Noun, UnixSeconds


class PredictedStep(Noun):
    """One update at one size.

    Attributes:
        global_batch: examples in the update, over all replicas.
        step_ms: of a global batch.
        low_ms, high_ms: ends of a 95 % interval; None: there is none.
    """

    replicas: PositiveInt
    hosts: PositiveInt
    global_batch: PositiveInt
    step_ms: PositiveFloat
    low_ms: PositiveFloat | None = None
    high_ms: PositiveFloat | None = None

    @model_validator(mode="after")
    def _lies_within_its_interval(self) -> Self:
        if (self.low_ms is None) != (self.high_ms is None):
            raise RefusalError("An interval has two ends.", received=(self.low_ms, self.high_ms))
        low, high = self.low_ms or self.step_ms, self.high_ms or self.step_ms
        if not low <= self.step_ms <= high:
            raise RefusalError(
                "A predicted step must lie within its interval.",
                received=f"{self.step_ms} in [{low}, {high}]",
            )
        return self

    @property
    def throughput_examples_s(self) -> float:
        """Examples of all replicas together in one second."""
        return 1000 * self.global_batch / self.step_ms


class StackPrediction(Noun):
    """One stack at every size that was asked for.

    Attributes:
        label: the group of its arms in the comparison: the label without size.
        stack: as timed by `ringside allreduce`; empty: not needed (parameter servers).
        algorithm: how the all-reduce grows with the ranks; `open_mpi`: by the algorithm that Open
            MPI chooses for each size; `served`: parameter servers.
        gradient_bytes: of one gradient as it is sent.
        alone_ms: the measured step at one replica; the base of the efficiency.
        alone_batch: examples in that step.
        two_ms: the measured step at two replicas.
        two_batch: examples in that step.
        compute_ms: of one replica's part of the step at two.
        pair_ms: all-reduce of the gradient by itself, among two, on the measured link.
        rest_ms: two − compute − pair. Above 0: time of neither of them. Below 0: communication that
            is hidden behind computing.
        waiting_ms: the part of rest_ms that is waiting for the slower replica; 0 if there is none.
        reason: why there is no interval; empty: there is one.
    """

    label: str
    stack: str
    algorithm: Literal["ring", "halving", "doubling", "open_mpi", "served"]
    gradient_bytes: PositiveInt
    alone_ms: PositiveFloat
    alone_batch: PositiveInt
    two_ms: PositiveFloat
    two_batch: PositiveInt
    compute_ms: PositiveFloat
    pair_ms: NonNegativeFloat
    rest_ms: float
    waiting_ms: NonNegativeFloat
    steps: tuple[PredictedStep, ...] = Field(min_length=1)
    reason: str = ""

    def efficiency(self, step: PredictedStep, step_ms: float | None = None) -> float:
        """Scaling efficiency against one replica of the same stack.

        Throughput of each replica ÷ that of the one: (B(N) ÷ T(N) ÷ N) ÷ (B(1) ÷ T(1)).

        Args:
            step: of this stack.
            step_ms: T(N), for example an end of the interval; None: the predicted step.
        """
        each = step.global_batch / step.replicas / (step_ms or step.step_ms)
        return each * self.alone_ms / self.alone_batch


class Checked(Noun):
    """A predicted step and the same step as measured.

    Attributes:
        measured_ms: mean over the rounds that count.
    """

    label: str
    predicted: PredictedStep
    measured_ms: PositiveFloat
    rounds: PositiveInt

    @property
    def error(self) -> float:
        """(predicted − measured) ÷ measured; 0.05 is 5 % too slow."""
        return self.predicted.step_ms / self.measured_ms - 1

    @property
    def within(self) -> bool | None:
        """Whether the measured step lies in the interval; None: there is no interval."""
        low, high = self.predicted.low_ms, self.predicted.high_ms
        return None if low is None or high is None else low <= self.measured_ms <= high


class Prediction(Document):
    """Every stack of a comparison at other sizes, and perhaps on another link.

    Attributes:
        comparison, communication: SHA-256 of the documents that it was computed from; the second is
            empty if it was not needed.
        workload: what is trained.
        scaling: `strong`: the global batch stays the same. `weak`: each replica's part does.
        replicas_per_host: at all sizes.
        measured_bits_per_s: what the link of the measurements carried; None: the runs were on one
            machine, or nobody measured the link.
        bits_per_s: of the link of the prediction; None: the measured link.
        not_predicted: stacks of the comparison, or sizes of a stack, that are left out, and why.
        notes: what is not certain.
        checks: empty: nothing was checked.

    Schema history: 1 first version; 2 waiting_ms: before, all of a positive rest_ms was waiting.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    created_unix_s: UnixSeconds
    command: str
    comparison: str
    communication: str = ""
    workload: str
    scaling: Literal["strong", "weak"]
    replicas_per_host: PositiveInt
    measured_bits_per_s: PositiveFloat | None = None
    bits_per_s: PositiveFloat | None = None
    stacks: tuple[StackPrediction, ...] = Field(min_length=1)
    not_predicted: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    checks: tuple[Checked, ...] = ()

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        if version == 1:
            stacks = [_with_waiting(one) for one in body.get("stacks", ())]
            body, version = {**body, "stacks": stacks}, 2
        return body, version


def _with_waiting(stack: dict[str, Any]) -> dict[str, Any]:
    served = stack.get("algorithm") == "served"
    return {**stack, "waiting_ms": 0.0 if served else max(0.0, stack.get("rest_ms", 0.0))}
