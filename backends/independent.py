"""Independent replicas: each trains a model of its own, as serial runs beside each other would.

No way to train: it shows how fast so many replicas could be if nothing had to be combined.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Reduction
from backends.devices import use_local_gpu
from backends.ranks import Ranks


class Independent(Ranks):
    """Ranks under mpirun that meet between epochs, to begin together and to count what was fed.

    MPI has no thread of its own, so within a step nothing runs but the training.
    """

    _mpi: Any = None

    def _start(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        use_local_gpu(self.local_rank, self.spec.topology.processes_per_host)

    def __exit__(self, *exception: object) -> None:
        # mpirun reports a rank that ends without it as failed. So does one that has failed: the
        # others are waiting for it, and it would wait for them.
        if exception[0] is None:
            self._mpi.Finalize()

    def _all_reduce(self, array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
        operation = {"sum": self._mpi.SUM, "max": self._mpi.MAX}[reduction]
        result = np.empty_like(array)
        self._mpi.COMM_WORLD.Allreduce(np.ascontiguousarray(array), result, op=operation)
        return result
