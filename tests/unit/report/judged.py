"""A summary whose pairs are made up: input for tests of what is said of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ringside.report.blocks import Block, Folded, Table
from ringside.stats.contest import Contest
from ringside.stats.figure import Figure, Interval
from ringside.stats.final import Pair
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Comparison
from tests.unit.report.proofs import verified
from tests.unit.stats.factory import arm_of, comparison_of, simple_run

# Seconds for each epoch of 100 examples.
SECONDS: Mapping[tuple[str, int], float] = {
    ("serial", 1): 1.0,
    ("mirrored", 1): 1.25,
    ("horovod", 1): 1.6,
    ("mirrored", 2): 1.0,
    ("multi_worker_mirrored", 2): 2.0,
    ("horovod", 2): 0.8,
}


def bare(seconds: Mapping[tuple[str, int], float] = SECONDS, rounds: int = 3) -> Comparison:
    """Certified arms of these, rounds that differ by a few parts in a hundred."""
    random = np.random.default_rng(3)
    arms = [arm_of(backend, replicas) for backend, replicas in seconds]
    runs = [
        simple_run(
            arm.backend,
            arm.replicas,
            seconds[arm.backend, arm.replicas] * random.lognormal(0, 0.01),
            number=number,
            position=number * len(arms) + place,
        )
        for number in range(rounds)
        for place, arm in enumerate(arms)
    ]
    return verified(comparison_of(arms, runs, ended_because="All 3 launches were made."))


def pair(first: str, second: str, times: float, word: Any = "", **changes: Any) -> Pair:
    """A pair of eight launches, ±5 %."""
    fields: dict[str, Any] = {
        "ratio": Figure(times, interval=Interval(times * 0.95, times * 1.05), n=8),
        "p_value": 0.0004,
        "word": word,
    }
    return Pair(first, second, **{**fields, **changes})


def contest(times: float, word: Any = "faster", **changes: Any) -> Contest:
    """The headline of two replicas: horovod against mirrored, three launches, ±5 or ±15 %."""
    half = 0.15 if word == "cannot tell" else 0.05
    fields: dict[str, Any] = {
        "first": ("horovod ×2",),
        "second": ("mirrored ×2",),
        "ratio": Figure(times, interval=Interval(times * (1 - half), times * (1 + half)), n=3),
        "word": word,
    }
    return Contest(2, **{**fields, **changes})


def judged(
    *pairs: Pair, comparison: Comparison | None = None, contest: Contest | None = None
) -> Summary:
    """The summary of `bare` in which these pairs, and the headline, are these."""
    summary = summarize(comparison or bare())
    made = {one.names: one for one in pairs}
    kept = tuple(made.get(one.names, one) for one in summary.pairs)
    return replace(summary, pairs=kept, contest=contest or summary.contest)


def tables(*blocks: Block) -> dict[str, Table]:
    """All tables of a section, folded ones too, by what they hold."""
    found: dict[str, Table] = {}
    for block in blocks:
        if isinstance(block, Folded):
            found |= tables(*block.blocks)
        elif isinstance(block, Table):
            found[block.label] = block
    return found
