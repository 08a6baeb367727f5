"""Who wins at each size, by how much, how sure: the first thing that a reader sees."""

from dataclasses import dataclass

from measure.intervals import Interval
from measure.summary import ArmRow, Summary
from measure.verdicts import PairVerdict
from report.ranking import family_of, ranked, sizes_of, word_of
from report.words import plural, ratio_between, said, share, times

CONTENDERS = ("Horovod", "tf.distribute")


@dataclass(frozen=True)
class Headline:
    """What is said of one size.

    Attributes:
        size: such as `2 replicas`.
        word: the verdict; `no verdict` where there is nothing to judge or no interval.
        sentence: who against whom; it holds the ratio.
        evidence: interval, rounds, and whether the two compute the same.
        against_serial: what the faster one is beside the run without distribution; or empty.
        ratio, interval: for the picture; None where there is none.
    """

    replicas: int
    size: str
    word: str
    sentence: str
    evidence: str
    against_serial: str
    ratio: float | None
    interval: Interval | None

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
    """One for each size, largest first: that is the one a cluster is bought for."""
    return tuple(_headline(summary, size) for size in reversed(sizes_of(ranked(summary))))


def contenders(summary: Summary, replicas: int) -> tuple[ArmRow, ArmRow] | None:
    """The two arms that a size is about, faster one first.

    The best Horovod arm and the best arm of tf.distribute; where only one family ran, the two
    fastest of all; None where there are no two.
    """
    rows = ranked(summary, replicas)
    best = {family: row for row in reversed(rows) if (family := family_of(row)) in CONTENDERS}
    if len(best) == len(CONTENDERS):
        first, second = sorted(best.values(), key=rows.index)
    elif len(rows) > 1:
        first, second = rows[:2]
    else:
        return None
    # Means are over all rounds of an arm, the ratio over those that both have.
    ratio = summary.verdict_of(first.arm.label, second.arm.label).ratio.value
    return (second, first) if ratio is not None and ratio < 1 else (first, second)


def _headline(summary: Summary, replicas: int) -> Headline:
    rows = ranked(summary, replicas)
    pair = contenders(summary, replicas)
    size = plural(replicas, "replica")
    if pair is None:
        rate = said(rows[0].throughput_estimate, "examples/s")
        return Headline(
            replicas,
            size,
            "no verdict",
            f"{rows[0].arm.label} is the only comparable arm: {rate}.",
            "",
            _against_serial(summary, rows[0]),
            None,
            None,
        )
    verdict = summary.verdict_of(pair[0].arm.label, pair[1].arm.label)
    return Headline(
        replicas=replicas,
        size=size,
        word=word_of(verdict),
        sentence=_sentence(verdict, _title(pair[1], rows)),
        evidence=_evidence(verdict, pair),
        against_serial=_against_serial(summary, pair[0]),
        ratio=verdict.ratio.value,
        interval=verdict.ratio.interval,
    )


def _title(second: ArmRow, rows: list[ArmRow]) -> str:
    """What the loser is known for: `the best tf.distribute arm`, or `the second fastest`."""
    families = {family_of(row) for row in rows}
    if families >= set(CONTENDERS):
        return f"the best {family_of(second)} arm"
    return "the second fastest"


def _sentence(verdict: PairVerdict, title: str) -> str:
    if verdict.ratio.value is None:
        reason = verdict.reason or verdict.ratio.reason
        return f"{verdict.first} and {verdict.second}, {title}: no ratio, {reason}."
    much = times(verdict.ratio.value, verdict.ratio.interval)
    if verdict.ratio.interval is None:
        return f"{verdict.first} ran {much} as fast as {verdict.second}, {title}: no verdict."
    if verdict.word == "cannot tell":
        return f"Cannot tell {verdict.first} from {verdict.second}, {title}: {much}."
    return f"{verdict.first} is {much} as fast as {verdict.second}, {title}."


def _evidence(verdict: PairVerdict, pair: tuple[ArmRow, ArmRow]) -> str:
    same = f"Same arithmetic: {_certified(pair)}."
    if verdict.ratio.interval is None:
        return f"{ratio_between(verdict) or 'No interval'}. {same}"
    told = f"95 % interval {ratio_between(verdict)}, {plural(verdict.ratio.n, 'round')}."
    if verdict.word == "cannot tell" and verdict.smallest_visible is not None:
        told += f" A difference of {share(verdict.smallest_visible)} would have been seen."
    return f"{told} {same}"


def _certified(pair: tuple[ArmRow, ArmRow]) -> str:
    kinds = [row.certificate.kind for row in pair if row.certificate]
    if len(kinds) < len(pair):
        return "not certified"
    return "certified" if set(kinds) == {"exact"} else "certified by convergence only"


def _against_serial(summary: Summary, row: ArmRow) -> str:
    """How the faster arm stands beside the run without distribution."""
    base = next((one for one in ranked(summary) if one.arm.label == summary.serial), None)
    if base is None or base is row:
        return ""
    verdict = summary.verdict_of(row.arm.label, base.arm.label)
    if verdict.ratio.value is None:
        return ""
    much, span = times(verdict.ratio.value, verdict.ratio.interval), ratio_between(verdict)
    told = f"{much} {span}, {verdict.word}" if verdict.ratio.interval else f"{much}; {span}"
    return f"Against {base.arm.label}: {told}."
