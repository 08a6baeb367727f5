"""Parity certificate: proof that an arm computes what the serial reference computes."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ringside_core.specs.arm import Arm
from ringside_core.specs.coverage import coverage
from ringside_core.specs.hostfile import Host
from ringside_core.specs.noun import Document, Noun, UnixSeconds
from ringside_core.specs.record import MachineFacts
from ringside_core.specs.run_spec import RunSpec

Kind = Literal["weights", "slots", "metrics", "evaluation", "predictions", "replicas"]


class Deviation(Noun):
    """The place where an arm differs most from the reference.

    Attributes:
        value: largest |arm - reference| of this array, divided by the largest |reference| of all
            arrays of its kind; None: not a number, missing, or of another shape.
        kind: what was compared. `replicas`: two replicas of the arm with each other.
        name: of the variable, metric or output.
        step: update after which it was seen, from 1; 0: before the first.
        task: process that saw it.
    """

    value: NonNegativeFloat | None
    kind: Kind
    name: str
    step: NonNegativeInt
    task: str

    def exceeds(self, tolerance: float) -> bool:
        """Whether it is too large; a value that is not a number always is."""
        return self.value is None or self.value > tolerance

    def __str__(self) -> str:
        missing = "not a number, missing, or of another shape"
        size = missing if self.value is None else f"{self.value:.1e}"
        return f"{size} in {self.kind} {self.name} after step {self.step} ({self.task})"


class Check(Noun):
    """One question that a certificate asks, and its answer.

    Attributes:
        name: such as `float64 parity`, `training ledger`, `each gradient once`.
        passed: the answer.
        finding: the answer in one sentence.
        covered: whether the answer says something of this arm; if not, the finding says why.
        tolerance: the largest deviation that passes; None: the check is not of this kind.
        worst: the largest deviation.
        by_step: the largest deviation of each kind after each step; it shows where two arms begin
            to differ.
        bits: in which the model computes, if they are fewer than 32.
        hidden: of single updates, how much of the largest one rounding hides; 1 is all of it.
    """

    name: str
    passed: bool
    finding: str
    covered: bool = True
    tolerance: NonNegativeFloat | None = None
    worst: Deviation | None = None
    by_step: tuple[Deviation, ...] = ()
    bits: PositiveInt | None = None
    hidden: NonNegativeFloat | None = None


class ByDesign(Noun):
    """What depends on the split of a batch, or on a random stream, and was allowed for.

    Attributes:
        layer: its name and type; of a training step or a loss, its name.
        differs: what differs between arms.
        treated: what was done so that the rest could be compared.
        split: it depends on how a batch is split, so the reference must split it the same way.
    """

    layer: str
    differs: str
    treated: str
    split: bool = False


class Certificate(Document):
    """The checks of one arm, and their results.

    Attributes:
        arm: as in a comparison.
        spec: the certified run; `steps` of its updates were verified.
        kind: `exact`: equal to plain Keras within rounding. `in turn`: asynchronous with several
            workers, equal where each update waits for the one before; as it is timed, counted.
        steps: updates that were compared, in float64 if the model can run so.
        every: after each update one in so many elements was compared; 1: all, as of models with up
            to 500,000.
        code_version: digest of Ringside's own code.
        sources: SHA-256 of each file of the user's own code, by path.
        machine: where the checks ran; the first one of several hosts.
        orders: SHA-256 of what libraries are given from outside on the machine that launched, by
            name: environment variables, configuration files, the set of installed packages.
        hosts: over which the replicas were spread, with their slots; empty: one machine.
        launcher: as the user asked; auto: the one that the backend joins.
        checks: all checks that were made.
        by_design: known differences that were allowed for.
        obstacle: why the arm cannot be certified at all; empty: it can.
        folder: where the logs are, and the traces if any of the arms did not pass.
        not_in_float64: why the model cannot run so, and everything was compared in float32; empty:
            it can.
        on_gpus: whether TensorFlow saw a GPU. Then it was verified without TensorFloat-32.
        amplifies: whether the program amplifies rounding in float64, which is then allowed for.
    """

    SCHEMA_VERSION: ClassVar[int] = 3

    arm: Arm
    spec: RunSpec
    kind: Literal["exact", "in turn"]
    steps: PositiveInt
    every: PositiveInt = 1
    code_version: str
    sources: dict[str, str] = Field(default_factory=dict)
    machine: MachineFacts
    orders: dict[str, str] = Field(default_factory=dict)
    hosts: tuple[Host, ...] = ()
    launcher: str = "auto"
    created_unix_s: UnixSeconds
    checks: tuple[Check, ...] = ()
    by_design: tuple[ByDesign, ...] = ()
    obstacle: str = ""
    folder: str = ""
    not_in_float64: str = ""
    on_gpus: bool = False
    amplifies: bool = False

    @property
    def passed(self) -> bool:
        """Whether the arm may be compared with others."""
        return not self.obstacle and bool(self.checks) and all(c.passed for c in self.checks)

    @property
    def reason(self) -> str:
        """Why it did not pass, in one sentence; empty if it did."""
        if self.passed:
            return ""
        failed = next((check for check in self.checks if not check.passed), None)
        if self.obstacle or failed is None:
            return self.obstacle or "nothing was checked"
        return f"{failed.name}: {failed.finding}"

    @property
    def coverage(self) -> str:
        """What it covers and what it does not, in one line; empty if it did not pass."""
        return coverage(self) if self.passed else ""

    @property
    def splitting(self) -> tuple[str, ...]:
        """What gives something else when a batch is split, and was allowed for."""
        return tuple(sorted({one.layer for one in self.by_design if one.split}))
