"""Communication: what each stack takes for one collective, every sample kept."""

from typing import ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from specs.errors import RefusalError
from specs.noun import Document, Noun
from specs.record import MachineFacts, Outcome

Operation = Literal["allreduce", "broadcast", "push_pull"]


class Timing(Noun):
    """One operation of one stack at one size.

    Attributes:
        operation: `push_pull`: a worker reads a variable from its server and adds a gradient to it.
        size_bytes: of the array of each rank.
        seconds: [repetition][rank], each of one operation, from a barrier to its return.
        wrong: elements that differ from the closed-form result, over all ranks and repetitions.
    """

    operation: Operation
    size_bytes: PositiveInt
    seconds: tuple[tuple[PositiveFloat, ...], ...]
    wrong: NonNegativeInt

    @model_validator(mode="after")
    def _every_rank_every_time(self) -> Self:
        ranks = {len(one) for one in self.seconds}
        if len(ranks) != 1 or 0 in ranks:
            raise RefusalError(
                "A timing must have one time for each rank in every repetition.",
                received=f"{sorted(ranks)} ranks at {self.size_bytes} bytes",
            )
        return self


class StackTimings(Noun):
    """Everything that one stack was asked.

    Attributes:
        stack: such as `mpi`, `horovod gloo`, `tf.distribute RING`.
        outcome: of its run; of a stack that cannot run here `refused` with the reason.
        cores: processors of each rank.
        timings: empty if the run did not complete.
    """

    stack: str
    outcome: Outcome
    cores: tuple[tuple[NonNegativeInt, ...], ...] = ()
    timings: tuple[Timing, ...] = ()


class Communication(Document):
    """Collectives of every stack with the same ranks on the same machine.

    Attributes:
        add_seconds_per_byte: time in which one rank adds one byte to another in memory, γ of the
            cost model; median of a loop over 64 MiB.

    Schema history: 1 first version.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    created_unix_s: NonNegativeFloat
    command: str
    machine: MachineFacts
    code_version: str
    num_ranks: PositiveInt
    stacks: tuple[StackTimings, ...] = Field(min_length=1)
    add_seconds_per_byte: PositiveFloat | None = None
