"""Repeat one operation: fill the array, time from a barrier to the return, check the result."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from ringside.collectives import pattern
from ringside.collectives.request import LEAST_WARM_UP, RankTimes, Request, repetitions
from ringside_core.specs import RefusalError
from ringside_core.specs.communication import Operation

ROOT_RANK = 0
Result = TypeVar("Result")


class Took(NamedTuple):
    """What one operation cost a rank.

    Attributes:
        wall_s: from the barrier to its return.
        cpu_s: CPU time of all threads of the process in that time.
    """

    wall_s: float
    cpu_s: float


class Ranks(ABC):
    """The processes of one stack; this is one of them. Every rank makes the same calls."""

    rank: int
    size: int

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called this."""

    @abstractmethod
    def slowest(self, seconds: float) -> float:
        """The largest value of all ranks, returned to every rank."""

    @abstractmethod
    def prepare(
        self, operation: Operation, array: pattern.Floats
    ) -> Callable[[], tuple[Took, pattern.Floats]]:
        """Make a function that does the operation once.

        Args:
            operation: one that the stack offers.
            array: input of this rank, [elements]; it is filled again before each call.

        Returns:
            The function. It makes a barrier, then does the operation. It returns what that cost,
            from the barrier to the return, and the result, [elements].
        """


def timed(ranks: Ranks, operate: Callable[[], Result]) -> tuple[Took, Result]:
    """One barrier; then time the operation."""
    ranks.barrier()
    cpu_began = time.process_time()  # read first, so that it costs no wall time of the operation
    began = time.perf_counter()
    result = operate()
    wall_s = time.perf_counter() - began
    return Took(wall_s, time.process_time() - cpu_began), result


def time_everything(
    ranks: Ranks, request: Request, on_repetition: Callable[[int, int], None]
) -> tuple[RankTimes, ...]:
    """Every operation at every size, the small ones first."""
    pattern.check_ranks(ranks.size)
    found = []
    cases = [(op, size) for op in request.operations for size in request.sizes]
    for number, (operation, size_bytes) in enumerate(cases):

        def tell(number: int = number) -> None:
            on_repetition(number + 1, len(cases))

        found.append(_time_one(ranks, request, operation, size_bytes, tell))
    # The root of a broadcast returns when it has handed its array over. If its process ended then,
    # ranks that still receive would find the connection closed (seen under tf.distribute).
    ranks.barrier()
    return tuple(found)


def _time_one(
    ranks: Ranks,
    request: Request,
    operation: Operation,
    size_bytes: int,
    on_repetition: Callable[[], None],
) -> RankTimes:
    """One operation at one size; the first repetitions decide how many there are."""
    array = np.empty(size_bytes // 4, np.float32)
    operate = ranks.prepare(operation, array)
    wrong = 0
    done = 0

    def repeat() -> Took:
        nonlocal wrong, done
        pattern.fill(array, rank=ranks.rank, repetition=done)
        took, result = operate()
        wrong += _wrong(operation, result, ranks.size, done, array.size)
        done += 1
        on_repetition()
        return took

    for _ in range(LEAST_WARM_UP):
        began = time.perf_counter()
        repeat()
        wall_s = time.perf_counter() - began
    warm_up, count = repetitions(
        ranks.slowest(wall_s), most=request.most, budget_s=request.budget_s
    )
    while done < warm_up:
        repeat()
    all_took = [repeat() for _ in range(count)]
    return RankTimes(
        operation=operation,
        size_bytes=size_bytes,
        seconds=tuple(took.wall_s for took in all_took),
        wrong=wrong,
        warm_up=warm_up,
        cpu_s=sum(took.cpu_s for took in all_took),
    )


def _wrong(
    operation: Operation, result: pattern.Floats, num_ranks: int, repetition: int, count: int
) -> int:
    if operation == "allreduce":
        return pattern.wrong_in_sum(result, num_ranks=num_ranks, repetition=repetition, count=count)
    if operation == "broadcast":
        return pattern.wrong_in_broadcast(
            result, root=ROOT_RANK, repetition=repetition, count=count
        )
    raise RefusalError("A collective is an allreduce or a broadcast.", received=operation)
