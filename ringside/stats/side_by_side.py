"""Two comparisons of the same arms at two times: what became faster, and what slower.

The rounds of one comparison share its circumstances: how warm the machine was, which other programs
ran. They show how much runs of one hour scatter, and not how much two hours differ. So throughputs
of two comparisons are not judged. What is judged is arm ÷ serial arm in the same round, now ÷
before: anything that made both faster or slower cancels.

What changes one arm more than the serial arm, such as a busier network, does not cancel: for that,
two comparisons are two samples, however many rounds they have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import stats

from ringside.stats.figure import CONFIDENCE, LEAST_LAUNCHES, Figure, Interval
from ringside.stats.final import Word, words
from ringside.stats.links import congestion_controls, rate_words, same_rate, slowest_bits_per_s
from ringside.stats.summary import ArmRow, Summary, rates_of, summarize
from ringside_core.specs import Comparison, MachineFacts, RefusalError
from ringside_core.specs.noun import differences

MEASURE = "it is what the others are measured against"
NOT_SEPARATED = "machine and stack cannot be separated: "
SLOWEST_LINK = "slowest link"
CONGESTION_CONTROL = "TCP's congestion control"
NOT_KNOWN = "not known"  # by a transfer of an earlier version, or where there is none
MAY_DIFFER = {"seed", "data_dir"}  # of what all arms share

Rates = Mapping[str, Mapping[int, float]]  # examples/s by arm and round


@dataclass(frozen=True)
class Change:
    """One arm in both comparisons.

    Attributes:
        ratio: throughput ÷ throughput of the serial arm in the same round, now ÷ before. For the
            serial arm, or if there is none, it is throughput now ÷ before, and there is no word.
        word: `faster` or `slower` now, by Holm's method over all arms that are comparable in both.
        not_comparable_before, not_comparable_now: why it must not be ranked; empty: it may be.
    """

    label: str
    before: Figure
    now: Figure
    ratio: Figure
    word: Word
    p_value: float | None
    not_comparable_before: str
    not_comparable_now: str
    reason: str = ""  # why there is no word for any ratio; empty: there can be one

    @property
    def regression(self) -> bool:
        """Whether it is slower; then it computed the right thing both times."""
        return self.word == "slower"

    @property
    def comparable(self) -> bool:
        """Whether it was proved to compute the right thing, both times."""
        return not (self.not_comparable_before or self.not_comparable_now)

    @property
    def certificate(self) -> str:
        """`lost` or `gained`; empty: as it was."""
        before, now = bool(self.not_comparable_before), bool(self.not_comparable_now)
        return "" if before == now else "lost" if now else "gained"


@dataclass(frozen=True)
class SideBySide:
    """Two comparisons.

    Attributes:
        only_before, only_now: labels of the other arms.
        serial: the change of the arm without distribution, which shows machine and TensorFlow; all
            other ratios are relative to it. None: it is not in both.
        untrusted: why no interval of one of them can be trusted; empty: they can be.
    """

    before: Comparison
    now: Comparison
    changes: tuple[Change, ...]  # of the arms that are in both, in the order of the second
    only_before: tuple[str, ...]
    only_now: tuple[str, ...]
    differs: tuple[tuple[str, str, str], ...]  # (what, before, now) of software and circumstances
    serial: Change | None
    untrusted: str


def side_by_side(before: Comparison, now: Comparison) -> SideBySide:
    """Set two comparisons side by side, arm by arm.

    Raises:
        RefusalError: they measured different things, or on different machines; with both values.
    """
    _check_same_experiment(before, now)
    one, other = summarize(before), summarize(now)
    old, new = ({row.arm.label: row for row in s.arms if not row.arm.twin_of} for s in (one, other))
    both = [label for label in new if label in old]
    for label in both:
        first, second = (rows[label].arm.model_dump(mode="json") for rows in (old, new))
        for path, was, is_now in differences(first, second):
            _refuse(f"arm {label!r}", path, was, is_now)
    serial = one.serial if one.serial == other.serial and one.serial in both else ""
    base, why_none = serial, ""
    if not serial:
        why_none = f"{NOT_SEPARATED}the serial arm is not in both comparisons"
    elif not (old[serial].comparable and new[serial].comparable):
        base, why_none = "", f"{NOT_SEPARATED}{serial} is not comparable in both comparisons"
    rates = (_rates(one), _rates(other))
    untrusted = one.untrusted or other.untrusted
    changes = [
        _change(old[label], new[label], rates, "", MEASURE, untrusted)
        if label == serial
        else _change(old[label], new[label], rates, base, why_none, untrusted)
        for label in both
    ]
    found = words({one.label: (one.ratio, one.p_value) for one in changes if one.comparable})
    changes = [replace(one, word=found.get(one.label, one.word)) for one in changes]
    return SideBySide(
        before=before,
        now=now,
        changes=tuple(changes),
        only_before=tuple(label for label in old if label not in new),
        only_now=tuple(label for label in new if label not in old),
        differs=tuple(_circumstances(before, now)),
        serial=next((change for change in changes if change.label == serial), None),
        untrusted=untrusted,
    )


def ratio_of_means(before: Sequence[float], now: Sequence[float]) -> tuple[Figure, float | None]:
    """Now ÷ before of values of independent rounds, and the p-value of no change.

    exp of the difference of the means of the logarithms, with the interval of Welch (1947,
    Biometrika 34:28-35), because the two may scatter differently. Rounds of two experiments have
    nothing in common, so nothing is paired.
    """
    n = min(len(before), len(now))
    if n == 0:
        return Figure(None, "no throughput " + ("before" if now else "now")), None
    logs = [[math.log(value) for value in values] for values in (now, before)]
    ratio = math.exp(sum(logs[0]) / len(now) - sum(logs[1]) / len(before))
    if n < LEAST_LAUNCHES:
        why_not = f"{n} of {LEAST_LAUNCHES} launches that an interval needs"
        return Figure(ratio, why_not, n=n), None
    if all(len(set(values)) == 1 for values in logs):
        return Figure(ratio, "no scatter: the samples are all equal", n=n), None
    test = stats.ttest_ind(*logs, equal_var=False)
    within = test.confidence_interval(CONFIDENCE)
    interval = Interval(math.exp(within.low), math.exp(within.high))
    return Figure(ratio, interval=interval, n=n), float(test.pvalue)


def _rates(summary: Summary) -> Rates:
    """Examples/s of every run that counts, by arm and round."""
    return {row.arm.label: rates_of(row.arm, summary.runs) for row in summary.arms}


def _against(rates: Rates, label: str, base: str) -> list[float]:
    """Throughput of an arm ÷ throughput of the base, by common rounds; without a base: ÷ 1."""
    own, other = rates[label], rates[base] if base else {}
    return [value / other.get(k, 1.0) for k, value in own.items() if not base or k in other]


def _change(
    old: ArmRow, new: ArmRow, rates: tuple[Rates, Rates], base: str, reason: str, untrusted: str
) -> Change:
    """The change of one arm against the base; with a `reason` it gets no word."""
    before, now = (_against(one, new.arm.label, base) for one in rates)
    ratio, p = ratio_of_means(before, now)
    ratio, reason = ratio.without_interval(untrusted), reason or untrusted
    return Change(
        label=new.arm.label,
        before=old.mean_throughput,
        now=new.mean_throughput,
        ratio=ratio,
        word="cannot tell",
        p_value=None if reason else p,
        not_comparable_before=old.not_comparable_because,
        not_comparable_now=new.not_comparable_because,
        reason=reason,
    )


# What may differ, and what may not


def _check_same_experiment(before: Comparison, now: Comparison) -> None:
    """Refuse two comparisons whose throughputs cannot be compared."""
    if now.created_unix_s < before.created_unix_s:
        raise RefusalError(
            "The first folder must be of the earlier comparison.",
            received=f"{before.name}, and then {now.name}, which is older",
            advice="Give them in the other order.",
        )
    for what in ("cpu_model", "cores", "gpus"):
        _refuse("machine", what, getattr(before.machine, what), getattr(now.machine, what))
    _refuse("comparison", "scaling", before.shared.scaling, now.shared.scaling)
    slots = [[host.slots for host in one.hosts] for one in (before, now)]
    _refuse("comparison", "slots of the hosts", *slots)
    old, new = (one.shared.model_dump(mode="json", exclude=MAY_DIFFER) for one in (before, now))
    for path, one, other in differences(old, new):
        _refuse("spec", path, one, other)


def _refuse(of: str, what: str, before: object, now: object) -> None:
    if before != now:
        raise RefusalError(
            "Two comparisons can be set side by side if both measured the same on one machine.",
            received=f"{what} of the {of}: {before!r} before, {now!r} now",
            advice="Run the second one again as you ran the first, or read each report alone.",
        )


def _circumstances(before: Comparison, now: Comparison) -> list[tuple[str, str, str]]:
    """What may differ: it is what one wants to compare."""
    two = (_facts(before), _facts(now))
    names = {**two[0], **two[1]}
    then, today = slowest_bits_per_s(before.links), slowest_bits_per_s(now.links)
    if then is not None and today is not None and same_rate(then, today):
        del names[SLOWEST_LINK]  # two measurements of one link never agree exactly
    if any(facts[CONGESTION_CONTROL] == NOT_KNOWN for facts in two):
        del names[CONGESTION_CONTROL]
    return [
        (name, two[0].get(name, "absent"), two[1].get(name, "absent"))
        for name in names
        if two[0].get(name) != two[1].get(name)
    ]


def _facts(comparison: Comparison) -> dict[str, str]:
    machine: MachineFacts = comparison.machine
    slowest = slowest_bits_per_s(comparison.links)
    codes = sorted({one.code_version[:12] for one in comparison.certificates})
    return {
        **machine.packages,
        "Python": machine.python,
        "kernel": machine.kernel,
        "host": machine.host,
        "hosts": ", ".join(host.name for host in comparison.hosts) or "one machine",
        "interface": comparison.interface or "none",
        CONGESTION_CONTROL: ", ".join(congestion_controls(comparison.links)) or NOT_KNOWN,
        SLOWEST_LINK: "none" if slowest is None else rate_words(slowest),
        "memory, bytes": str(machine.memory_bytes),
        "code of Ringside": ", ".join(codes) or "not verified",
        "seed of the order": str(comparison.seed),
        "seed of the data": str(comparison.shared.seed),
        "rounds": str(comparison.rounds),
    }
