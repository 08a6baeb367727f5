"""The words of ratios, by Holm's method."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ringside.stats.figure import Figure
from ringside.stats.final import CHANCE, Pair, Word

Name = TypeVar("Name", bound=Hashable)


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


def words(asked: Mapping[Name, tuple[Figure, float | None]]) -> dict[Name, Word]:
    """Whether each ratio is above or below 1, by Holm's method over all of them.

    Args:
        asked: ratio and p-value; a ratio without a p-value has no word.
    """
    known = {name: (ratio, p) for name, (ratio, p) in asked.items() if p is not None}
    adjusted = holm(np.array([p for _, p in known.values()], np.float64))
    found: dict[Name, Word] = {}
    for (name, (ratio, _)), p in zip(known.items(), adjusted.tolist(), strict=True):
        ahead: Word = "faster" if (ratio.value or 1.0) > 1 else "slower"
        found[name] = ahead if p <= CHANCE else "cannot tell"
    return found


def with_words(pairs: Sequence[Pair], serial: str, arms: Collection[str]) -> list[Pair]:
    """The pairs; those of an arm with serial have a word, if they have an interval.

    Args:
        pairs: of the final.
        serial: label of the arm without distribution; empty: there is none.
        arms: labels of those that are asked about.
    """
    asked = [one for one in pairs if serial in one.names and one.names - {serial} <= set(arms)]
    found = words({one.names: (one.ratio, one.p_value) for one in asked})
    return [replace(one, word=found.get(one.names, "")) for one in pairs]
