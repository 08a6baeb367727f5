"""Communication: the time of each stack for an all-reduce, with every sample, and its links."""

from typing import ClassVar, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Document, Noun, UnixSeconds
from ringside_core.specs.record import MachineFacts, Outcome


class Timing(Noun):
    """The all-reduce of one stack at one size: a sum of float32 over all ranks.

    Attributes:
        size_bytes: of the array of each rank.
        seconds: [repetition][rank], from a barrier to the return.
        wrong: elements that differ from the expected sum, over all ranks and repetitions.
        warm_up: earlier repetitions, which were checked but not kept.
    """

    size_bytes: PositiveInt
    seconds: tuple[tuple[PositiveFloat, ...], ...]
    wrong: NonNegativeInt
    warm_up: NonNegativeInt = 0

    @model_validator(mode="after")
    def _every_rank_every_time(self) -> Self:
        ranks = {len(row) for row in self.seconds}
        if len(ranks) != 1 or 0 in ranks:
            raise RefusalError(
                "A timing must have one time for each rank in every repetition.",
                received=f"{sorted(ranks)} ranks at {self.size_bytes} bytes",
            )
        return self

    @property
    def num_ranks(self) -> int:
        """Ranks that took part."""
        return len(self.seconds[0])


class StackTimings(Noun):
    """Everything that was measured of one stack.

    Attributes:
        outcome: `refused` with the reason if the stack cannot run here.
        cores: processors of each rank.
        timings: empty if the run did not complete; small sizes first.
        wall_s: including the start of the processes.
    """

    stack: str
    outcome: Outcome
    cores: tuple[tuple[NonNegativeInt, ...], ...] = ()
    timings: tuple[Timing, ...] = ()
    wall_s: NonNegativeFloat = 0.0

    @property
    def wrong(self) -> int:
        """Wrong elements over all sizes."""
        return sum(timing.wrong for timing in self.timings)


class Link(Noun):
    """What one host really sends to another by one plain TCP connection.

    Attributes:
        sender, receiver: hosts, by their names in the hostfile.
        bytes: payload that arrived after a warm-up.
        seconds: the time in which it arrived, by the receiver's clock.
        congestion_control: TCP's, of the sender; empty: unknown.
    """

    sender: str
    receiver: str
    bytes: PositiveInt
    seconds: PositiveFloat
    congestion_control: str = ""

    @property
    def bits_per_s(self) -> float:
        """Payload in bit/s."""
        return 8 * self.bytes / self.seconds


class Communication(Document):
    """All-reduces of every stack with the same ranks on the same hosts.

    Attributes:
        machine: where the command ran; it need not be one of the hosts.
        hosts: of each rank; empty: all on this machine.
        links: from each host to the next, measured before the stacks.
    """

    SCHEMA_VERSION: ClassVar[int] = 3

    created_unix_s: UnixSeconds
    command: str
    machine: MachineFacts
    code_version: str
    num_ranks: PositiveInt
    stacks: tuple[StackTimings, ...] = Field(min_length=1)
    hosts: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _the_same_ranks_everywhere(self) -> Self:
        timings = (timing for stack in self.stacks for timing in stack.timings)
        ranks = {len(self.hosts) or self.num_ranks, *(timing.num_ranks for timing in timings)}
        if ranks != {self.num_ranks}:
            raise RefusalError(
                "Hosts and timings must be of the same ranks.",
                received=f"{sorted(ranks)} ranks, of {self.num_ranks}",
            )
        return self

    @property
    def several_hosts(self) -> bool:
        """Whether ranks reach each other over links."""
        return len(set(self.hosts)) > 1

    @property
    def passed(self) -> bool:
        """Whether every stack that can run here did, with every element right."""
        fine = ("completed", "refused")
        return all(stack.outcome.kind in fine and not stack.wrong for stack in self.stacks)
