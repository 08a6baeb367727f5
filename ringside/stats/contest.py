"""The headline: which of two families is faster at a size, and by how much.

It is the one question that is asked first, at the full 5 %. A family may have two contenders that
the screening could not tell apart; then the claim is about both. Every contender of the one family
is faster than every one of the other holds at 5 % if each pair does (Berger 1982, intersection-
union tests), and so does "no difference of more than x %".
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ringside.stats.figure import Figure, Interval
from ringside.stats.final import Pair, turned

Verdict = Literal["faster", "no difference", "cannot tell", "no verdict"]
# An interval that holds 1 and reaches no further than this says that the two are much the same.
MOST_SAME = 0.10


@dataclass(frozen=True)
class Contest:
    """The headline of a size.

    Attributes:
        first, second: the contenders that stand for each family; the family that is faster by ratio
            is the first.
        ratio: of the fastest of each. The interval holds those of all pairs of their contenders.
    """

    replicas: int
    first: tuple[str, ...]
    second: tuple[str, ...]
    ratio: Figure
    word: Verdict

    @property
    def most(self) -> float:
        """The difference that the interval allows at most, as a share; infinite: there is none."""
        within = self.ratio.interval
        return math.inf if within is None else max(within.high, 1 / within.low) - 1


def sides(
    families: Mapping[str, str], rates: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The contenders of the two families; of one family alone, its two fastest arms.

    Args:
        families: of each contender, by label.
        rates: examples/s of each, by label; fastest first they stand in each side.

    Returns:
        None: there are no two.
    """
    ordered = sorted((label for label in families if label in rates), key=lambda a: -rates[a])
    grouped: dict[str, list[str]] = {}
    for label in ordered:
        grouped.setdefault(families[label], []).append(label)
    groups = list(grouped.values())
    if len(groups) < 2:
        groups = [[label] for label in ordered[:2]]
    return (tuple(groups[0]), tuple(groups[1])) if len(groups) > 1 else None


def contest(
    replicas: int, first: Sequence[str], second: Sequence[str], pairs: Mapping[frozenset[str], Pair]
) -> Contest:
    """The headline, from the pairs of the final.

    A contender that the final tells apart from a faster one of its family does not stand for it.

    Args:
        replicas: of all of them.
        first: contenders of one family, fastest first.
        second: those of the other.
        pairs: of the final.
    """
    one, other = (_standing(side, pairs) for side in (first, second))
    of_best = _pair(one[0], other[0], pairs)
    if (of_best.ratio.value or 1.0) < 1:
        one, other, of_best = other, one, turned(of_best)
    every = [_pair(*names, pairs).ratio.interval for names in itertools.product(one, other)]
    known = [interval for interval in every if interval is not None]
    if len(known) < len(every):
        return Contest(replicas, one, other, replace(of_best.ratio, interval=None), "no verdict")
    within = Interval(min(i.low for i in known), max(i.high for i in known))
    found = Contest(replicas, one, other, replace(of_best.ratio, interval=within), "faster")
    if within.low > 1:
        return found
    return replace(found, word="no difference" if found.most <= MOST_SAME else "cannot tell")


def _standing(side: Sequence[str], pairs: Mapping[frozenset[str], Pair]) -> tuple[str, ...]:
    """The fastest, and those that the final does not tell apart from it; fastest first."""
    ahead = side[0]
    for label in side[1:]:
        if (_pair(label, ahead, pairs).ratio.value or 0.0) > 1:
            ahead = label
    within = {one: _pair(ahead, one, pairs).ratio.interval for one in side if one != ahead}
    return (ahead, *(one for one, found in within.items() if found is None or found.low <= 1))


def _pair(first: str, second: str, pairs: Mapping[frozenset[str], Pair]) -> Pair:
    """In this order; a pair that the final does not have has no ratio."""
    found = pairs.get(frozenset((first, second)))
    if found is None:
        return Pair(first, second, Figure(None, "not both were in the final"))
    return found if found.first == first else turned(found)
