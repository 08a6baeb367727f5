"""Which two arms stand for a size, which questions are asked first, and what is answered."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringside.stats.verdicts import (
    PairVerdict,
    Question,
    Sample,
    pair_verdicts,
    told_apart,
    turned,
)

if TYPE_CHECKING:
    from ringside.stats.summary import ArmRow

Pair = frozenset[str]  # labels of two arms


def judge(
    rows: Sequence["ArmRow"],
    samples: Mapping[str, Sequence[Sample]],
    serial: str,
    level: float,
    untrusted: str = "",
) -> tuple[dict[Pair, PairVerdict], dict[int, tuple[str, str]], tuple[PairVerdict, ...]]:
    """The verdicts of both families of questions, and that of each twin against its arm.

    Args:
        rows: of all arms that are ranked, and of their twins.
        samples: of these arms, by label.
        serial: label of the arm without distribution; empty: there is none.
        level: the probability of a false word that each family has.
        untrusted: why no interval can be trusted; then none is given, and no word.

    Returns:
        `verdicts` by pair, `contests` and `noise_floor`, as `Summary` has them.
    """
    pairs = itertools.combinations(_judged(rows), 2)
    apart = told_apart(samples, [Question(*pair) for pair in pairs])
    contests, first, others = questions(rows, serial, apart)

    def verdicts(family: Sequence[Question], **changes: float) -> list[PairVerdict]:
        found = pair_verdicts(samples, family, **changes)
        return [_untrusted(one, untrusted) if untrusted else one for one in found]

    by_pair = {
        frozenset((one.first, one.second)): one
        for family in (first, others)
        for one in verdicts(family, level=level)
    }
    stood = {size: by_pair[frozenset((one.first, one.second))] for size, one in contests.items()}
    twins = {row.arm.label: row.arm.twin_of for row in rows if row.arm.twin_of in samples}
    floor = [one for pair in twins.items() for one in verdicts([Question(*pair)])]
    return (
        by_pair,
        {size: (one.first, one.second) for size, one in stood.items()},
        tuple(one if one.first in twins else turned(one) for one in floor),
    )


def _judged(rows: Sequence["ArmRow"]) -> list[str]:
    return [row.arm.label for row in rows if row.comparable and not row.arm.twin_of]


def _untrusted(verdict: PairVerdict, why_not: str) -> PairVerdict:
    """The plain ratio and the reason why there is no more."""
    ratio = replace(verdict.ratio, interval=None, reason=why_not)
    return PairVerdict(verdict.first, verdict.second, ratio, reason=why_not)


def ranking(rows: Sequence["ArmRow"], replicas: int | None = None) -> list["ArmRow"]:
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


def questions(
    rows: Sequence["ArmRow"], serial: str, apart: Collection[Pair]
) -> tuple[dict[int, Question], list[Question], list[Question]]:
    """All pairs of comparable arms without twins, divided into what is asked first and the rest.

    Args:
        rows: of all arms that are ranked.
        serial: label of the arm without distribution; empty: there is none.
        apart: pairs whose own 95 % interval excludes 1.

    Returns:
        By number of replicas the two arms that stand for the size; these contests and each arm
        against serial, which are one family of Holm's; all other pairs, a family of their own.
    """
    own = _judged(rows)
    sizes = sorted({row.arm.replicas for row in ranking(rows)})
    contests = {size: found for size in sizes if (found := _contest(ranking(rows, size), apart))}
    first = {frozenset((one.first, one.second)): one for one in contests.values()}
    for label in own:
        if serial in own and label != serial:
            first.setdefault(frozenset((label, serial)), Question(label, serial))
    others = [Question(*pair) for pair in itertools.combinations(own, 2)]
    rest = [one for one in others if frozenset((one.first, one.second)) not in first]
    return contests, list(first.values()), rest


def _contest(rows: Sequence["ArmRow"], apart: Collection[Pair]) -> Question | None:
    """The best arms of the two fastest families that distribute, else the two fastest arms."""
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


def _rivals(labels: Sequence[str], apart: Collection[Pair]) -> int:
    """How many arms could have been the fastest of these, fastest first: those not told from it."""
    return 1 + sum(frozenset((labels[0], other)) not in apart for other in labels[1:])
