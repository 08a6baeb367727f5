"""What an input costs, and what a change of it gains: arms against the serial one as it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from ringside.stats.figure import Figure, geometric_mean_with_interval
from ringside.stats.final import Pair, final_pairs, turned
from ringside.stats.rounds import launches_of
from ringside.stats.screening import ratio_once
from ringside.stats.summary import samples_of
from ringside_core.specs import Arm, Comparison


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
    """

    base: Arm
    changed: tuple[Arm, ...]
    alone: Arm | None
    in_memory: Arm | None
    rates: Mapping[str, Figure]
    ratios: Mapping[str, Figure]


def input_study(comparison: Comparison) -> InputStudy | None:
    """The study of a comparison; None: it is none of an input.

    Certificates do not matter here: what a change does to the rows stands beside its ratio.
    """
    arms = [arm for arm in comparison.arms if not arm.twin_of]
    base = next((arm for arm in arms if not arm.for_breakdown), None)
    if base is None or not comparison.stages:
        return None
    launches, samples = launches_of(comparison), samples_of(comparison)
    final = {label: samples[label] for label in comparison.finalists}
    pairs = {pair.names: pair for pair in final_pairs(final, launches.final)[0]}
    rates, ratios = {}, {}
    for arm in arms:
        counted = launches.final if arm.label in final and launches.final else (0,)
        own = samples[arm.label]
        rates[arm.label] = geometric_mean_with_interval(
            [own[number].value for number in counted if number in own]
        )
        if arm is not base:
            pair = pairs.get(frozenset((arm.label, base.label)))
            pair = pair or ratio_once(samples, arm.label, base.label)
            ratios[arm.label] = _as(pair, arm.label)
    changed = [arm for arm in arms if arm.settings.input is not None]
    kinds = {arm.ablation: arm for arm in arms}
    return InputStudy(
        base=base,
        changed=tuple(sorted(changed, key=lambda arm: -(ratios[arm.label].value or 0.0))),
        alone=kinds.get("no_training"),
        in_memory=kinds.get("no_input"),
        rates=rates,
        ratios=ratios,
    )


def _as(pair: Pair, first: str) -> Figure:
    return (pair if pair.first == first else turned(pair)).ratio
