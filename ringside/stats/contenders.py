"""Which two arms stand for a size, which questions are asked first, and what is answered."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ringside.stats.figure import Figure
from ringside.stats.verdicts import (
    PairVerdict,
    Question,
    Sample,
    pair_verdicts,
    told_apart,
    turned,
)
from ringside_core.specs import Arm


class Ranked(Protocol):
    """What of an arm's row decides about its rank."""

    @property
    def arm(self) -> Arm:
        """The arm itself."""

    @property
    def mean_throughput(self) -> Figure:
        """Over the rounds that count, examples/s."""

    @property
    def comparable(self) -> bool:
        """Whether it is proved to compute the same as the others."""


Row = TypeVar("Row", bound=Ranked)


@dataclass(frozen=True)
class Questions:
    """What is asked of the comparable arms, in this order.

    Attributes:
        contests: by number of replicas: the two arms that stand for the size.
        first: the contests, and each arm against serial. They are one family of Holm's: all its
            words together are right with the probability that is promised.
        others: all other pairs, as a family of their own.
    """

    contests: Mapping[int, Question]
    first: tuple[Question, ...]
    others: tuple[Question, ...]


@dataclass(frozen=True)
class Judged:
    """All that is said of pairs; see the fields of `Summary` of the same names.

    Attributes:
        by_pair: the verdict of each pair of comparable arms without twins, by their labels.
    """

    by_pair: Mapping[frozenset[str], PairVerdict]
    asked_first: frozenset[frozenset[str]]
    contests: Mapping[int, tuple[str, str]]
    noise_floor: tuple[PairVerdict, ...]


def judge(
    rows: Sequence[Ranked],
    samples: Mapping[str, Sequence[Sample]],
    serial: str,
    level: float,
    untrusted: str = "",
) -> Judged:
    """The verdicts of both families of questions, and that of each twin against its arm.

    Args:
        rows: of all arms that are ranked, and of their twins.
        samples: of these arms, by label.
        serial: label of the arm without distribution; empty: there is none.
        level: the probability of a false word that each family has.
        untrusted: why no interval can be trusted; then none is given, and no word.
    """
    own = [row.arm.label for row in rows if row.comparable and not row.arm.twin_of]
    apart = told_apart(samples, [Question(*pair) for pair in itertools.combinations(own, 2)])
    asked = questions(rows, serial, apart)
    by_pair = {
        frozenset((one.first, one.second)): _trusted(one, untrusted)
        for family in (asked.first, asked.others)
        for one in pair_verdicts(samples, family, level=level)
    }
    stood = {
        size: by_pair[frozenset((one.first, one.second))] for size, one in asked.contests.items()
    }
    twins = [(row.arm.label, row.arm.twin_of) for row in rows if row.arm.twin_of in samples]
    floor = [
        _trusted(one, untrusted)
        for pair in twins
        for one in pair_verdicts(samples, [Question(*pair)])
    ]
    again = {twin for twin, _ in twins}
    return Judged(
        by_pair=by_pair,
        asked_first=frozenset(frozenset((one.first, one.second)) for one in asked.first),
        contests={size: (one.first, one.second) for size, one in stood.items()},
        noise_floor=tuple(one if one.first in again else turned(one) for one in floor),
    )


def _trusted(verdict: PairVerdict, why_not: str) -> PairVerdict:
    """The verdict; if there is a reason not to trust it, the plain ratio and that reason."""
    if not why_not:
        return verdict
    return replace(
        verdict,
        ratio=replace(verdict.ratio, interval=None, reason=why_not),
        word="cannot tell",
        p_value=None,
        p_adjusted=None,
        smallest_visible=None,
        reason=why_not,
    )


def ranking(rows: Sequence[Row], replicas: int | None = None) -> list[Row]:
    """Rows of arms that are proved to compute the same and have a throughput, fastest first.

    Args:
        rows: of arms; twins are left out.
        replicas: only arms of this size.
    """
    kept = [
        row
        for row in rows
        if row.comparable
        and not row.arm.twin_of
        and row.mean_throughput.value is not None
        and replicas in (None, row.arm.replicas)
    ]
    return sorted(kept, key=lambda row: -(row.mean_throughput.value or 0.0))


def questions(rows: Sequence[Ranked], serial: str, apart: Collection[frozenset[str]]) -> Questions:
    """All pairs of comparable arms without twins, divided into what is asked first and the rest.

    Args:
        rows: of all arms that are ranked.
        serial: label of the arm without distribution; empty: there is none.
        apart: pairs whose own 95 % interval excludes 1.
    """
    own = [row.arm.label for row in rows if row.comparable and not row.arm.twin_of]
    sizes = sorted({row.arm.replicas for row in ranking(rows)})
    contests = {size: found for size in sizes if (found := _contest(ranking(rows, size), apart))}
    asked = {frozenset((one.first, one.second)): one for one in contests.values()}
    for label in own:
        if serial in own and label != serial:
            asked.setdefault(frozenset((label, serial)), Question(label, serial))
    others = (Question(*pair) for pair in itertools.combinations(own, 2))
    return Questions(
        contests=contests,
        first=tuple(asked.values()),
        others=tuple(one for one in others if frozenset((one.first, one.second)) not in asked),
    )


def _contest(rows: Sequence[Ranked], apart: Collection[frozenset[str]]) -> Question | None:
    """The two arms that stand for a size, of its arms, fastest first; None: there are no two.

    The best arms of the two fastest families that distribute (Horovod and tf.distribute). If only
    one of them ran, the two fastest arms of all. An arm was chosen from those that are not told
    apart from it: one that is far behind could not have been in its place.
    """
    families: dict[str, list[str]] = {}
    for row in rows:
        families.setdefault(row.arm.capabilities.family, []).append(row.arm.label)
    families.pop("none", None)
    if len(families) > 1:
        one, other = list(families.values())[:2]
        return Question(one[0], other[0], _rivals(one, apart), _rivals(other, apart))
    labels = [row.arm.label for row in rows]
    if len(labels) < 2:
        return None
    rivals = _rivals(labels[1:], apart)  # whoever could have been second could have been first
    return Question(labels[0], labels[1], rivals, rivals)


def _rivals(labels: Sequence[str], apart: Collection[frozenset[str]]) -> int:
    """How many arms could have been the fastest of these, fastest first: those not told from it."""
    return 1 + sum(frozenset((labels[0], other)) not in apart for other in labels[1:])
