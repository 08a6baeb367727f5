"""The time of an all-reduce among many ranks, from its time among two and its algorithm."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.stats.collectives import mean_seconds
from ringside_core.specs import RefusalError, Timing

Floats = NDArray[np.float64]
Law = Literal["ring", "halving", "doubling"]
Algorithm = Literal["ring", "halving", "doubling", "open_mpi"]

BITS = 8
# Gloo uses its ring by default (gloo/allreduce.cc), and Horovod keeps that. TensorFlow's RING is a
# ring (ring_reducer.cc), and so is AUTO without NCCL. Open MPI decides for each size, see OPEN_MPI.
ALGORITHMS: dict[str, Algorithm] = {
    "horovod gloo": "ring",
    "horovod mpi": "open_mpi",
    "mpi": "open_mpi",
    "tf.distribute AUTO": "ring",
    "tf.distribute RING": "ring",
}
# Open MPI 4.1, coll_tuned_decision_fixed.c, ompi_coll_tuned_allreduce_intra_dec_fixed, for
# commutative operations. The first number of a row: it is for fewer ranks than that. Then pairs:
# arrays of fewer bytes than this go by this law; larger ones go by Rabenseifner's ("halving").
# None: a reduction and then a broadcast, each in segments along a tree; its growth is not known.
# The rule for arrays below 128 bytes is left out.
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
# Values of Open MPI's parameter coll_tuned_allreduce_algorithm, with which a user decides.
OPEN_MPI_NAMES: dict[str, Algorithm] = {
    "recursive_doubling": "doubling",
    "ring": "ring",
    "rabenseifner": "halving",
}
WHOLE_ARRAYS_BELOW = 4096  # bytes, among two ranks; see OPEN_MPI


def algorithm_of(stack: str) -> Algorithm:
    """The algorithm with which a stack reduces gradients.

    Args:
        stack: as in `ringside allreduce`, with its settings after colons.

    Raises:
        RefusalError: its growth is not known.
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
    """The law for an array of this many bytes among this many ranks; None: it is not known."""
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
        message_s: latency α of one message, measured in another way; None: it is not known.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    bits_per_s: float | None = None
    message_s: float | None = None

    @property
    def operation_s(self) -> float:
        """What one operation costs for any number of ranks: to agree on it, call it, wake up.

        It is the time of an empty array beyond two messages. If the latency of messages is not
        known, all of that time counts as latency, and the operation costs 0.
        """
        return 0.0 if self.message_s is None else max(0.0, self.empty_s - 2 * self.message_s)

    @property
    def empty_s(self) -> float:
        """Latency: the time of the smallest array without its bytes on the link."""
        return max(0.0, self.seconds[0] - self._on_link(self.sizes[0]))

    def _on_link(self, size_bytes: float) -> float:
        return size_bytes * BITS / self.bits_per_s if self.bits_per_s else 0.0

    def in_proportion(self, bits_per_s: float) -> "PairCurve":
        """The curve on another link, for a stack that reaches the same share of every link.

        `at` assumes that the stack's own cost stays the same on every link. For a stack that waits
        for its link this can be true instead: all but the latency grows as 1/rate.
        """
        if self.bits_per_s is None:
            return self
        times = self.bits_per_s / bits_per_s
        empty = self.empty_s
        seconds = tuple(empty + (one - empty) * times for one in self.seconds)
        return replace(self, seconds=seconds, bits_per_s=bits_per_s)

    def at(self, size_bytes: float, bits_per_s: float | None = None) -> float:
        """Seconds of an array of this many bytes among two ranks.

        Between two sizes it is a straight line, because latency and bytes add up. Below the
        smallest size it is the time of that size without the surplus bytes on the link (latency).
        Above the largest size it grows in proportion (bandwidth). Each of two ranks sends n bytes,
        so another link takes n·8·(1/rate − 1/measured rate) more; the stack's own cost stays. The
        result is never faster than the link, nor than an empty array.

        Args:
            size_bytes: of each rank's array.
            bits_per_s: of the other link; None: the measured link.
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
        """Seconds of an array of this many bytes among this many ranks.

        c, the cost of the operation itself, is subtracted from t₂ first and added at the end. Then
        n bytes among two ranks are two messages of n/2, one after the other, so a message of m
        bytes takes t₂(2m)/2.

        ring: 2(p−1) messages of n/p: (p−1)·t₂(2n/p).
        halving (Rabenseifner): 2 messages of n/2ᵏ for k = 1 … log₂ p: Σ t₂(n/2ᵏ⁻¹). If p is no
        power of two, one message of n more at the start and one at the end: + t₂(2n) (Thakur,
        Rabenseifner, Gropp 2005, section 4.5).
        doubling: log₂ p messages of n: log₂ p·t₂(2n)/2. If p is no power of two, two messages of n
        more: + t₂(2n).

        With t₂(n) = 2α + nβ, ring and halving are the usual 2(p−1)α and 2·log₂ p·α, both with
        + 2(p−1)/p·nβ.

        Raises:
            RefusalError: no law is known for this size.
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
    """Why nothing is predicted for this size."""
    return (
        f"Among {ranks:,} ranks Open MPI reduces {size_bytes:,.0f} bytes to one rank, then "
        "broadcasts them; how that grows is not known."
    )


def message_seconds(timings: Sequence[Timing], bits_per_s: float | None) -> float | None:
    """α: bare MPI's quickest, smallest all-reduce among two, minus its bytes on the link.

    Below 4 KiB Open MPI exchanges whole arrays at once (recursive doubling): one message in each
    direction. Larger arrays may need two. Nothing is negotiated and no graph runs. The quickest
    repetition is used because MPI polls: on a share of a core most other repetitions contain a
    pause, which a stack that waits does not have. None: nothing was timed below 4 KiB.
    """
    small = min(timings, key=lambda timing: timing.size_bytes, default=None)
    if small is None or small.operation != "allreduce" or small.num_ranks != 2:
        return None
    if small.size_bytes >= WHOLE_ARRAYS_BELOW:
        return None
    on_link = small.size_bytes * BITS / bits_per_s if bits_per_s else 0.0
    quickest = min(max(ranks) for ranks in small.seconds)
    # A shaped link lets a short burst pass at once: then there is nothing to subtract.
    return quickest - on_link if quickest > on_link else quickest


def pair_curve(
    timings: Sequence[Timing], bits_per_s: float | None = None, message_s: float | None = None
) -> PairCurve:
    """The curve through the all-reduces of a stack among two ranks: means over the repetitions.

    A step waits for stalls too, as often as they happen; a median would hide them. A size that took
    less time than a smaller size gets the time of the smaller size.

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
    by_size = {timing.size_bytes: mean_seconds(timing) for timing in timings}
    seconds = itertools.accumulate((by_size[size] for size in sizes), max)
    return PairCurve(tuple(map(float, sizes)), tuple(seconds), bits_per_s, message_s)
