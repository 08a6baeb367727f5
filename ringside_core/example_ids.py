"""Hashes of example ids in NumPy: what a ledger must hold, without the code that fills ledgers."""

import functools
from typing import TYPE_CHECKING

from ringside_core.specs import LedgerDigest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Ids at a time.
CHUNK = 1 << 20


def splitmix64(ids: "NDArray[np.int64]") -> "NDArray[np.uint64]":
    """The hash of each id; Steele, Lea, Flood 2014."""
    import numpy as np

    z = ids.astype(np.uint64) + np.uint64(_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
    return z ^ (z >> np.uint64(31))


@functools.lru_cache(maxsize=8)
def digest_of_each_once(count: int) -> LedgerDigest:
    """The digest of the ids 0…count-1, each fed once."""
    import numpy as np

    total = 0
    for first in range(0, count, CHUNK):
        hashes = splitmix64(np.arange(first, min(first + CHUNK, count)))
        total += int(hashes.sum(dtype=np.uint64))  # modulo 2**64
    return LedgerDigest(
        count=count, id_sum=count * (count - 1) // 2, id_hash=f"{total % 2**64:016x}"
    )
