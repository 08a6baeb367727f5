"""What each look at a comparison may spend."""

import pytest

from ringside.report.sections.noise import noise_section
from ringside.stats.looks import level
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, Look, Rounds
from tests.unit.report.judged import bare

UNTIL = Rounds(least=3, most=100, interval_width=0.05)


def looked_at(asked: Rounds, looks: int) -> Comparison:
    """Three rounds, after so many earlier looks."""
    each = Look(unix_s=1.7e9, rounds=2, asked=UNTIL)
    return bare().replace(asked=asked, looks=(each,) * looks)


def test_all_looks_together_have_5_percent() -> None:
    """However many there are; one look at rounds that were counted before has all of it."""
    spent = [level(looked_at(UNTIL, number)) for number in range(40)]

    assert level(looked_at(Rounds(), 0)) == pytest.approx(0.05)
    assert spent[:3] == pytest.approx([0.04, 0.005, 0.0025])
    assert sum(spent) <= 0.05


def test_the_report_says_how_many_looks_there_were() -> None:
    """And what they cost; the verdicts have that level."""
    once, again = (looked_at(UNTIL, number) for number in (0, 2))

    def told(comparison: Comparison) -> str:
        section = noise_section(comparison, summarize(comparison))
        return next(
            text
            for one in section.blocks
            for name, text in getattr(one, "items", ())
            if name == "Looks"
        )

    assert told(again) == (
        "3 looks, the earlier after 2 and 2 rounds: in each family of questions a word of this "
        "look is wrong in at most 0.25 % of such experiments; of all looks together, however many, "
        "in at most 5.0 %"
    )
    assert told(once).startswith("1 look: ") and "4.0 %" in told(once)
    assert summarize(again).level == pytest.approx(0.0025)
