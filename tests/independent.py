"""What Ringside computes, computed otherwise: for all tests that compare with it."""

import numpy as np


def order(epoch: int, *, seed: int, total: int) -> list[int]:
    """Example numbers in the order of an epoch."""
    from ringside_core.keras import tf

    shuffle = tf.random.experimental.index_shuffle
    last = np.int64(total - 1)
    return [int(shuffle(np.int64(p), seed=[seed, epoch], max_index=last)) for p in range(total)]


def splitmix64(state: int) -> int:
    """Next output of splitmix64 (Steele, Lea, Flood 2014), in Python's integers."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)
