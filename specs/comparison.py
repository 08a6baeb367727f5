"""Comparison: arms, the order in which they ran, and every record. Statistics come later."""

from typing import Any, ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from specs.arm import Arm
from specs.certificate import Certificate, DetectionMatrix
from specs.noun import Document, Noun
from specs.record import MachineFacts, Outcome, RunRecord
from specs.run_spec import RunSpec


class NotRun(Noun):
    """An arm that was asked for and cannot run here, and why."""

    label: str
    reason: str


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


class Comparison(Document):
    """Everything that a comparison saw; tables and plots are computed from it.

    Attributes:
        certificates: one for each arm that was verified, by its label. An arm without one was never
            verified.
        detection: what the gate did with deliberate mistakes; None: it was not asked.

    Schema history: 1 first version. 2 certificates and detection; files of version 1 are read as
    never verified.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    name: str
    created_unix_s: NonNegativeFloat
    command: str
    machine: MachineFacts
    seed: NonNegativeInt
    rounds: PositiveInt
    arms: tuple[Arm, ...]
    not_run: tuple[NotRun, ...] = ()
    runs: tuple[Run, ...] = Field(default=())
    certificates: tuple[Certificate, ...] = ()
    detection: DetectionMatrix | None = None

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        return body, (2 if version == 1 else version)
