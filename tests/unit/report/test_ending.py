"""The last line on a terminal: one thing to do next."""

from dataclasses import replace

import pytest

from ringside.report.ending import next_step
from ringside.stats.figure import Figure, Interval, Spread
from ringside.stats.summary import Summary
from ringside_core.specs import Outcome, Rounds
from tests.unit.report.judged import bare, judged, verdict

BEST = verdict("horovod ×2", "mirrored ×2", 1.25, "faster")
TIE = verdict("horovod ×2", "mirrored ×2", 1.02, "cannot tell")
FAILED = Outcome(kind="failed", error_class="OSError", reason="no route to host")
ASKED = Rounds(least=3, most=100, interval_width=0.05, budget_s=600)


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
    return judged(TIE, comparison=comparison.replace(runs=(*comparison.runs[:-1], last)))


WHY = "see where the time of a step goes: the same command with --why"
WIDE = replace(TIE, ratio=Figure(1.02, interval=Interval(0.8, 1.3), n=8))


@pytest.mark.parametrize(
    ("summary", "asked", "step"),
    [
        (lost(), ASKED, "read why runs were lost: runs/a b/report.html#failures"),
        (
            judged(comparison=bare().replace(certificates=())),
            ASKED,
            "the same command without --no-verify, because only certified arms are ranked",
        ),
        (
            reached(judged(WIDE), missed_by="horovod ×2"),
            ASKED,
            "train longer, with --epochs 6: horovod ×2 missed the target of accuracy 0.97",
        ),
        (
            reached(judged(WIDE)),
            ASKED,
            "more rounds, because the verdict is still open: "
            "ringside compare --resume 'runs/a b' --budget 20m",
        ),
        (reached(judged(BEST)), ASKED, WHY),
        (
            explained(reached(judged(BEST)), tuned_from="x"),
            ASKED,
            "ask the same of your own model: --workload my_file.py:workload (docs/own-model.md)",
        ),
    ],
)
def test_one_thing_to_do_next(summary: Summary, asked: Rounds, step: str) -> None:
    """What hides the answer comes first, then what narrows it, then what explains it."""
    assert next_step(summary, asked, "runs/a b") == step
