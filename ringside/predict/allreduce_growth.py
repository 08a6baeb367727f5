"""What an all-reduce among many ranks takes, from one among two: by the steps of its algorithm."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.stats.collectives import times_of
from ringside_core.specs import RefusalError, Timing

Floats = NDArray[np.float64]
Law = Literal["ring", "halving", "doubling"]
Algorithm = Literal["ring", "halving", "doubling", "open_mpi"]

BITS = 8
# Gloo takes its ring where nothing else is asked for (gloo/allreduce.cc), and Horovod asks for
# nothing else. TensorFlow's RING is a ring (ring_reducer.cc); so is AUTO without NCCL. Open MPI
# decides for each size, see OPEN_MPI.
ALGORITHMS: dict[str, Algorithm] = {
    "horovod gloo": "ring",
    "horovod mpi": "open_mpi",
    "mpi": "open_mpi",
    "tf.distribute AUTO": "ring",
    "tf.distribute RING": "ring",
}
# Open MPI 4.1, coll_tuned_decision_fixed.c, ompi_coll_tuned_allreduce_intra_dec_fixed, operations
# that commute: among fewer ranks than the first number, arrays of fewer bytes than each of the
# others go by that law; larger ones by Rabenseifner's. None: a reduction and then a broadcast, each
# in segments along a tree: nothing is known of its growth. Below 128 bytes it is left out.
OPEN_MPI: tuple[tuple[float, tuple[tuple[int, Law | None], ...]], ...] = (
    (4, ((4096, "doubling"), (8192, "ring"), (16384, "doubling"), (262144, "ring"))),
    (16, ((8192, "doubling"),)),
    (32, ((4096, "doubling"),)),
    (64, ()),
    (128, ((262144, "doubling"),)),
    (256, ((131072, None), (262144, "doubling"))),
    (512, ((4096, None),)),
    (2048, ((2048, None), (16384, "doubling"))),
    (4096, ((2048, None), (4096, "ring"), (16384, "doubling"))),
    (math.inf, ((2048, None), (16384, "ring"), (32768, "doubling"))),
)
# Of its parameter coll_tuned_allreduce_algorithm, by which a user decides.
OPEN_MPI_NAMES: dict[str, Algorithm] = {
    "recursive_doubling": "doubling",
    "ring": "ring",
    "rabenseifner": "halving",
}
WHOLE_ARRAYS_BELOW = 4096  # bytes; among two, see OPEN_MPI


def algorithm_of(stack: str) -> Algorithm:
    """The algorithm by which a stack reduces gradients.

    Args:
        stack: of `ringside allreduce`, with its settings after colons.

    Raises:
        RefusalError: nobody knows how it grows.
    """
    name, *settings = stack.split(":")
    values = dict(one.split("=", 1) for one in settings)
    packed = values.get("bytes_per_pack", "0") != "0"
    found = ALGORITHMS.get(name)
    if found == "open_mpi":
        found = OPEN_MPI_NAMES.get(values.get("coll_tuned_allreduce_algorithm", ""), found)
    if found is None or packed:
        raise RefusalError(
            "How an all-reduce grows with the ranks must be known.",
            received=f"{stack!r}" + (": several arrays, one after the other" if packed else ""),
        )
    return found


def law_of(algorithm: Algorithm, ranks: int, size_bytes: float) -> Law | None:
    """By which law an array of so many bytes goes among so many ranks; None: by one unknown."""
    if algorithm != "open_mpi":
        return algorithm
    by_size = next(rows for below, rows in OPEN_MPI if ranks < below)
    return next((law for below, law in by_size if size_bytes < below), "halving")


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

        What an empty array takes beyond two messages; all of it is taken for the latency of
        messages (0) where nobody knows that.
        """
        return 0.0 if self.message_s is None else max(0.0, self.empty_s - 2 * self.message_s)

    @property
    def empty_s(self) -> float:
        """What is left of the smallest array without its bytes on the link: latency."""
        return max(0.0, self.seconds[0] - self._on_link(self.sizes[0]))

    def _on_link(self, size_bytes: float) -> float:
        return size_bytes * BITS / self.bits_per_s if self.bits_per_s else 0.0

    def in_proportion(self, bits_per_s: float) -> "PairCurve":
        """The curve on another link, if a stack reaches the same share of every link.

        `at` has it that what a stack costs beside the link's own bytes stays. The truth may be this
        instead, for a stack that waits for its link: all but the latency grows as 1/rate does.
        """
        if self.bits_per_s is None:
            return self
        times = self.bits_per_s / bits_per_s
        empty = self.empty_s
        seconds = tuple(empty + (one - empty) * times for one in self.seconds)
        return replace(self, seconds=seconds, bits_per_s=bits_per_s)

    def at(self, size_bytes: float, bits_per_s: float | None = None) -> float:
        """Seconds of an array of so many bytes.

        A straight line between two sizes, as latency and bytes add up. Below the smallest size what
        that one takes, less the bytes on the link that it has more (latency); above the largest in
        proportion to it (bandwidth). Among two ranks each sends n bytes in all, so that on another
        link it takes n·8·(1/rate − 1/measured rate) more: what the stack itself costs stays. It is
        never faster than the link, nor than an empty array.

        Args:
            size_bytes: of each rank's array.
            bits_per_s: of the other link; None: the one that was measured.
        """
        found = float(np.interp(size_bytes, self.sizes, self.seconds))
        found *= max(1.0, size_bytes / self.sizes[-1])
        found -= self._on_link(max(0.0, self.sizes[0] - size_bytes))
        found = max(found, self.empty_s)
        if bits_per_s is None or self.bits_per_s is None:
            return found
        on_link = size_bytes * BITS / bits_per_s
        moved = found + on_link - self._on_link(size_bytes)
        return max(moved, on_link, self.empty_s)

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
        these are the usual 2(p−1)α and 2·log₂ p·α, both + 2(p−1)/p·nβ. doubling: log₂ p messages of
        n, and two of n more where p is no power of two: log₂ p·t₂(2n)/2.

        Raises:
            RefusalError: an algorithm of which no law is known.
        """
        law = law_of(algorithm, ranks, size_bytes)
        if law is None:
            raise RefusalError(no_law(ranks, size_bytes))
        if ranks == 1:
            return 0.0
        if ranks == 2:
            return self.at(size_bytes, bits_per_s)
        once = self.operation_s

        def between_two(size: float) -> float:
            return max(self.at(size, bits_per_s) - once, 0.0)

        if law == "ring":
            return once + (ranks - 1) * between_two(2 * size_bytes / ranks)
        rounds = int(math.log2(ranks))
        if law == "halving":
            total = sum(between_two(size_bytes / 2**k) for k in range(rounds))
        else:
            total = rounds * between_two(2 * size_bytes) / 2
        folded = between_two(2 * size_bytes) if ranks != 2**rounds else 0.0
        return once + total + folded


def no_law(ranks: int, size_bytes: float) -> str:
    """Why nothing is predicted there."""
    return (
        f"Among {ranks:,} ranks Open MPI reduces {size_bytes:,.0f} bytes to one rank, then "
        "broadcasts them; how that grows is not known."
    )


def message_seconds(timings: Sequence[Timing], bits_per_s: float | None) -> float | None:
    """α from bare MPI: its smallest all-reduce among two, the quickest, less the bytes on the link.

    Below 4 KiB Open MPI exchanges the whole arrays at once (recursive doubling): one message each
    way; from there on it may be two. Nothing is negotiated, no graph is run. The quickest
    repetition, as MPI polls: on a share of a core most others hold a pause that a stack which waits
    does not have. None: not timed below 4 KiB.
    """
    small = min(timings, key=lambda timing: timing.size_bytes, default=None)
    if small is None or small.operation != "allreduce" or small.num_ranks != 2:
        return None
    if small.size_bytes >= WHOLE_ARRAYS_BELOW:
        return None
    on_link = small.size_bytes * BITS / bits_per_s if bits_per_s else 0.0
    quickest = min(max(ranks) for ranks in small.seconds)
    # A link that is held back lets a short burst pass at once: then there is nothing to take off.
    return quickest - on_link if quickest > on_link else quickest


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
