"""SplitMix64 in TensorFlow's operations on whole tensors of uint64.

Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from typing import Any

from ringside_core.keras import tf

GAMMA = 0x9E3779B97F4A7C15  # between two outputs: 2**64 ÷ the golden ratio, odd
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def word(value: int) -> Any:
    """A whole number modulo 2**64, scalar uint64."""
    return tf.constant(value % 2**64, tf.uint64)


def shifted(bits: Any, by: int) -> Any:
    """Without the lowest `by` bits of each element, uint64."""
    return tf.bitwise.right_shift(bits, word(by))


def mixed(bits: Any) -> Any:
    """The output that belongs to each state, uint64; a state has its GAMMA added already."""
    for shift, factor in _STEPS:
        bits = tf.bitwise.bitwise_xor(bits, shifted(bits, shift)) * word(factor)
    return tf.bitwise.bitwise_xor(bits, shifted(bits, 31))
