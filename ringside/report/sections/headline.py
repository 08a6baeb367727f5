"""Who wins at each size, by how much, and how sure that is: a reader sees this first."""

import math
from dataclasses import dataclass

from ringside.report.ranking import family_of, ranked, sizes_of, word_of
from ringside.report.words import covers, ratio_between, said, times
from ringside.stats.figure import Interval
from ringside.stats.summary import ArmRow, Summary
from ringside.stats.verdicts import PairVerdict, turned
from ringside_core.text import percent, plural


@dataclass(frozen=True)
class Headline:
    """What is said of one size."""

    replicas: int
    size: str  # such as `2 replicas`
    word: str  # the verdict, `no verdict` without an interval, or `no opponent`
    sentence: str  # who against whom; it holds the ratio
    evidence: str  # interval, rounds, and whether the two compute the same
    against_serial: str  # how the faster one compares with the run without distribution
    ratio: float | None
    interval: Interval | None
    loses: bool = False  # that run is faster by the 95 % interval of the two

    @property
    def told(self) -> bool:
        """Whether there is a winner."""
        return self.word in ("faster", "slower")

    @property
    def line(self) -> str:
        """The whole of it in one line."""
        parts = [f"{self.size}: {self.sentence}", self.evidence, self.against_serial]
        return " ".join(part for part in parts if part)


def headlines(summary: Summary) -> tuple[Headline, ...]:
    """One for each size, the largest first, because a cluster is bought for it."""
    return tuple(_headline(summary, size) for size in reversed(sizes_of(ranked(summary))))


def contenders(summary: Summary, replicas: int) -> tuple[ArmRow, ArmRow] | None:
    """The two arms that stand for a size, the faster one first; None: there are no two."""
    if replicas not in summary.contests:
        return None
    rows = {row.arm.label: row for row in summary.arms}
    one = summary.verdict_of(*summary.contests[replicas])
    faster = turned(one) if (one.ratio.value or 1.0) < 1 else one
    return rows[faster.first], rows[faster.second]


def _headline(summary: Summary, replicas: int) -> Headline:
    rows = ranked(summary, replicas)
    pair = contenders(summary, replicas)
    size = plural(replicas, "replica")
    best = pair[0] if pair else rows[0]
    beside, lost = against_serial(summary, best), loses(summary, best)
    if pair is None:
        rate = said(best.mean_throughput, "examples/s")
        only = f"{named(best)} is the only comparable arm with {size}: {rate}."
        return Headline(replicas, size, "no opponent", only, "", beside, None, None, lost)
    verdict = summary.verdict_of(pair[0].arm.label, pair[1].arm.label)
    return Headline(
        replicas=replicas,
        size=size,
        word=word_of(verdict),
        sentence=_sentence(verdict, pair),
        evidence=_evidence(verdict, pair),
        against_serial=beside,
        ratio=verdict.ratio.value,
        interval=verdict.ratio.interval,
        loses=lost,
    )


def named(row: ArmRow) -> str:
    """The label of an arm, and whether its settings were searched for."""
    return f"{row.arm.label} (tuned)" if row.arm.tuned_from else row.arm.label


def _title(pair: tuple[ArmRow, ArmRow]) -> str:
    """What the two are: the fastest of the arms that were measured."""
    first, second = (family_of(row) for row in pair)
    if first == second:
        return f"the two fastest measured arms, both {first}"
    if all(row.arm.capabilities.family != "none" for row in pair):
        return f"the fastest measured arms of {first} and {second}"
    both = f"{first}, {second}".replace("No distribution", "no distribution")
    return f"the two fastest measured arms ({both})"


def _sentence(verdict: PairVerdict, pair: tuple[ArmRow, ArmRow]) -> str:
    (first, second), title = map(named, pair), _title(pair)
    if verdict.ratio.value is None:
        reason = verdict.reason or verdict.ratio.reason
        return f"{first} and {second}, {title}: no ratio, {reason}."
    much = times(verdict.ratio.value, verdict.ratio.interval)
    if verdict.ratio.interval is None:
        return f"{first} ran {much} as fast as {second}, {title}: no verdict."
    if verdict.word == "cannot tell":
        return f"Cannot tell {first} from {second}, {title}: {much}."
    return f"{first} is {much} as fast as {second}, {title}."


def _evidence(verdict: PairVerdict, pair: tuple[ArmRow, ArmRow]) -> str:
    same = f"Same arithmetic: {_certified(pair)}."
    if verdict.ratio.interval is None:
        why_not = ratio_between(verdict) or "no interval"
        return f"{why_not[0].upper()}{why_not[1:]}. {same}"
    told = f"95 % interval {ratio_between(verdict)}, {plural(verdict.ratio.n, 'round')}"
    told += f"{_choice(verdict)}."
    if why := _why_not_told(verdict):
        told += f" {why[0].upper()}{why[1:]}."
    if verdict.word == "cannot tell" and verdict.smallest_visible is not None:
        told += f" {seen(verdict.smallest_visible)}."
    return f"{told} {same}"


def _choice(verdict: PairVerdict) -> str:
    """Why the interval is wider than that of a pair that nobody chose; empty: it is not."""
    lucky = [
        f"{arm} was chosen from {count} arms that are not told apart"
        for arm, count in zip((verdict.first, verdict.second), verdict.chosen_of, strict=True)
        if count > 1
    ]
    return f" (wider, because {' and '.join(lucky)})" if lucky else ""


def seen(smallest_visible: float) -> str:
    """Which difference this experiment would have shown, even if it is as noisy as it may be."""
    if math.isinf(smallest_visible):
        return "Nothing could have been seen: not even a difference of 100 % would have been sure"
    much = percent(smallest_visible)
    return f"A difference of {much} would have been seen in 4 of 5 such experiments"


def _why_not_told(verdict: PairVerdict) -> str:
    """Why the word is `cannot tell` although the pair's own interval excludes 1; else empty."""
    alone = verdict.ratio.interval is not None and not covers(verdict.ratio, 1)
    return verdict.reason if verdict.word == "cannot tell" and alone else ""


def _certified(pair: tuple[ArmRow, ArmRow]) -> str:
    certificates = [row.certificate for row in pair if row.certificate]
    kinds = [one.kind for one in certificates]
    if len(kinds) < len(pair):
        return "one or both not certified"
    if len({one.spec.arithmetic for one in certificates}) > 1:
        # Nobody has compared the serial runs of the two.
        return "no; each certified against the serial run of its own Keras and dtype policy"
    if set(kinds) == {"exact"}:
        return "both certified"
    whose = "one" if "exact" in kinds else "both"
    return f"both certified, {whose} where updates wait for each other"


def _beside_serial(summary: Summary, row: ArmRow) -> PairVerdict | None:
    """The verdict on an arm and the run without distribution; None: there are no two."""
    base = next((one for one in ranked(summary) if one.arm.label == summary.serial), None)
    if base is None or base.arm.label == row.arm.label:
        return None
    verdict = summary.verdict_of(row.arm.label, base.arm.label)
    return None if verdict.ratio.value is None else verdict


def loses(summary: Summary, row: ArmRow) -> bool:
    """Whether the 95 % interval says that an arm is slower than the run without distribution.

    The arm is the fastest of its size, and the luck of the fastest can only hide that it loses. So
    the interval of this pair alone says it, whatever else was asked.
    """
    verdict = _beside_serial(summary, row)
    within = verdict.ratio.interval if verdict else None
    return within is not None and within.high < 1


def against_serial(summary: Summary, row: ArmRow) -> str:
    """How an arm compares with the run without distribution; empty: there is none."""
    verdict = _beside_serial(summary, row)
    if verdict is None or verdict.ratio.value is None:
        return ""
    much, span = times(verdict.ratio.value, verdict.ratio.interval), ratio_between(verdict)
    if loses(summary, row):
        told = f"Slower than {verdict.second}, without distribution: {much} {span}"
        why = _why_not_told(verdict)
        return f"{told}, by the interval of this pair ({why})." if why else f"{told}."
    told = f"{much} {span}, {verdict.word}" if verdict.ratio.interval else f"{much}; {span}"
    if why := _why_not_told(verdict):
        told += f": {why}"
    return f"Against {verdict.second}: {told}."
