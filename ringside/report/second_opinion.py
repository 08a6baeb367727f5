"""The main numbers of a report, computed again from the JSON by other code.

Nothing here calls `ringside.stats`, so that a mistake there is seen as a difference. Only some
decisions are taken from there: which epochs are warm-up, which rounds count, and which questions
are asked first, at which level, of arms that were chosen from how many.
"""

import functools
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ringside.report.differences import Difference
from ringside.report.second_figures import blocks_of, figures_of
from ringside.report.source import RESULTS, read_text
from ringside.stats.figure import Figure
from ringside.stats.summary import ArmRow, Summary
from ringside.stats.verdicts import PairVerdict
from ringside_core.specs import Comparison

Array = NDArray[np.float64]
MOST_TAKEN = 0.6  # of the processors, by others, in a live comparison
DIGITS = 1e-6  # relative; both ways round in another order, drift solves least squares in between
# Figures of a run that are computed here too.
FIGURES = (
    "throughput_examples_s",
    "whole_epochs_examples_s",
    "step_time_ms",
    "step_p95_ms",
    "step_p99_ms",
    "padding_share",
    "peak_pss_bytes",
    "startup_s",
    "time_to_target_s",
    "cpu_s_per_1000_examples",
    "startup_cpu_s",
)
Told = float | str | None
Pair = tuple[str, Told, float | str]  # what it is, by the summary, computed here


@dataclass(frozen=True)
class Opinion:
    """What the raw samples come to.

    Attributes:
        figures: [position, figure], not a number where there is none.
        counting: arm, round, position and examples/s (`rate`) of the runs in rounds that count, of
            all arms but breakdown arms; the rate may be missing.
        replicas: of each arm.
        blocks: [(arm, round), pass], examples/s of the blocks of live rounds, not a number where
            there is none; empty: the rounds are fresh.
        every: as `counting`, of all arms.
        trusted: others left the runs so much of the processors that intervals mean something.
    """

    figures: pd.DataFrame
    counting: pd.DataFrame
    replicas: Mapping[str, int]
    blocks: pd.DataFrame = field(default_factory=pd.DataFrame)
    every: pd.DataFrame = field(default_factory=pd.DataFrame)
    trusted: bool = True

    @property
    def rates(self) -> pd.DataFrame:
        """The runs that count and have a rate."""
        return self.counting.dropna()

    @functools.cached_property
    def typical_variance(self) -> float:
        """The 40 % quantile of all pairs' variances, each without its bias."""
        pairs = itertools.combinations(sorted(self.rates["arm"].unique()), 2)
        known = [one for one in (_alone(self, *pair) for pair in pairs) if one.freedom]
        if not known:
            return math.nan
        unbiased = [one.variance * one.freedom / stats.chi2.ppf(0.4, one.freedom) for one in known]
        return float(np.quantile(unbiased, 0.4))


def second_opinion(
    folder: Path, *, warm_up_epochs: Mapping[int, int], rounds: Collection[int]
) -> Opinion:
    """Compute everything again from results.json.

    Args:
        folder: of the comparison.
        warm_up_epochs: how many epochs at the start of a run do not count, by its position.
        rounds: that count.
    """
    text = read_text(folder / RESULTS)
    body = json.loads(text)
    if body["schema_version"] != Comparison.SCHEMA_VERSION:  # then its fields have older names
        body = json.loads(Comparison.from_json(text).to_json())
    rows = {
        run["position"]: figures_of(run, warm_up_epochs[run["position"]]) for run in body["runs"]
    }
    ranked = {
        arm["label"]: arm["replicas"]
        for arm in body["arms"]
        if arm["ablation"] == "none" and arm["global_batch"] is None
    }
    every = pd.DataFrame(
        [
            {
                "arm": run["arm"],
                "round": run["round"],
                "position": run["position"],
                "rate": rows[run["position"]].get("throughput_examples_s", math.nan),
            }
            for run in body["runs"]
            if run["round"] in rounds
        ],
        columns=["arm", "round", "position", "rate"],
    )
    counting = every[every["arm"].isin(list(ranked))].reset_index(drop=True)
    where = {one.position: (one.arm, one.round) for one in counting.itertuples()}
    blocks = {
        where[run["position"]]: blocks_of(run, warm_up_epochs[run["position"]]).eval("examples / s")
        for run in body["runs"]
        if run["blocks"] and run["position"] in where and rows[run["position"]]
    }
    return Opinion(
        figures=pd.DataFrame.from_dict(rows, orient="index", columns=list(FIGURES)),
        every=every,
        counting=counting,
        replicas=ranked,
        blocks=pd.DataFrame(blocks).T.rename_axis(["arm", "round"]) if blocks else pd.DataFrame(),
        trusted=not body["live"] or _taken(body["runs"]) <= MOST_TAKEN,
    )


def _taken(runs: Sequence[dict[str, Any]]) -> float:
    """Share of the runs' processors that others and the hypervisor took; 0 if nobody counted."""
    loads = pd.DataFrame([run["load"] for run in runs if run["load"] is not None])
    if loads.empty:
        return 0.0
    taken = loads["others_cpu_s"].sum() + loads["steal_cpu_s"].sum()
    return float(taken / (loads["cores"] * loads["wall_s"]).sum())


def geometric_mean(rates: pd.Series) -> tuple[float, float, float]:
    """Geometric mean and 95 % interval of independent runs: (value, low, high)."""
    logs = np.log(rates.to_numpy(dtype=float))
    if not len(logs):
        return math.nan, math.nan, math.nan
    mean = float(np.mean(logs))
    if len(logs) < 3:
        return math.exp(mean), math.nan, math.nan
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=mean, scale=stats.sem(logs))
    return math.exp(mean), math.exp(low), math.exp(high)


@dataclass(frozen=True)
class Ratio:
    """Logarithm of the throughput of one arm ÷ that of another; NaN: it cannot be computed."""

    log: float
    error: float
    freedom: float
    rounds: int

    def ends(self, of_first: int = 1, of_second: int = 1) -> tuple[float, float, float]:
        """Ratio and 95 % interval, where each arm is the fastest of so many."""
        low, high = (
            stats.t.ppf(1 - 0.025 / of, self.freedom) * self.error if self.error else self.error
            for of in (of_first, of_second)
        )
        return math.exp(self.log), math.exp(self.log - low), math.exp(self.log + high)

    def p_value(self, of_first: int = 1, of_second: int = 1) -> float:
        """Two-sided, where each arm is the fastest of so many."""
        if math.isnan(self.error):
            return math.nan
        if not self.error:
            return float(self.log == 0)
        p = 2 * float(stats.t.sf(abs(self.log) / self.error, self.freedom))
        return min(1.0, p * (of_first if self.log > 0 else of_second))


def drift_of(rates: pd.DataFrame) -> tuple[float, float]:
    """Change of log examples/s from one place in the order to the next, and its information.

    Ordinary least squares of log y = arm + round + drift · position
    (docs/decisions/0005-verdicts.md), after Frisch and Waugh (1933): what arms and rounds explain
    is first taken from both sides.
    """
    if rates.empty:
        return 0.0, 0.0
    design = pd.concat([pd.get_dummies(rates["arm"]), pd.get_dummies(rates["round"])], axis=1)
    x = design.to_numpy(float)
    both = np.column_stack([rates["position"], np.log(rates["rate"])])
    left = both - x @ np.linalg.lstsq(x, both, rcond=None)[0]
    information = float(left[:, 0] @ left[:, 0])
    slope = float(left[:, 0] @ left[:, 1]) / information if information > 1e-6 else 0.0
    return slope, information


@dataclass(frozen=True)
class _Alone:
    """What a pair says of itself: the mean log ratio, and the variance of a round's log ratio.

    The variance of the mean is `share` times that. A freedom of 0: there is no variance.
    """

    log: float
    variance: float
    freedom: float
    share: float
    rounds: int


def _alone(opinion: Opinion, first: str, second: str) -> _Alone:
    return (_fresh if opinion.blocks.empty else _live)(opinion, first, second)


def _live(opinion: Opinion, first: str, second: str) -> _Alone:
    """Per round the mean of the middle half of log ratios over passes."""
    arms = opinion.blocks.index.get_level_values("arm")
    one, other = (opinion.blocks[arms == arm].droplevel("arm") for arm in (first, second))
    middles = []
    for _, passes in (one / other).iterrows():
        ordered = sorted(np.log(passes.dropna()))
        cut = max(1, len(ordered) // 4)
        if len(ordered) >= 3:
            middles.append(float(np.mean(ordered[cut:-cut])))
    m = len(middles)
    if m < 3:
        return _Alone(float(np.mean(middles)) if m else math.nan, math.nan, 0, math.nan, m)
    return _Alone(float(np.mean(middles)), float(np.var(middles, ddof=1)), m - 1, 1 / m, m)


def _fresh(opinion: Opinion, first: str, second: str) -> _Alone:
    """Over the rounds in which both ran, less the drift of all arms."""
    rates = opinion.rates
    slope, information = drift_of(rates)
    one, other = (rates[rates["arm"] == arm] for arm in (first, second))
    both = pd.merge(one, other, on="round", suffixes=("_1", "_2"))
    apart = (both["position_1"] - both["position_2"]).to_numpy(float)
    logs = np.log((both["rate_1"] / both["rate_2"]).to_numpy(float))
    m = len(logs)
    least = 4 if rates["arm"].nunique() == 2 else 3
    if m < least or information <= 1e-6:  # the drift is not known well enough either
        return _Alone(float(np.mean(logs)) if m else math.nan, math.nan, 0, math.nan, m)
    logs -= slope * apart
    mean = float(np.mean(logs))
    twice = 2 * information
    h = min(float(((apart - apart.mean()) ** 2).sum()) / twice, 1.0)
    return _Alone(
        log=mean,
        variance=float(((logs - mean) ** 2).sum()) / (m - 1 - h),
        freedom=(m - 1 - h) ** 2 / (m - 2 + (1 - h) ** 2),
        share=1 / m + float(apart.mean()) ** 2 / twice,
        rounds=m,
    )


def ratio_of(opinion: Opinion, first: str, second: str) -> Ratio:
    """The ratio of two arms, its variance moderated by the typical one of all pairs."""
    own, arms = _alone(opinion, first, second), opinion.rates["arm"].nunique()
    if not own.freedom or not opinion.trusted:
        return Ratio(own.log, math.nan, math.nan, own.rounds)
    typical = opinion.typical_variance
    borrowed = min(4.0, arms / 2, own.freedom) if arms > 2 else 0.0
    if own.variance > typical:
        borrowed *= typical / own.variance
    freedom = own.freedom + borrowed
    variance = (own.freedom * own.variance + borrowed * typical) / freedom
    return Ratio(own.log, math.sqrt(variance * own.share), freedom, own.rounds)


# Against the summary


def against_summary(opinion: Opinion, summary: Summary) -> tuple[int, list[Difference]]:
    """Each number of a summary that is computed here too: (how many, those that differ)."""
    pairs = [*_of_runs(opinion, summary)]
    for first in (True, False):
        family = [
            one
            for one in summary.verdicts
            if (frozenset((one.first, one.second)) in summary.asked_first) == first
        ]
        pairs += _of_pairs(opinion, family, summary.level)
    for row in summary.arms:
        pairs += _of_arm(opinion, row, summary)
    for twin in summary.noise_floor:  # each is judged alone
        pairs += _of_pairs(opinion, [twin], 0.05)
    found = [
        Difference("summary", place, f"{told}", f"{own} (computed a second way)")
        for place, told, own in pairs
        if not _same(told, own)
    ]
    return len(pairs), found


def _same(told: Told, own: float | str) -> bool:
    if isinstance(own, str) or isinstance(told, str):
        return told == own
    if told is None or math.isnan(own):
        return told is None and math.isnan(own)
    return math.isclose(told, own, rel_tol=DIGITS, abs_tol=1e-12)


def _of_runs(opinion: Opinion, summary: Summary) -> Iterator[Pair]:
    for row in summary.runs:
        place = f"position {row.run.position}, arm {row.arm.label}"
        for name in FIGURES:
            own = opinion.figures[name].to_dict()[row.run.position]
            yield f"{place} / {name}", getattr(row.figures, name).value, own


def _of_arm(opinion: Opinion, row: ArmRow, summary: Summary) -> Iterator[Pair]:
    arm = row.arm.label
    runs = opinion.counting[opinion.counting["arm"] == arm]
    mean = geometric_mean(runs["rate"].dropna())
    if not opinion.trusted:
        mean = (mean[0], math.nan, math.nan)
    yield from _of_figure(f"arm {arm} / mean examples/s", row.mean_throughput, mean)
    of_runs = opinion.figures.loc[runs["position"]]
    for name in FIGURES:
        median = float(of_runs[name].median())
        yield f"arm {arm} / median {name}", row.spreads[name].value, median
    for one in (row.against_group, row.against_serial):
        if one.value is not None and one.base != arm:
            verdict = summary.verdict_of(arm, one.base)
            ends = ratio_of(opinion, arm, one.base).ends(*verdict.chosen_of)
            share = [end / opinion.replicas[arm] for end in ends]
            yield from _of_figure(f"arm {arm} / efficiency, of {one.base}", one, share)
            place = f"arm {arm} / efficiency in slots, of {one.base}"
            filled = [_filled(opinion, label) for label in (one.base, arm)]
            share = [end * filled[0] / filled[1] for end in share]
            yield from _of_figure(place, one.in_slots, share)
    if row.of_ceiling.value is not None:
        of_ceiling = geometric_mean(_shares(opinion, arm, row.of_ceiling.base))
        if not opinion.trusted:
            of_ceiling = (of_ceiling[0], math.nan, math.nan)
        yield from _of_figure(f"arm {arm} / of the ceiling", row.of_ceiling, of_ceiling)


def _shares(opinion: Opinion, arm: str, of: str) -> pd.Series:
    """Throughput of one arm ÷ that of another in each round that has both."""
    rates = opinion.every.dropna().pivot(index="round", columns="arm", values="rate")
    return (rates[arm] / rates[of]).dropna()


def _filled(opinion: Opinion, arm: str) -> float:
    """The part of an arm's slots that examples take."""
    positions = opinion.counting.loc[opinion.counting["arm"] == arm, "position"]
    return 1 - float(opinion.figures.loc[positions, "padding_share"].median())


def _of_figure(place: str, told: Figure, own: Sequence[float]) -> Iterator[Pair]:
    """A value and the ends of its interval."""
    low, high = (told.interval.low, told.interval.high) if told.interval else (None, None)
    yield from zip(
        (place, f"{place}, low", f"{place}, high"), (told.value, low, high), own, strict=True
    )


def _of_pairs(opinion: Opinion, verdicts: Sequence[PairVerdict], level: float) -> Iterator[Pair]:
    """Verdicts that were judged together: adjusted p-values by Holm (1979)."""
    ratios = [ratio_of(opinion, one.first, one.second) for one in verdicts]
    p_values = [ratio.p_value(*one.chosen_of) for one, ratio in zip(verdicts, ratios, strict=True)]
    known = sorted(p for p in p_values if not math.isnan(p))
    steps = [p * (len(known) - rank) for rank, p in enumerate(known)]
    for verdict, ratio, p in zip(verdicts, ratios, p_values, strict=True):
        place = f"{verdict.first} ÷ {verdict.second}"
        adjusted, word = math.nan, "cannot tell"
        if not math.isnan(p):
            adjusted = min(1.0, max(steps[: known.index(p) + 1]))
            if adjusted <= level:
                word = "faster" if ratio.log > 0 else "slower"
        yield from _of_figure(place, verdict.ratio, ratio.ends(*verdict.chosen_of))
        yield f"{place} / rounds", verdict.ratio.n, ratio.rounds
        yield f"{place} / p", verdict.p_value, p
        yield f"{place} / p, adjusted", verdict.p_adjusted, adjusted
        yield f"{place} / verdict", verdict.word, word
