"""Communication: the time of each stack for one collective, with every sample."""

from typing import Any, ClassVar, Literal, Self

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

Operation = Literal["allreduce", "broadcast", "push_pull"]


class Timing(Noun):
    """One operation of one stack at one size, of float32, result and input in separate arrays.

    Attributes:
        operation: `allreduce`: the sum over all ranks. `broadcast`: from rank 0. `push_pull`: a
            worker reads a variable from its server and adds a gradient to it.
        size_bytes: of the array of each rank.
        seconds: [repetition][rank], each of one operation, from a barrier to its return.
        wrong: elements that differ from the closed-form result, over all ranks and repetitions.
        warm_up: earlier repetitions, which were checked but not kept.
        cpu_s: CPU time of all threads of each rank's process, within all its `seconds` together;
            empty: not counted. MPI waits in a busy loop, so its ranks always use a whole core.
    """

    operation: Operation
    size_bytes: PositiveInt
    seconds: tuple[tuple[PositiveFloat, ...], ...]
    wrong: NonNegativeInt
    warm_up: NonNegativeInt = 0
    cpu_s: tuple[NonNegativeFloat, ...] = ()

    @model_validator(mode="after")
    def _every_rank_every_time(self) -> Self:
        ranks = {len(one) for one in self.seconds}
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

    @property
    def count(self) -> int:
        """Elements of the array of each rank."""
        return self.size_bytes // 4


class StackTimings(Noun):
    """Everything that was measured of one stack.

    Attributes:
        stack: such as `mpi`, `horovod gloo`, `tf.distribute RING`.
        outcome: of its run; `refused` with the reason if the stack cannot run here.
        cores: processors of each rank.
        timings: empty if the run did not complete.
        wall_s: time of its run, including the start of the processes.
    """

    stack: str
    outcome: Outcome
    cores: tuple[tuple[NonNegativeInt, ...], ...] = ()
    timings: tuple[Timing, ...] = ()
    wall_s: NonNegativeFloat = 0.0

    @property
    def wrong(self) -> int:
        """Wrong elements over all operations and sizes."""
        return sum(timing.wrong for timing in self.timings)


class Link(Noun):
    """What one host really sends to another, as a plain program sees it.

    Attributes:
        sender: host, by its name in the hostfile.
        receiver: likewise.
        tool: `tcp`: one connection of ringside/collectives/transfer.py. `iperf3`: one of iperf3.
        bytes: TCP payload that arrived after a warm-up.
        seconds: the time in which it arrived, by the receiver's clock.
        congestion_control: TCP's, of the sender, as its kernel calls it; empty: unknown.
    """

    sender: str
    receiver: str
    tool: Literal["tcp", "iperf3"]
    bytes: PositiveInt
    seconds: PositiveFloat
    congestion_control: str = ""

    @property
    def bits_per_s(self) -> float:
        """Payload in bit/s; frames and headers are not counted."""
        return 8 * self.bytes / self.seconds


class Communication(Document):
    """Collectives of every stack with the same ranks on the same hosts.

    Attributes:
        machine: where the command ran; it need not be one of the hosts.
        add_seconds_per_byte: time in which one rank adds one byte to another in memory, γ of the
            cost model; median of a loop over 64 MiB.
        hosts: of each rank; empty: all on this machine. With several hosts, parameter servers are
            on the last one and their workers on the others, so there may be fewer workers.
        links: from each host to the next, measured before the stacks.

    Schema history: 1 first version. 2 hosts, links, CPU seconds; push/pull may have fewer
    ranks.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    created_unix_s: UnixSeconds
    command: str
    machine: MachineFacts
    code_version: str
    num_ranks: PositiveInt
    stacks: tuple[StackTimings, ...] = Field(min_length=1)
    add_seconds_per_byte: PositiveFloat | None = None
    hosts: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _the_same_ranks_everywhere(self) -> Self:
        if self.hosts and len(self.hosts) != self.num_ranks:
            raise RefusalError(
                "Every rank must have a host.",
                received=f"{len(self.hosts)} hosts, {self.num_ranks} ranks",
            )
        for stack in self.stacks:
            for timing in stack.timings:
                apart = self.several_hosts and timing.operation == "push_pull"
                if timing.num_ranks != self.num_ranks and not (
                    apart and timing.num_ranks < self.num_ranks
                ):
                    raise RefusalError(
                        "Every timing must be of the same ranks.",
                        received=f"{stack.stack}, {timing.operation} of {timing.size_bytes} bytes: "
                        f"{timing.num_ranks} ranks, of {self.num_ranks}",
                    )
        return self

    @property
    def several_hosts(self) -> bool:
        """Whether ranks reach each other over links."""
        return len(set(self.hosts)) > 1

    @property
    def passed(self) -> bool:
        """Whether every stack that can run here did, with every element right."""
        return all(
            stack.outcome.kind in ("completed", "refused") and not stack.wrong
            for stack in self.stacks
        )

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        """Version 1 knew only this machine; version 2 says the same by an empty `hosts`."""
        return (body, 2) if version == 1 else (body, version)
