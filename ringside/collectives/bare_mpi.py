"""Bare MPI through mpi4py, on NumPy arrays; no TensorFlow in the process.

Memory for the result is allocated, and all its pages are written, before the clock starts, as in
the OSU and nccl-tests programs. So only the operation is timed: the least that a stack has to do.
"""

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from ringside.collectives import pattern
from ringside.collectives.loop import ROOT_RANK, Ranks, Took, timed
from ringside_core.specs.communication import Operation


class MpiRanks(Ranks):
    """The ranks of MPI.COMM_WORLD."""

    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._comm.Barrier()

    def slowest(self, seconds: float) -> float:
        """By MPI_Allreduce."""
        return float(self._comm.allreduce(seconds, op=MPI.MAX))

    def prepare(
        self, operation: Operation, array: pattern.Floats
    ) -> Callable[[], tuple[Took, pattern.Floats]]:
        """MPI_Allreduce from one array into another; MPI_Bcast within one array."""
        result = np.full_like(array, -1)

        def allreduce() -> pattern.Floats:
            self._comm.Allreduce(array, result, op=MPI.SUM)
            return result

        def broadcast() -> pattern.Floats:
            self._comm.Bcast(result, root=ROOT_RANK)
            return result

        def once() -> tuple[Took, pattern.Floats]:
            if operation == "broadcast" and self.rank == ROOT_RANK:
                result[:] = array
            else:
                result.fill(-1)  # so that an operation that does nothing is seen
            return timed(self, allreduce if operation == "allreduce" else broadcast)

        return once

    def end(self) -> None:
        """MPI_Finalize: mpirun reports a rank that ends without it as failed."""
        MPI.Finalize()
