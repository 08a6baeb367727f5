"""Numbers and names as a reader sees them."""

import pytest

from ringside.report.words import range_of, span_of, times, with_interval
from ringside.stats.figure import Figure, Interval, Spread


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(12.34, n=3, of=3, lowest=11.0, highest=13.56), "[11.0–13.6] n=3"),
        (Spread(12.34, n=2, of=3, lowest=11.0, highest=13.56), "[11.0–13.6] n=2 of 3"),
        (Spread(12.34, n=1, of=1, lowest=12.34, highest=12.34), "n=1, no range"),
        (Spread(20000.4, n=3, of=3, lowest=9.9, highest=100000.0), "[10–100,000] n=3"),
    ],
)
def test_range(spread: Spread, text: str) -> None:
    """It always has n; a single run has no range; both ends are as precise as the median."""
    assert range_of(spread) == text


@pytest.mark.parametrize(
    ("figure", "cell"),
    [
        (
            Figure(12345.6, interval=Interval(12000.4, 12700.5), n=8),
            ("12,346", "[12,000, 12,700] n=8"),
        ),
        (Figure(0.208, interval=Interval(0.106, 0.309), n=6), ("0.208", "[0.106, 0.309] n=6")),
        # mostly chance: no more decimals than its interval deserves
        (
            Figure(-0.00173, interval=Interval(-0.0683, 0.0649), n=6),
            ("-0.0017", "[-0.0683, 0.0649] n=6"),
        ),
        (Figure(3.5, "2 launches: too few for an interval", n=2), ("3.50", "n=2, no interval")),
        (Figure(3.5, "one launch", n=1), ("3.50", "one launch")),
        (Figure(None, "no run was timed"), ("–", "no run was timed")),
    ],
)
def test_a_figure_has_an_interval_or_says_that_it_has_none(
    figure: Figure, cell: tuple[str, str]
) -> None:
    """An interval has a comma, a range a dash; the reason for none is said elsewhere."""
    assert with_interval(figure) == cell


def test_ratio_has_as_many_decimals_as_its_interval_bears() -> None:
    """Two; three if the interval is narrower than 4 %."""
    narrow = Figure(1.004, interval=Interval(0.991, 1.017), n=8)

    assert times(1.308) == "1.31×"
    assert times(12.5) == "12.50×"
    assert times(1.004, Interval(0.991, 1.017)) == "1.004×"
    assert span_of(narrow) == "[0.991, 1.017]"
    assert span_of(Figure(1.25, interval=Interval(1.1875, 1.3125), n=8)) == "[1.19, 1.31]"
    assert span_of(Figure(1.25)) == ""
