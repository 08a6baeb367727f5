"""Comparison: arms, the order in which they ran, and every record. Statistics come later."""

from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from specs.arm import Arm
from specs.certificate import Certificate, DetectionMatrix
from specs.communication import Communication
from specs.errors import RefusalError
from specs.noun import Document, Noun, differences
from specs.record import MachineFacts, Outcome, RunRecord
from specs.run_spec import RunSpec


class NotRun(Noun):
    """An arm that was asked for and cannot run here, and why."""

    label: str
    reason: str


class Load(Noun):
    """What else the machine did during a run, on the processors that the run could use.

    Attributes:
        wall_s: length of the look.
        cores: processors that were looked at.
        others_cpu_s: CPU time of processes that do not belong to the run.
        steal_cpu_s: time for which the hypervisor gave a processor to somebody else.
        swapped_bytes: read from and written to swap, by the whole machine.
    """

    wall_s: PositiveFloat
    cores: PositiveInt
    others_cpu_s: NonNegativeFloat
    steal_cpu_s: NonNegativeFloat
    swapped_bytes: NonNegativeInt = 0


class Run(Noun):
    """One execution of one arm.

    Attributes:
        round: 0-based; one pass over all arms.
        position: 0-based place in the order in which runs were really started.
        spec: what was run.
        outcome: of the whole run; a process that died without a record is in it.
        wall_s: from the start of the first process to the end of the last.
        records: one for each process that wrote one.
        last_lines: the end of the output of the process that explains a failure.
        log_dir: where the output of every process is, relative to the comparison's folder.
        load: what else the machine did; None: nobody looked.
    """

    arm: str
    round: NonNegativeInt
    position: NonNegativeInt
    spec: RunSpec
    outcome: Outcome
    wall_s: NonNegativeFloat
    records: tuple[RunRecord, ...]
    log_dir: str
    last_lines: tuple[str, ...] = ()
    load: Load | None = None

    @model_validator(mode="after")
    def _records_are_of_this_run(self) -> Self:
        for index, record in enumerate(self.records):
            if record.spec != self.spec:
                theirs, own = (one.model_dump(mode="json") for one in (record.spec, self.spec))
                path, found, expected = next(differences(theirs, own))
                raise RefusalError(
                    "Each record of a run must be of the run's own spec.",
                    received=f"records.{index}.spec.{path}={found!r}, and the run has {expected!r}",
                )
        return self


class Rounds(Noun):
    """How many rounds an experiment makes.

    Attributes:
        least: undisturbed rounds that are made whatever they show.
        most: rounds after which it ends, disturbed ones included.
        precision: it ends when the 95 % interval of every ratio of interest is at most this wide,
            as a share of the ratio: 0.02 is ±1 %. None: only `most` and the budget end it.
        budget_s: no round is begun that would probably end later than so many seconds after the
            first one began. None: no budget.
    """

    least: PositiveInt = 3
    most: PositiveInt = 3
    precision: PositiveFloat | None = None
    budget_s: PositiveFloat | None = None


class Trial(Noun):
    """One setting that was tried for an arm before the experiment.

    Attributes:
        arm: the arm with that setting.
        tuned_from: label of the arm for which it was tried.
        run: what came of it; its position counts trials.
        chosen: whether it became the tuned arm.
    """

    arm: Arm
    tuned_from: str
    run: Run
    chosen: bool = False


class Comparison(Document):
    """Everything that a comparison saw; tables and plots are computed from it.

    Attributes:
        rounds: that were begun.
        base: what every arm trains; backend, topology, threads and batch are the arm's. None: from
            a file of before version 3.
        scaling: `strong`: the global batch is the same at every size. `weak`: each replica's is.
        asked: how many rounds were to be made.
        ended_because: why there were no more rounds, one sentence; empty: it was interrupted and
            can go on (`ringside compare --resume`).
        trials: of the search for settings (`--tuned`).
        communication: the newest measurement of collectives on this machine; None: there is none.
        certificates: one for each arm that was verified, by its label. An arm without one was never
            verified.
        detection: what the gate did with deliberate mistakes; None: it was not asked.
        verify: whether the arms were to be certified first.
        trials_each: of the search for settings, for each arm; 0: none was asked for.
        deadline_s: a run without progress for so long ended as hung.
        code_version: of Ringside's code that made it, as in a certificate; empty: not known.

    Schema history: 1 first version. 2 certificates and detection; files of version 1 are read as
    never verified. 3 rounds until a precision, load, twins, arms that explain, tuning,
    communication; older files are read as ended after their rounds.
    """

    SCHEMA_VERSION: ClassVar[int] = 3

    name: str
    created_unix_s: NonNegativeFloat
    command: str
    machine: MachineFacts
    seed: NonNegativeInt
    rounds: NonNegativeInt
    arms: tuple[Arm, ...]
    not_run: tuple[NotRun, ...] = ()
    runs: tuple[Run, ...] = Field(default=())
    certificates: tuple[Certificate, ...] = ()
    detection: DetectionMatrix | None = None
    base: RunSpec | None = None
    scaling: Literal["strong", "weak"] = "strong"
    asked: Rounds = Rounds()
    ended_because: str = ""
    trials: tuple[Trial, ...] = ()
    communication: Communication | None = None
    verify: bool = True
    trials_each: NonNegativeInt = 0
    deadline_s: PositiveFloat = 120.0
    code_version: str = ""

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        if version in (1, 2):
            rounds = body.get("rounds")
            body = {
                **body,
                "asked": {"least": rounds, "most": rounds},
                "ended_because": "All rounds that were asked for were made.",
            }
            version = 3
        return body, version
