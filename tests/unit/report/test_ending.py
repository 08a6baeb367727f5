"""The last line on a terminal: one thing to do next."""

from dataclasses import replace
from typing import Any

import pytest

from ringside.report.ending import next_step
from ringside.stats.figure import Spread
from ringside.stats.summary import Summary
from ringside_core.specs import Asked, Comparison, Load
from tests.unit.report.judged import bare, contest, judged
from tests.unit.stats.factory import FAILED

BEST = contest(1.25)
WIDE = contest(1.02, word="cannot tell")


def reached(summary: Summary, missed_by: str = "") -> Summary:
    """Every run reached the target, but one of three of this arm."""
    rows = []
    for row in summary.arms:
        n = 2 if row.arm.label == missed_by else 3
        spread = Spread(9.0, lowest=8.0, highest=10.0, n=n, of=3)
        rows.append(replace(row, spreads={**row.spreads, "time_to_target_s": spread}))
    return replace(summary, arms=tuple(rows), quality_metric="accuracy", quality_target=0.97)


def explained(summary: Summary, tuned_from: str = "") -> Summary:
    """The summary of a comparison with breakdown arms, and perhaps a tuned arm."""
    arms = [replace(row, arm=row.arm.replace(tuned_from=tuned_from)) for row in summary.arms]
    return replace(summary, arms=tuple(arms), breakdown_arms=summary.arms[:1])


def lost() -> Summary:
    """One run of an arm failed."""
    comparison = bare()
    last = comparison.runs[-1].replace(outcome=FAILED)
    return judged(comparison=comparison.replace(runs=(*comparison.runs[:-1], last)))


WHY = "see where the time of a step goes: the same command with --why"
BUSY = Load(wall_s=10, cores=2, others_cpu_s=6, steal_cpu_s=0)


def made(**changes: Any) -> Comparison:
    """The records; each run has this load, if there is one."""
    load = changes.pop("load", None)
    comparison = bare()
    runs = tuple(run.replace(load=load) for run in comparison.runs)
    return comparison.replace(asked=Asked(budget_s=600.0), runs=runs, **changes)


def screened(summary: Summary) -> Summary:
    """The same without a final."""
    pairs = [replace(p, ratio=replace(p.ratio, interval=None), word="") for p in summary.pairs]
    return replace(summary, contest=None, pairs=tuple(pairs))


@pytest.mark.parametrize(
    ("summary", "comparison", "step"),
    [
        (lost(), made(), "read why runs were lost: runs/a b/report.html#failures"),
        (
            judged(comparison=bare().replace(certificates=())),
            made(),
            "the same command without --no-verify, because only certified arms are ranked",
        ),
        (
            screened(judged()),
            made().replace(asked=Asked(launches=0)),
            "a final: the same command without --launches 0",
        ),
        (
            reached(judged(contest=BEST), missed_by="horovod ×2"),
            made(),
            "train longer, with --epochs 6: horovod ×2 missed the target of accuracy 0.97",
        ),
        (
            reached(judged(contest=WIDE), missed_by="horovod ×2"),
            made(),
            "more launches, because the interval is wide: "
            "ringside compare --resume 'runs/a b' --budget 20m",
        ),
        (
            judged(contest=WIDE),
            made(load=BUSY),
            "a quiet machine; other programs took 30 % of the processors",
        ),
        (
            judged(contest=contest(1.25, "no verdict")),
            made(),
            "more launches, because there is no interval: "
            "ringside compare --resume 'runs/a b' --budget 20m",
        ),
        (reached(judged(contest=BEST)), made(), WHY),
        (
            explained(reached(judged(contest=BEST)), tuned_from="x"),
            made(),
            "ask the same of your own model: --workload my_file.py:workload (docs/own-model.md)",
        ),
    ],
)
def test_one_thing_to_do_next(summary: Summary, comparison: Comparison, step: str) -> None:
    """What hides the answer comes first, then what narrows it, then what explains it."""
    assert next_step(summary, comparison, "runs/a b") == step
