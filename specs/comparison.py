"""Comparison: arms, the order in which they ran, and every record. Statistics come later."""

from typing import Any

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    SerializeAsAny,
    model_validator,
)

from specs.noun import Document, Noun
from specs.options import BackendOptions, with_typed_options
from specs.record import MachineFacts, Outcome, RunRecord
from specs.run_spec import RunSpec


class Arm(Noun):
    """A backend with its options at a size.

    Attributes:
        label: unique in its comparison, such as `horovod:controller=mpi ×2`.
        group: arms that differ only in their number of replicas share it: the label without size.
    """

    label: str
    group: str
    backend: str
    options: SerializeAsAny[BackendOptions]
    replicas: PositiveInt

    @model_validator(mode="before")
    @classmethod
    def _type_the_options(cls, data: dict[str, Any]) -> dict[str, Any]:
        return with_typed_options(data)


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

    Schema history: 1 first version.
    """

    name: str
    created_unix_s: NonNegativeFloat
    command: str
    machine: MachineFacts
    seed: NonNegativeInt
    rounds: PositiveInt
    arms: tuple[Arm, ...]
    not_run: tuple[NotRun, ...] = ()
    runs: tuple[Run, ...] = Field(default=())
