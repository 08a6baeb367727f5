"""The second computation: against arithmetic by hand, and beside the first on awkward data."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ringside.report.second_figures import blocks_of
from ringside.report.second_opinion import (
    FIGURES,
    Opinion,
    against_summary,
    drift_of,
    geometric_mean,
    ratio_of,
    second_opinion,
)
from ringside.stats.figure import Interval
from ringside.stats.step_times import counted_blocks, warm_up
from ringside.stats.summary import summarize
from ringside.stats.verdicts import Question, Sample, pair_verdicts
from ringside_core.specs import Comparison, EpochRecord, write_whole
from tests.unit.report.small import EXAMPLES, small
from tests.unit.stats.factory import arm_of, live_run, record, run_of, spec_of

Row = tuple[str, int, int, float]  # arm, round, position, examples/s


def opinion_of(rows: list[Row]) -> Opinion:
    """As if these were all runs."""
    rates = pd.DataFrame(rows, columns=["arm", "round", "position", "rate"])
    return Opinion(pd.DataFrame(), rates, {})


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

    assert drift_of(opinion.rates)[0] != 0
    value, low, _ = found.ends()
    assert value == pytest.approx(math.sqrt(1.1))
    assert math.isnan(low) and math.isnan(found.p_value())


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

    (first,) = pair_verdicts(samples_of(rows), [Question("a", "b")])
    second = ratio_of(opinion_of(rows), first.first, first.second)
    value, low, _ = second.ends()

    assert first.ratio.value == pytest.approx(value, rel=1e-9)
    assert (first.ratio.interval is None) == math.isnan(low) == (common == 1)
    if first.ratio.interval is not None:
        assert first.ratio.interval.low == pytest.approx(low, rel=1e-9)
        assert first.p_value == pytest.approx(second.p_value(), rel=1e-9)


def test_both_agree_on_live_rounds() -> None:
    """Four arms, four launches; one launch and some blocks are missing."""
    random = np.random.default_rng(4)
    rates = 100 * random.lognormal(0, 0.05, size=(4, 4, 9))
    rates[random.random(rates.shape) < 0.1] = np.nan
    rates[2, 1] = np.nan
    index = pd.MultiIndex.from_product([list("abcd"), range(4)], names=["arm", "round"])
    blocks = pd.DataFrame(rates.reshape(16, 9), index=index).dropna(how="all")
    there = [(i, k) for i in range(4) for k in range(4) if (i, k) != (2, 1)]
    rows = [("abcd"[i], k, place, 1.0) for place, (i, k) in enumerate(there)]
    opinion = replace(opinion_of(rows), blocks=blocks)
    samples: dict[str, list[Sample]] = {}
    for arm, number, place, rate in rows:
        own_rates = enumerate(rates["abcd".index(arm), number].tolist())
        counted = {k: value for k, value in own_rates if not math.isnan(value)}
        samples.setdefault(arm, []).append(Sample(number, place, rate, counted))
    asked = [Question("a", "b"), Question("a", "c", 3, 2), Question("c", "d")]

    for one in pair_verdicts(samples, asked):
        own = ratio_of(opinion, one.first, one.second)
        assert one.ratio.interval is not None and one.ratio.n == own.rounds
        told = (one.ratio.value, one.ratio.interval.low, one.ratio.interval.high)
        assert told == pytest.approx(own.ends(*one.chosen_of), rel=1e-9)
        assert one.p_value == pytest.approx(own.p_value(*one.chosen_of), rel=1e-9)


def test_both_agree_on_the_blocks_of_a_run() -> None:
    """Now one rank is the slowest and now the other, and a block reaches into the next epoch."""
    run = live_run(prefetch=2)

    first = counted_blocks(run)
    second = blocks_of(run.model_dump(mode="json"), warm_up(run).epochs)

    assert second["s"].to_dict() == pytest.approx({k: one.seconds for k, one in first.items()})
    assert second["examples"].to_dict() == pytest.approx(
        {k: one.examples for k, one in first.items()}
    )


@pytest.fixture(scope="module")
def opinion(written: Path) -> Opinion:
    """Of the small comparison."""
    epochs = {run.position: warm_up(run).epochs for run in small().runs}
    return second_opinion(written, warm_up_epochs=epochs, rounds=range(4))


def test_the_second_opinion_against_hand_arithmetic(opinion: Opinion) -> None:
    """Throughput of one run from its records; the geometric mean by scipy."""
    run = next(run for run in small().runs if run.arm == "horovod ×2")
    counted = [list(pair) for pair in zip(*(one.epochs[1:] for one in run.records), strict=True)]
    seconds = sum(max(one.train_s for one in pair) for pair in counted)

    rates = opinion.rates.loc[opinion.rates["arm"] == "serial", "rate"]
    value, low, high = geometric_mean(rates)

    rate = opinion.figures["throughput_examples_s"][run.position]
    assert rate == pytest.approx(3 * EXAMPLES / seconds, rel=1e-12)
    assert value == pytest.approx(stats.gmean(rates), rel=1e-12)
    half = stats.t.ppf(0.975, 3) * np.log(rates).std(ddof=1) / 2
    assert (low, high) == pytest.approx((value * np.exp(-half), value * np.exp(half)), rel=1e-12)


def test_the_second_way_takes_drift_and_rounds_out() -> None:
    """Rates made of known arms, rounds and drift: the ratio is exact, and nothing is left over."""
    order = [(0, "abc"), (1, "cab"), (2, "bca"), (3, "acb")]
    arms, rounds = {"a": 100.0, "b": 80.0, "c": 125.0}, (1.0, 1.3, 0.9, 1.1)
    rows = [
        (arm, number, 3 * number + place)
        for number, of_round in order
        for place, arm in enumerate(of_round)
    ]
    made = opinion_of(
        [
            (arm, number, position, arms[arm] * rounds[number] * np.exp(0.07 * position))
            for arm, number, position in rows
        ]
    )

    ratio = ratio_of(made, "a", "b")

    assert drift_of(made.rates)[0] == pytest.approx(0.07, rel=1e-9)
    assert ratio.ends() == pytest.approx((1.25, 1.25, 1.25), rel=1e-6)
    assert ratio.rounds == 4


def larger(figure: Any) -> Any:
    """The value in its fifth digit."""
    return replace(figure, value=figure.value * 1.0001)


def wider(figure: Any) -> Any:
    """One end of the interval in its fifth digit."""
    within = figure.interval
    return replace(figure, interval=Interval(within.low, within.high * 1.0001))


Change = Callable[[Any], Any]
# What is changed: (run, arm or verdict of the summary, field, how, the end of what is told).
WRONG: tuple[tuple[str, str, Change, str], ...] = (
    *(("runs", name, larger, name) for name in FIGURES if name != "step_p99_ms"),  # it has none
    ("arms", "mean_throughput", larger, "mean examples/s"),
    ("arms", "mean_throughput", wider, "mean examples/s, high"),
    ("arms", "against_serial", larger, "efficiency, of serial"),
    ("arms", "against_serial", wider, "efficiency, of serial, high"),
    (
        "arms",
        "against_serial",
        lambda old: replace(old, slots_ratio=1.0001 * old.slots_ratio),
        "efficiency in slots, of serial",
    ),
    ("arms", "spreads", lambda old: {**old, "startup_s": larger(old["startup_s"])}, "startup_s"),
    ("verdicts", "ratio", larger, "÷ serial"),
    ("verdicts", "ratio", wider, "high"),
    ("verdicts", "ratio", lambda old: replace(old, interval=None), "low"),
    ("verdicts", "ratio", lambda old: replace(old, n=3), "rounds"),
    ("verdicts", "p_value", lambda old: old * 1.0001, "/ p"),
    ("verdicts", "p_adjusted", lambda old: old * 1.0001, "adjusted"),
    ("verdicts", "word", lambda _: "slower", "verdict"),
)


def _train_s(one: EpochRecord) -> float:
    return one.train_s


def with_ceiling() -> Comparison:
    """The small comparison beside independent replicas that were 1.1, 1.2, … times as fast."""
    arm = arm_of("independent", 2).replace(ablation="no_reduction")
    comparison = small().replace(arms=(*small().arms, arm))
    for run in [run for run in comparison.runs if run.arm == "horovod ×2"]:
        factor = 1.1 + run.round / 10
        spec = spec_of(
            "independent", 2, epochs=4, global_batch=4, save="record", ablation="no_reduction"
        )
        slowest = [
            max(ranks, key=_train_s)
            for ranks in zip(*(one.epochs for one in run.records), strict=True)
        ]
        epochs = [
            made.replace(
                train_s=made.train_s / factor,
                step_end_s=tuple(end / factor for end in made.step_end_s),
            )
            for made in slowest
        ]
        records = [record(spec, epochs, rank) for rank in range(2)]
        comparison = comparison.with_run(
            run_of(arm, records, number=run.round, position=len(comparison.runs))
        )
    return comparison


def test_what_an_arm_reaches_of_the_ceiling(tmp_path: Path) -> None:
    """The geometric mean of the rounds and its interval, by scipy; and a wrong one is seen."""
    summary = summarize(with_ceiling())
    rows = {row.arm.label: row for row in summary.arms}
    write_whole(tmp_path / "results.json", with_ceiling().to_json())
    epochs = {run.position: warm_up(run).epochs for run in with_ceiling().runs}
    opinion = second_opinion(tmp_path, warm_up_epochs=epochs, rounds=range(4))
    logs = -np.log([1.1, 1.2, 1.3, 1.4])
    low, high = stats.t.interval(0.95, 3, loc=logs.mean(), scale=stats.sem(logs))

    found = rows["horovod ×2"].of_ceiling
    wrong = replace(rows["horovod ×2"], of_ceiling=larger(found))
    _, none = against_summary(opinion, summary)
    _, seen = against_summary(opinion, replace(summary, arms=(*summary.arms[:2], wrong)))

    assert found.base == "independent ×2"
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (math.exp(low), math.exp(high))
    )
    assert rows["mirrored ×2"].of_ceiling.base == "independent ×2"
    assert rows["serial"].of_ceiling.value is None
    assert none == []
    assert [one.place for one in seen] == ["arm horovod ×2 / of the ceiling"]


@pytest.mark.parametrize(("kind", "field", "how", "place"), WRONG)
def test_a_wrong_number_of_the_first_way_is_seen(
    opinion: Opinion, kind: str, field: str, how: Change, place: str
) -> None:
    """The fifth digit of any number; and nothing differs where nothing is wrong."""
    summary = summarize(small())
    *rest, last = getattr(summary, kind)
    if kind == "runs":
        changed = replace(last.figures, **{field: how(getattr(last.figures, field))})
        last = replace(last, figures=changed)
    else:
        last = replace(last, **{field: how(getattr(last, field))})

    count, none = against_summary(opinion, summary)
    changes: dict[str, Any] = {kind: (*rest, last)}
    _, found = against_summary(opinion, replace(summary, **changes))

    assert count > 100 and none == []
    assert found and found[0].place.endswith(place)


def cells_of(page: str, title: str) -> list[list[str]]:
    """The rows of the table whose head begins so."""
    table = page[page.index(f"\n| {title}") + 1 :].partition("\n\n")[0]
    return [[cell.strip() for cell in row.split(" | ")] for row in table.splitlines()[2:]]


def numbers_in(cell: str) -> list[str]:
    """`1,467 [1,416, 1,520] n=4` as 1467, 1416, 1520, 4."""
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", cell))


def test_the_page_prints_these_numbers_in_these_columns(written: Path, opinion: Opinion) -> None:
    """Each cell of the results, rounded as it says: no column, row or end is exchanged."""
    page = (written / "report.md").read_text()
    rows = cells_of(page, "Arm | Replicas | Examples/s")
    spent = {row[0].lstrip("| "): row[-2:] for row in cells_of(page, "Arm | Processes")}
    told = {row[0].lstrip("| "): [numbers_in(cell) for cell in row[1:]] for row in rows}

    assert list(told) == ["serial", "mirrored ×2", "horovod ×2"]
    for arm, cells in told.items():
        runs = opinion.counting[opinion.counting["arm"] == arm]
        replicas = opinion.replicas[arm]
        own = [run for run in small().runs if run.arm == arm]
        records = [run.records[0] for run in own]
        of_runs = opinion.figures.loc[runs["position"]]
        ratio = ratio_of(opinion, arm, "serial")
        shares = [100 * end / replicas for end in ratio.ends()]
        reached = [
            0.5
            + run.position / 16
            + next(
                epoch.end_since_process_start_s
                for epoch in run.records[0].epochs
                if epoch.validation["accuracy"] >= 0.9
            )
            for run in own
        ]
        expected: list[list[float]] = [
            [replicas],
            [*geometric_mean(runs["rate"]), 4],
            [] if arm == "serial" else [1],  # the base that is missing
            [] if arm == "serial" else shares,
            spread_of(of_runs["step_time_ms"]),
            spread_of(reached),
            spread_of([one.epochs[-1].validation["accuracy"] for one in records]),
            spread_of(of_runs["peak_pss_bytes"] / 2**30),
            spread_of(of_runs["startup_s"]),
            spread_of(of_runs["whole_epochs_examples_s"]),
            spread_of(of_runs["cpu_s_per_1000_examples"]),
            spread_of(of_runs["startup_cpu_s"]),
        ]
        cells += map(numbers_in, spent[arm])
        for column, (printed, exact) in enumerate(zip(cells, expected, strict=True)):
            assert len(printed) == len(exact), (arm, column)
            for text, number in zip(printed, exact, strict=True):
                decimals = len(text.partition(".")[2])
                assert abs(float(text) - number) <= 0.5001 / 10**decimals, (arm, column)
                assert number in (1, 2, 4) or len(text.replace(".", "").lstrip("0")) >= 2


def spread_of(values: Any) -> list[float]:
    """Median, lowest, highest, how many."""
    return [float(np.median(values)), min(values), max(values), len(values)]
