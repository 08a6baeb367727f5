"""The ranks of one stack. They fill an array, time its sum from a barrier to the return, and check.

Element i of rank r in repetition k is

    x[r, k](i) = (r mod 16 + 1) · ((i + k) mod 1021) + r mod 7

This shows an element in a wrong place, the result of another repetition, and a rank that is
missing, counted twice or taken for another. All numbers and sums are whole. Below 2**24 float32
holds them exactly, in whatever order they are added, so the result is compared by equality.
"""

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringside.collectives.request import LEAST_WARM_UP, Request, repetitions
from ringside_core.specs import Timing

Floats = NDArray[np.float32]
Result = TypeVar("Result")

PERIOD = 1021  # prime: no block size is a multiple of it
WEIGHTS, OFFSETS = 16, 7
MOST_RANKS = 1024  # their sums are below 2**24


def elements(rank: int, repetition: int, count: int) -> Floats:
    """The input of a rank, [count]."""
    return _repeated(rank % WEIGHTS + 1, rank % OFFSETS, repetition, count)


def wrong_elements(result: Floats, num_ranks: int, repetition: int, count: int) -> int:
    """Number of elements that are not the sum over all ranks; there must be `count`."""
    weight = sum(rank % WEIGHTS + 1 for rank in range(num_ranks))
    offset = sum(rank % OFFSETS for rank in range(num_ranks))
    right = _repeated(weight, offset, repetition, count)
    shared = min(count, result.size)
    return int(np.count_nonzero(result[:shared] != right[:shared])) + abs(count - result.size)


def _repeated(weight: int, offset: int, repetition: int, count: int) -> Floats:
    period = weight * ((np.arange(PERIOD) + repetition) % PERIOD) + offset
    return np.resize(period.astype(np.float32), count)


class Ranks(ABC):
    """The processes of one stack; this is one of them. Each makes the same calls."""

    rank: int
    size: int

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called this."""

    @abstractmethod
    def slowest(self, seconds: float) -> float:
        """The largest value of all ranks, returned to every rank."""

    @abstractmethod
    def prepare(self, array: Floats) -> Callable[[], tuple[float, Floats]]:
        """A function that sums the arrays of all ranks, as they are then; returns as `timed`."""

    def timed(self, operate: Callable[[], Result]) -> tuple[float, Result]:
        """Seconds of the operation after a barrier, and its result."""
        self.barrier()
        began = time.perf_counter()
        result = operate()
        return time.perf_counter() - began, result

    def time_all(
        self, request: Request, on_repetition: Callable[[int, int], None]
    ) -> tuple[Timing, ...]:
        """Time every size, the small ones first."""
        total = len(request.sizes)
        found = tuple(
            self._time(size, request.budget_s, functools.partial(on_repetition, number, total))
            for number, size in enumerate(request.sizes, start=1)
        )
        self.barrier()  # so that no process ends while another still receives
        return found

    def _time(self, size_bytes: int, budget_s: float, tell: Callable[[], None]) -> Timing:
        """One size; its first repetitions decide how many there are."""
        array = np.empty(size_bytes // 4, np.float32)
        allreduce = self.prepare(array)
        all_seconds: list[float] = []
        wrong = 0

        def repeat() -> None:
            nonlocal wrong
            repetition = len(all_seconds)
            array[:] = elements(self.rank, repetition, array.size)
            seconds, result = allreduce()
            all_seconds.append(seconds)
            wrong += wrong_elements(result, self.size, repetition, array.size)
            tell()

        for _ in range(LEAST_WARM_UP):
            began = time.perf_counter()
            repeat()
            wall_s = time.perf_counter() - began
        warm_up, count = repetitions(self.slowest(wall_s), budget_s)
        while len(all_seconds) < warm_up + count:
            repeat()
        return Timing(
            size_bytes=size_bytes,
            seconds=tuple((seconds,) for seconds in all_seconds[warm_up:]),
            wrong=wrong,
            warm_up=warm_up,
        )


class MpiRanks(Ranks):
    """Bare MPI through mpi4py, on NumPy arrays; no TensorFlow in the process.

    All pages of the result are written before the clock starts, as in the OSU and nccl-tests
    programs. So only the operation is timed: the least that a stack has to do.
    """

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._comm = MPI.COMM_WORLD
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._comm.Barrier()

    def slowest(self, seconds: float) -> float:
        """By MPI_Allreduce."""
        return float(self._comm.allreduce(seconds, op=self._mpi.MAX))

    def prepare(self, array: Floats) -> Callable[[], tuple[float, Floats]]:
        """MPI_Allreduce from one array into another."""
        result = np.empty_like(array)

        def allreduce() -> Floats:
            self._comm.Allreduce(array, result, op=self._mpi.SUM)
            return result

        def once() -> tuple[float, Floats]:
            result.fill(-1)  # so that an operation that does nothing is seen
            return self.timed(allreduce)

        return once

    def end(self) -> None:
        """MPI_Finalize: mpirun reports a rank that ends without it as failed."""
        self._mpi.Finalize()
