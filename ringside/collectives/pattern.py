"""Numbers whose sum over the ranks is known exactly, by a formula that depends on the place.

Element i of rank r in repetition k is

    x[r, k](i) = (r mod 16 + 1) · ((i + k) mod 1021) + r mod 7

This shows an element in a wrong place, the result of another repetition, and a rank that is
missing, counted twice or taken for another. All numbers and sums are whole. Below 2**24 float32
holds them exactly, in whatever order they are added, so the result is compared by equality.
"""

import numpy as np
from numpy.typing import NDArray

from ringside_core.specs import RefusalError

Floats = NDArray[np.float32]

PERIOD = 1021  # prime: no block size is a multiple of it
WEIGHTS = 16
OFFSETS = 7
EXACT_BELOW = 2**24
CHUNK = 1 << 18
# (i + k) mod PERIOD for i < CHUNK + PERIOD and k = 0; another k begins at another place.
_RAMP = np.arange(CHUNK + PERIOD, dtype=np.int64) % PERIOD
RAMP: Floats = _RAMP.astype(np.float32)


def fill(out: Floats, *, rank: int, repetition: int) -> None:
    """Write the input of a rank into `out`, [elements]."""
    weight, offset = _of_rank(rank)
    for start in range(0, out.size, CHUNK):
        part = out[start : start + CHUNK]
        np.multiply(_ramp(start + repetition, part.size), np.float32(weight), out=part)
        part += np.float32(offset)


def wrong_in_sum(result: Floats, *, num_ranks: int, repetition: int, count: int) -> int:
    """Number of elements that are not Σ_r x[r, k](i) = W · ((i + k) mod 1021) + O.

    W and O are the sums of weights and offsets over all ranks. There must be `count` elements; a
    missing or an additional element is wrong too.
    """
    return _wrong(result, *_of_all(num_ranks), repetition, count)


def wrong_in_broadcast(result: Floats, *, root: int, repetition: int, count: int) -> int:
    """Number of elements that differ from the root's, which has `count`."""
    return _wrong(result, *_of_rank(root), repetition, count)


def check_ranks(num_ranks: int) -> None:
    """Refuse more ranks than float32 can add up exactly."""
    weights, offsets = _of_all(num_ranks)
    largest = weights * (PERIOD - 1) + offsets
    if largest >= EXACT_BELOW:
        raise RefusalError(
            "The sum over all ranks must be exact in float32, to be compared by equality.",
            received=f"{num_ranks} ranks, sums up to {largest}",
            advice="Use --replicas 1024 or fewer.",
        )


def _of_rank(rank: int) -> tuple[int, int]:
    return rank % WEIGHTS + 1, rank % OFFSETS


def _of_all(num_ranks: int) -> tuple[int, int]:
    """Sums over the ranks, by formula: a list could be too long if the number was mistyped."""
    rounds, more = divmod(num_ranks, WEIGHTS)
    weights = rounds * (WEIGHTS * (WEIGHTS + 1) // 2) + more * (more + 1) // 2
    rounds, more = divmod(num_ranks, OFFSETS)
    offsets = rounds * (OFFSETS * (OFFSETS - 1) // 2) + more * (more - 1) // 2
    return weights, offsets


def _ramp(first: int, count: int) -> Floats:
    begin = first % PERIOD
    return RAMP[begin : begin + count]


def _wrong(result: Floats, weight: int, offset: int, repetition: int, count: int) -> int:
    wrong = abs(count - result.size)
    result = result[:count]
    expected = np.empty(min(CHUNK, result.size), np.float32)
    for start in range(0, result.size, CHUNK):
        part = result[start : start + CHUNK]
        right = expected[: part.size]
        np.multiply(_ramp(start + repetition, part.size), np.float32(weight), out=right)
        right += np.float32(offset)
        wrong += int(np.count_nonzero(part != right))
    return wrong
