"""What an input costs, and what a change of it gains: arms against the serial one as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringside.stats.figure import Figure, geometric_mean_with_interval
from ringside.stats.final import final_pairs, turned, words
from ringside.stats.rounds import launches_of, why_untrusted
from ringside.stats.screening import once, ratio_once
from ringside.stats.step_times import chief_of
from ringside.stats.summary import Summary, samples_of
from ringside_core.specs import Arm, Comparison, Run

KEEPS = ("cache", "cache_file", "snapshot")  # batches of the first epoch


@dataclass(frozen=True)
class InputStudy:
    """Arms of one input; all against `base`.

    Attributes:
        base: the arm as its author wrote it.
        changed: arms with a change, fastest first.
        alone: the arm that only reads; None: there is none.
        in_memory: the arm that trains one batch again and again; None: there is none.
        rates: examples/s by label.
        ratios: ÷ base by label.
        faster: labels of changes that are faster, by Holm's method over all of them.
    """

    base: Arm
    changed: tuple[Arm, ...]
    alone: Arm | None
    in_memory: Arm | None
    rates: Mapping[str, Figure]
    ratios: Mapping[str, Figure]
    faster: frozenset[str]


def input_study(comparison: Comparison, summary: Summary) -> InputStudy | None:
    """The study of a comparison; None: it is none of an input.

    Pairs that the summary has not are of arms that only read, or are not certified: what a change
    does to the rows stands beside its ratio.
    """
    arms = [arm for arm in comparison.arms if not arm.twin_of]
    base = next((arm for arm in arms if not arm.for_breakdown), None)
    if base is None or not comparison.stages:
        return None
    launches, samples = launches_of(comparison), samples_of(comparison)
    final = {label: samples[label] for label in comparison.finalists}
    pairs = {pair.names: pair for pair in final_pairs(final, launches.final)[0]}
    rates, ratios, asked = {}, {}, {}
    untrusted = why_untrusted(comparison)
    for arm in arms:
        runs = [run for run in comparison.runs if run.arm == arm.label and launches.has(run)]
        own = samples[arm.label]
        why_not = _why_not(comparison, arm, runs)
        values = [own[run.round].value for run in runs if run.round in own]
        rate = geometric_mean_with_interval([] if why_not else values)
        rates[arm.label] = rate.without_interval(untrusted)
        if arm is base:
            continue
        names = frozenset((arm.label, base.label))
        pair = next((one for one in summary.pairs if one.names == names), pairs.get(names))
        pair = pair or ratio_once(once(samples, launches.first), arm.label, base.label)
        ratio = (pair if pair.first == arm.label else turned(pair)).ratio
        ratio = Figure(None, why_not) if why_not else ratio.without_interval(untrusted)
        ratios[arm.label] = ratio
        if ratio.interval and arm.settings.input:
            asked[arm.label] = ratio, pair.p_value
    changed = [arm for arm in arms if arm.settings.input is not None]
    kinds = {arm.ablation: arm for arm in arms}
    return InputStudy(
        base=base,
        changed=tuple(sorted(changed, key=lambda arm: -(ratios[arm.label].value or 0.0))),
        alone=kinds.get("no_training"),
        in_memory=kinds.get("no_input"),
        rates=rates,
        ratios=ratios,
        faster=frozenset(label for label, word in words(asked).items() if word == "faster"),
    )


def _why_not(comparison: Comparison, arm: Arm, runs: Sequence[Run]) -> str:
    """Why an arm has no figure; empty: it has."""
    own = [run for run in comparison.runs if run.arm == arm.label]
    lost = [run for run in own if not run.outcome.completed]
    if lost and len(lost) == len(own):
        return str(lost[0].outcome).splitlines()[0]
    if arm.settings.input in KEEPS and not all(map(_has_kept, runs)):
        return "its first epoch took most of a launch: give a longer --budget, or fewer rows"
    return ""


def _has_kept(run: Run) -> bool:
    """Whether at least half of the blocks lie behind the first epoch, whose batches are kept."""
    chief = chief_of(run)
    if chief is None or not chief.epochs or not run.blocks:
        return True
    return chief.epochs[0].steps <= run.blocks[len(run.blocks) // 2].begun_after
