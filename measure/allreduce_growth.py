"""What an all-reduce among many ranks takes, from one among two: by the steps of its algorithm."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.collectives import times_of
from specs import RefusalError, Timing

Floats = NDArray[np.float64]
Algorithm = Literal["ring", "halving"]

BITS = 8
# Open MPI 4.1 takes Rabenseifner's algorithm for 8 KiB and more among 4 to 63 ranks
# (coll_tuned_decision_fixed.c, ompi_coll_tuned_allreduce_intra_dec_fixed: algorithm 6). Gloo takes
# its ring where nothing else is asked for (gloo/allreduce.cc), and Horovod asks for nothing else.
# TensorFlow's RING is a ring (ring_reducer.cc); so is AUTO without NCCL.
ALGORITHMS: dict[str, Algorithm] = {"horovod mpi": "halving", "mpi": "halving"}


def algorithm_of(stack: str) -> Algorithm:
    """The algorithm by which a stack reduces gradients; a ring where nothing else is known."""
    return ALGORITHMS.get(stack, "ring")


@dataclass(frozen=True)
class PairCurve:
    """Seconds of one all-reduce among two ranks, by the bytes of each rank's array.

    Attributes:
        sizes: rising, bytes.
        seconds: of each size; never falling.
        bits_per_s: what the link between the two carries; None: they share one machine.
        message_s: latency of one message, α, known from elsewhere; None: nobody knows.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    bits_per_s: float | None = None
    message_s: float | None = None

    @property
    def operation_s(self) -> float:
        """What one operation costs whatever the ranks: to agree on it, to call it, to wake up.

        What the smallest array takes beyond two messages and its bytes; all of it is taken for the
        latency of messages (0) where nobody knows that.
        """
        if self.message_s is None:
            return 0.0
        return max(0.0, self.seconds[0] - 2 * self.message_s - self._on_link(self.sizes[0]))

    def _on_link(self, size_bytes: float) -> float:
        return size_bytes * BITS / self.bits_per_s if self.bits_per_s else 0.0

    def at(self, size_bytes: float, bits_per_s: float | None = None) -> float:
        """Seconds of an array of so many bytes.

        A straight line between two sizes, as latency and bytes add up. Below the smallest size as
        long as that one takes (latency); above the largest in proportion to it (bandwidth). Among
        two ranks each sends n bytes in all, so that on another link it takes
        n·8·(1/rate − 1/measured rate) more: what the stack itself costs stays. It is never faster
        than the link, nor than the smallest array.

        Args:
            size_bytes: of each rank's array.
            bits_per_s: of the other link; None: the one that was measured.
        """
        found = float(np.interp(size_bytes, self.sizes, self.seconds))
        found *= max(1.0, size_bytes / self.sizes[-1])
        if bits_per_s is None or self.bits_per_s is None:
            return found
        on_link = size_bytes * BITS / bits_per_s
        moved = found + on_link - size_bytes * BITS / self.bits_per_s
        return max(moved, on_link, self.seconds[0])

    def among(
        self,
        ranks: int,
        size_bytes: float,
        *,
        algorithm: Algorithm,
        bits_per_s: float | None = None,
    ) -> float:
        """Seconds of an array of so many bytes among so many ranks.

        c, what the operation costs once, is taken off t₂ first, and added at the end. Then n bytes
        among two are two messages of n/2, one after the other, so a message of m bytes takes
        t₂(2m)/2. ring: 2(p−1) messages of n/p: (p−1)·t₂(2n/p). halving (Rabenseifner): 2 messages
        of n/2ᵏ for k = 1 … log₂ p: Σ t₂(n/2ᵏ⁻¹), and where p is no power of two, first and last one
        of n more: + t₂(2n) (Thakur, Rabenseifner, Gropp 2005, section 4.5). With t₂(n) = 2α + nβ
        these are the usual 2(p−1)α and 2·log₂ p·α, both + 2(p−1)/p·nβ.
        """
        if ranks == 1:
            return 0.0
        once = self.operation_s

        def between_two(size: float) -> float:
            return max(self.at(size, bits_per_s) - once, 0.0)

        if algorithm == "ring":
            return once + (ranks - 1) * between_two(2 * size_bytes / ranks)
        rounds = int(math.log2(ranks))
        total = sum(between_two(size_bytes / 2**k) for k in range(rounds))
        folded = between_two(2 * size_bytes) if ranks != 2**rounds else 0.0
        return once + total + folded


def message_seconds(timings: Sequence[Timing], bits_per_s: float | None) -> float | None:
    """α from bare MPI: its smallest all-reduce among two, the quickest, less the bytes on the link.

    Up to 4 KiB Open MPI exchanges the whole arrays at once (recursive doubling): one message each
    way. Nothing is negotiated, no graph is run. The quickest repetition, as MPI polls: on a share
    of a core most others hold a pause that a stack which waits does not have. None: not timed.
    """
    small = min(timings, key=lambda timing: timing.size_bytes, default=None)
    if small is None or small.operation != "allreduce" or small.num_ranks != 2:
        return None
    on_link = small.size_bytes * BITS / bits_per_s if bits_per_s else 0.0
    return max(min(max(ranks) for ranks in small.seconds) - on_link, 0.0)


def pair_curve(
    timings: Sequence[Timing], bits_per_s: float | None = None, message_s: float | None = None
) -> PairCurve:
    """The curve through the all-reduces that a stack made among two ranks.

    A size that took less than a smaller one is given the smaller one's time.

    Raises:
        RefusalError: other operations or ranks, or fewer than two sizes.
    """
    sizes = sorted({timing.size_bytes for timing in timings})
    kinds = {(timing.operation, timing.num_ranks) for timing in timings}
    if kinds != {("allreduce", 2)} or len(sizes) < 2:
        raise RefusalError(
            "A prediction needs all-reduces among two ranks, at two sizes or more.",
            received=f"{sorted(kinds)}, {len(sizes)} sizes",
            advice="Make them: ringside allreduce --replicas 2 --hostfile ….",
        )
    by_size = {timing.size_bytes: times_of(timing).average_s for timing in timings}
    seconds = itertools.accumulate((by_size[size] for size in sizes), max)
    return PairCurve(tuple(map(float, sizes)), tuple(seconds), bits_per_s, message_s)
