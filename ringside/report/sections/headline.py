"""Who wins, by how much, and how sure that is: a reader sees this first."""

import math
from dataclasses import dataclass

from ringside.report.ranking import family_of, ranked
from ringside.report.words import ratio_words, said, span_of, times
from ringside.stats.contest import Contest
from ringside.stats.figure import Interval
from ringside.stats.final import CHANCE, Pair
from ringside.stats.rounds import DISTURBED_SHARE, others_share
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Comparison
from ringside_core.text import listed, percent, plural

MORE_TIME = "more time, by --resume with a --budget"  # helps where the machine was quiet


@dataclass(frozen=True)
class Headline:
    """What is said of one size."""

    size: str  # such as `2 replicas`
    word: str  # see `Contest`; `one launch` without a final, `no opponent`, or `no arm`
    sentence: str  # who against whom; it holds ratio and interval
    evidence: str = ""  # launches, what would help, and whether the two compute the same
    against_serial: str = ""  # how the faster one compares with the run without distribution
    ratio: float | None = None
    interval: Interval | None = None
    loses: bool = False  # that run is faster by the 95 % interval of the two

    @property
    def decided(self) -> bool:
        """Whether it answers: one is faster, or there is no difference that matters."""
        return self.word in ("faster", "no difference")

    @property
    def line(self) -> str:
        """The whole of it in one line."""
        return " ".join(filter(None, (self.sentence, self.evidence, self.against_serial)))


def headline_of(comparison: Comparison, summary: Summary) -> Headline:
    """What is said of the largest size."""
    rows = ranked(summary)
    if not rows:
        return Headline("", "no arm", "No comparable arm has a throughput.")
    contest = summary.contest
    if contest is None:
        return _of_screening(summary, rows)
    by_label = {row.arm.label: row for row in summary.arms}
    first, second = (
        [by_label[label] for label in side] for side in (contest.first, contest.second)
    )
    best = first[0]
    return Headline(
        size=plural(contest.replicas, "replica"),
        word=contest.word,
        sentence=_sentence(contest, first, second),
        evidence=_evidence(comparison, summary, contest, [*first, *second]),
        against_serial=against_serial(summary, best),
        ratio=contest.ratio.value,
        interval=contest.ratio.interval,
        loses=loses(summary, best),
    )


def contenders(summary: Summary) -> tuple[ArmRow, ArmRow] | None:
    """The fastest of each family in the final, the faster first; None: there is no headline."""
    if summary.contest is None:
        return None
    rows = {row.arm.label: row for row in summary.arms}
    return rows[summary.contest.first[0]], rows[summary.contest.second[0]]


def _of_screening(summary: Summary, rows: list[ArmRow]) -> Headline:
    """Without a final there is no verdict."""
    size = max(row.arm.replicas for row in rows)
    best, *others = [row for row in rows if row.arm.replicas == size]
    rate = said(best.mean_throughput, "examples/s")
    if others:
        pair = summary.pair_of(best.arm.label, others[0].arm.label)
        text = f"With {plural(size, 'replica')} {named(best)} ran "
        text += "" if pair.ratio.value is None else f"{times(pair.ratio.value)} as fast as "
        text += f"{named(others[0])}: "
        if pair.ratio.interval is not None:  # serial, and nothing that distributes
            text += f"95 % interval {span_of(pair.ratio)}, {pair.word or 'no verdict'}."
            return _without(summary, best, size, pair.word or "no verdict", text)
        text += f"{pair.ratio.reason}, no verdict."
        return _without(summary, best, size, "one launch", text)
    text = f"{named(best)} is the only comparable arm with {plural(size, 'replica')}: {rate}."
    return _without(summary, best, size, "no opponent", text)


def _without(summary: Summary, best: ArmRow, size: int, word: str, text: str) -> Headline:
    beside, lost = against_serial(summary, best), loses(summary, best)
    return Headline(plural(size, "replica"), word, text, against_serial=beside, loses=lost)


def named(row: ArmRow) -> str:
    """The label of an arm, and whether its settings were searched for."""
    return f"{row.arm.label} (tuned)" if row.arm.tuned_from else row.arm.label


def _sides(first: list[ArmRow], second: list[ArmRow]) -> tuple[str, str]:
    """Both as a manager calls them: the family, and its arms unless they are called so too."""
    if family_of(first[0]) == family_of(second[0]):
        return named(first[0]), named(second[0])

    def one(side: list[ArmRow]) -> str:
        family, arms = family_of(side[0]), [row.arm.group for row in side]
        alone = arms == [family.lower()]
        return family if alone else f"{family} ({listed(arms)})"

    return one(first), one(second)


def _sentence(contest: Contest, first: list[ArmRow], second: list[ArmRow]) -> str:
    winner, other = _sides(first, second)
    size = plural(contest.replicas, "replica")
    if contest.ratio.value is None:
        return f"{winner} and {other} with {size}: no ratio, {contest.ratio.reason}."
    much = times(contest.ratio.value, contest.ratio.interval)
    within = f"95 % interval {span_of(contest.ratio)}"
    if contest.word == "no verdict":
        return f"With {size} {winner} ran {much} as fast as {other}: no verdict."
    if contest.word == "faster":
        return f"With {size} {winner} trains {much} as fast as {other} here, {within}."
    if contest.word == "no difference":
        most = math.ceil(1000 * contest.most - 1e-9) / 10  # so it is true
        return (
            f"No difference of more than {most:g} % between {winner} and {other} with {size} here: "
            f"{much}, {within}."
        )
    return f"Cannot tell whether {winner} or {other} is faster with {size} here: {much}, {within}."


def _evidence(
    comparison: Comparison, summary: Summary, contest: Contest, rows: list[ArmRow]
) -> str:
    same = f"Same arithmetic: {_certified(rows)}."
    if contest.word == "no verdict":
        why_not = summary.untrusted or contest.ratio.reason or "no interval"
        return f"{why_not[0].upper()}{why_not[1:]}. {same}"
    text = f"{plural(contest.ratio.n, 'launch')}."
    if comparison.looks > 1:
        most = percent(CHANCE * comparison.looks)
        text += (
            f" It was looked at {comparison.looks} times, so an answer is wrong in up to {most} of "
            "such experiments."
        )
    if contest.word == "cannot tell":
        text += f" What would help: {what_helps(comparison)}."
    return f"{text} {same}{_metrics(comparison, rows)}"


def _metrics(comparison: Comparison, rows: list[ArmRow]) -> str:
    """Between processes this is an all-reduce for each metric, which may turn the answer round."""
    specs = [comparison.spec_of(row.arm) for row in rows]
    as_keras = [
        spec.backend
        for spec in specs
        if spec.metrics is None and spec.merges_each_step and spec.topology.num_processes > 1
    ]
    return "".join(
        f" {name} merges metrics in each step, as Keras' own fit does there; once an epoch, as "
        f"under Horovod, it may be faster: {name}:metrics=each_epoch."
        for name in dict.fromkeys(as_keras)
    )


def what_helps(comparison: Comparison) -> str:
    """The one thing that would narrow the interval most."""
    share = others_share(comparison)
    if share is not None and share > DISTURBED_SHARE:
        return f"a quiet machine; other programs took {percent(share)} of the processors"
    return MORE_TIME


def _certified(rows: list[ArmRow]) -> str:
    certificates = [row.certificate for row in rows if row.certificate]
    kinds = [one.kind for one in certificates]
    all_of = "both" if len(rows) == 2 else "all"
    if len(kinds) < len(rows):
        return "not all certified"
    if len({one.spec.arithmetic for one in certificates}) > 1:
        # The serial runs of the two were not compared.
        return "no; each certified against the serial run of its own Keras and dtype policy"
    if set(kinds) == {"exact"}:
        return f"{all_of} certified"
    whose = "one" if "exact" in kinds else "both"
    return f"{all_of} certified, {whose} where updates wait for each other"


def _beside_serial(summary: Summary, row: ArmRow) -> Pair | None:
    """An arm and the run without distribution; None: there are no two."""
    base = next((one for one in ranked(summary) if one.arm.label == summary.serial), None)
    if base is None or base.arm.label == row.arm.label:
        return None
    pair = summary.pair_of(row.arm.label, base.arm.label)
    return None if pair.ratio.value is None else pair


def loses(summary: Summary, row: ArmRow) -> bool:
    """Whether an arm is shown to be slower than the run without distribution."""
    pair = _beside_serial(summary, row)
    return pair is not None and pair.word == "slower"


def against_serial(summary: Summary, row: ArmRow) -> str:
    """How an arm compares with the run without distribution; empty: there is none."""
    pair = _beside_serial(summary, row)
    if pair is None:
        return ""
    much = ratio_words(pair.ratio)
    if pair.ratio.interval is None:
        return f"Against {pair.second}: {much}; {pair.ratio.reason}."
    if loses(summary, row):
        return f"Slower than {pair.second}, without distribution: {much}."
    return f"Against {pair.second}: {much}, {pair.word}."
