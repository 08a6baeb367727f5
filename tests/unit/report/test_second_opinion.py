"""The second computation: against arithmetic by hand, and beside the first on awkward data."""

import math

import numpy as np
import pandas as pd
import pytest

from ringside.report.second_opinion import Opinion, drift_of, ratio_of
from ringside.stats.verdicts import Sample, pair_verdicts

Row = tuple[str, int, int, float]  # arm, round, position, examples/s


def opinion_of(rows: list[Row]) -> Opinion:
    """As if these were all runs."""
    rates = pd.DataFrame(rows, columns=["arm", "round", "position", "rate"])
    return Opinion(pd.DataFrame(), rates, drift_of(rates), {})


def samples_of(rows: list[Row]) -> dict[str, list[Sample]]:
    """The same for the first computation."""
    found: dict[str, list[Sample]] = {}
    for arm, number, position, rate in rows:
        found.setdefault(arm, []).append(Sample(number, position, rate))
    return found


def test_a_ratio_without_an_interval_is_the_plain_mean() -> None:
    """Two rounds of three arms: 100 ÷ 100 and 110 ÷ 100, whatever the third shows of a drift."""
    opinion = opinion_of(
        [
            ("a", 0, 0, 100.0),
            ("b", 0, 1, 100.0),
            ("c", 0, 2, 100.0),
            ("a", 1, 3, 110.0),
            ("c", 1, 4, 20.0),
            ("b", 1, 5, 100.0),
        ]
    )

    found = ratio_of(opinion, "a", "b")

    assert opinion.drift[0] != 0
    assert found.value == pytest.approx(math.sqrt(1.1))
    assert math.isnan(found.low) and math.isnan(found.p_value)


@pytest.mark.parametrize("common", [1, 5])
def test_both_agree_where_arms_hardly_meet(common: int) -> None:
    """Of 25 rounds one arm has the first half, the other the rest, and few are common."""
    random = np.random.default_rng(common)
    rows: list[Row] = []
    for number in range(25):
        there = [arm for arm, ran in (("a", number < 12 + common), ("b", number >= 12)) if ran]
        rows += [
            (str(arm), number, len(rows) + place, 100 * random.lognormal(0, 0.1))
            for place, arm in enumerate(random.permutation(there))
        ]

    (first,) = pair_verdicts(samples_of(rows))
    second = ratio_of(opinion_of(rows), first.first, first.second)

    assert first.ratio.value == pytest.approx(second.value, rel=1e-9)
    assert (first.ratio.interval is None) == math.isnan(second.low) == (common == 1)
    if first.ratio.interval is not None:
        assert first.ratio.interval.low == pytest.approx(second.low, rel=1e-9)
        assert first.p_value == pytest.approx(second.p_value, rel=1e-9)
