"""The words of pairs: each arm of the final against serial, by Holm's method. Others have none."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ringside.stats.final import CHANCE, Pair, Word


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """P-values adjusted for several tests at once (Holm 1979, Scand. J. Statist. 6:65-70).

    The i-th smallest of k is multiplied by (k − i + 1), and is not less than the one before it.

    Example:
        >>> holm(np.array([0.03, 0.01, 0.02]))
        array([0.04, 0.03, 0.04])
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    stepped = np.take_along_axis(p_values, order, -1) * np.arange(count, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


def with_words(pairs: Sequence[Pair], serial: str, arms: Collection[str]) -> list[Pair]:
    """The pairs; those of an arm with serial have a word, if they have an interval.

    Args:
        pairs: of the final.
        serial: label of the arm without distribution; empty: there is none.
        arms: labels of those that are asked about.
    """
    asked = [
        k
        for k, pair in enumerate(pairs)
        if serial in pair.names and pair.p_value is not None and pair.names - {serial} <= set(arms)
    ]
    adjusted = holm(np.array([pairs[k].p_value or 0.0 for k in asked], np.float64))
    found = list(pairs)
    for k, p in zip(asked, adjusted.tolist(), strict=True):
        ahead: Word = "faster" if (pairs[k].ratio.value or 1.0) > 1 else "slower"
        found[k] = replace(pairs[k], word=ahead if p <= CHANCE else "cannot tell")
    return found
