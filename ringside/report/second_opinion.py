"""The main numbers of a report computed again, by other code, straight from the JSON.

Nothing here is imported from `stats`: a mistake there is seen as a difference. Which epochs and
which rounds count is read from samples.csv and results.csv, where it is printed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ringside.report.printed import Difference, Page
from ringside_core.specs import Comparison

Array = NDArray[np.float64]
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
SMALLEST = {"step_p95_ms": 20, "step_p99_ms": 100}  # times that a quantile needs
CSV_DIGITS = 1e-9  # relative; sums in another order differ in the last bits
SECOND = " (computed a second way)"
MATRIX = "Arm (is … as fast as)"
OF_MEDIANS = {"CPU (s / 1000 examples)", "Rank skew (ms)"}  # tells tables of arms from others
# Columns of medians over the runs of an arm: figure, and what it is multiplied by.
MEDIANS = {
    "Step (ms)": ("step_time_ms", 1.0),
    "p50 (ms)": ("step_time_ms", 1.0),
    "p95 (ms)": ("step_p95_ms", 1.0),
    "p99 (ms)": ("step_p99_ms", 1.0),
    "Peak memory (GiB)": ("peak_memory_bytes", 2.0**-30),
    "Start-up (s)": ("startup_s", 1.0),
    "CPU (s / 1000 examples)": ("cpu_s_per_1000_examples", 1.0),
}


@dataclass(frozen=True)
class Opinion:
    """What the raw samples come to.

    Attributes:
        figures: [position, figure], not a number where there is none.
        rates: examples/s of the runs that count, with arm, round and position; breakdown arms
            are left out.
        drift: see `drift_of`.
        replicas: of each arm.
    """

    figures: pd.DataFrame
    rates: pd.DataFrame
    drift: tuple[float, float]
    replicas: Mapping[str, int]


def second_opinion(folder: Path) -> Opinion:
    """Compute everything again from results.json."""
    text = (folder / "results.json").read_text(encoding="utf-8")
    body = json.loads(text)
    if body["schema_version"] != Comparison.SCHEMA_VERSION:  # its fields by their names of now
        body = json.loads(Comparison.from_json(text).to_json())
    samples = pd.read_csv(folder / "samples.csv", usecols=["kind", "position", "epoch", "counted"])
    samples = samples[(samples["kind"] == "run") & (samples["counted"] == "yes")]
    counted = samples.groupby("position")["epoch"].agg(set).to_dict()
    runs = pd.read_csv(folder / "results.csv")
    in_counted_round = set(runs.loc[runs["round_counts"] == "yes", "position"])
    rows = {
        run["position"]: _figures(run, counted.get(run["position"], set())) for run in body["runs"]
    }
    breakdown_arms = {
        arm["label"]
        for arm in body["arms"]
        if arm["ablation"] != "none" or arm["global_batch"] is not None
    }
    rates = [
        {
            "arm": run["arm"],
            "round": run["round"],
            "position": run["position"],
            "rate": rows[run["position"]].get("throughput_examples_s", math.nan),
        }
        for run in body["runs"]
        if run["position"] in in_counted_round and run["arm"] not in breakdown_arms
    ]
    counting = pd.DataFrame(rates, columns=["arm", "round", "position", "rate"]).dropna()
    return Opinion(
        figures=pd.DataFrame.from_dict(rows, orient="index"),
        rates=counting,
        drift=drift_of(counting),
        replicas={arm["label"]: arm["replicas"] for arm in body["arms"]},
    )


def _figures(run: dict[str, Any], counted: set[int]) -> dict[str, float]:
    """The figures of one run; without those that it cannot have."""
    if run["outcome"]["kind"] != "completed":
        return {}
    records = run["records"]
    found: dict[str, float] = {}
    timed = [record["epochs"] for record in records if record["role"] != "server"]
    epochs = [list(of_all) for k, of_all in enumerate(zip(*timed, strict=True)) if k in counted]
    if epochs:
        seconds = sum(max(epoch["train_s"] for epoch in of_all) for of_all in epochs)
        found["throughput_examples_s"] = sum(of_all[0]["examples"] for of_all in epochs) / seconds
        times = 1000 * np.concatenate([_durations(of_all).max(axis=0) for of_all in epochs])
        for name, percent in (("step_time_ms", 50), ("step_p95_ms", 95), ("step_p99_ms", 99)):
            if len(times) >= SMALLEST.get(name, 1):
                found[name] = float(np.quantile(times, percent / 100))
    if records and all(record["peak_memory_bytes"] for record in records):
        found["peak_memory_bytes"] = sum(record["peak_memory_bytes"] for record in records)
    chief = next((record for record in records if record["is_chief"]), None)
    if chief is not None and chief["epochs"] and all(record["cpu_s"] for record in records):
        examples = sum(epoch["examples"] for epoch in chief["epochs"])
        found["cpu_s_per_1000_examples"] = 1000 * sum(r["cpu_s"] for r in records) / examples
    starts = [record["startup_s"] for record in records if record["role"] != "server"]
    if starts and None not in starts:
        found["startup_s"] = max(starts)
    return found


def _durations(of_all: list[dict[str, Any]]) -> Array:
    """Seconds of each step of one epoch, [process, time]."""
    first = of_all[0]
    each, steps = first["steps_per_time"], first["steps"]
    ends = np.array([epoch["step_end_s"] for epoch in of_all])
    last = np.minimum(np.arange(1, ends.shape[1] + 1) * each, steps)
    seconds: Array = np.diff(ends, prepend=0.0) / np.diff(last, prepend=0)
    return seconds


def geometric_mean(rates: pd.Series) -> tuple[float, float, float]:
    """Geometric mean and 95 % interval of independent runs: (value, low, high)."""
    logs = np.log(rates.to_numpy(dtype=float))
    return _exp_interval(logs)


@dataclass(frozen=True)
class Ratio:
    """Throughput of one arm ÷ that of another; what cannot be computed is not a number."""

    value: float
    low: float
    high: float
    rounds: int
    p_value: float


def drift_of(rates: pd.DataFrame) -> tuple[float, float]:
    """Change of log examples/s from one place in the order to the next, and its information.

    Ordinary least squares of log y = arm + round + drift · position (docs/decisions/0005), after
    Frisch and Waugh (1933): what arms and rounds explain is taken from both sides first.
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


def ratio_of(opinion: Opinion, first: str, second: str) -> Ratio:
    """The ratio of two arms over the rounds in which both ran, less the drift of all arms."""
    slope, information = opinion.drift
    own = opinion.rates.set_index(["arm", "round"])
    both = pd.merge(own.loc[first], own.loc[second], on="round", suffixes=("_1", "_2"))
    apart = (both["position_1"] - both["position_2"]).to_numpy(float)
    logs = np.log((both["rate_1"] / both["rate_2"]).to_numpy(float))
    m = len(logs)
    least = 4 if opinion.rates["arm"].nunique() == 2 else 3
    if m < least or information <= 1e-6:  # the drift is not known well enough either
        plain = math.exp(float(np.mean(logs))) if m else math.nan
        return Ratio(plain, math.nan, math.nan, m, math.nan)
    logs -= slope * apart
    mean = float(np.mean(logs))
    twice = 2 * information
    h = min(float(((apart - apart.mean()) ** 2).sum()) / twice, 1.0)
    variance = float(((logs - mean) ** 2).sum()) / (m - 1 - h)
    error = math.sqrt(variance * (1 / m + float(apart.mean()) ** 2 / twice))
    freedom = (m - 1 - h) ** 2 / (m - 2 + (1 - h) ** 2)
    half = float(stats.t.ppf(0.975, freedom)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), m, p)


def _exp_interval(logs: Array) -> tuple[float, float, float]:
    mean = float(np.mean(logs))
    if len(logs) < 3:
        return math.exp(mean), math.nan, math.nan
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=mean, scale=stats.sem(logs))
    return math.exp(mean), math.exp(low), math.exp(high)


# Against what is printed


def against_csv(opinion: Opinion, file: Path) -> tuple[int, list[Difference]]:
    """Each figure of results.csv: (how many were compared, those that differ)."""
    count, found = 0, []
    for row in pd.read_csv(file).to_dict("records"):
        for name in opinion.figures.columns:
            count += 1
            printed, own = float(row[name]), _at(opinion.figures, row["position"], name)
            if math.isnan(printed) and math.isnan(own):
                continue
            if not math.isclose(printed, own, rel_tol=CSV_DIGITS):
                place = f"position {row['position']}, arm {row['arm']} / {name}"
                found.append(Difference("results.csv", place, f"{printed}", f"{own}{SECOND}"))
    return count, found


def _at(figures: pd.DataFrame, position: int, name: str) -> float:
    return float(figures[name].get(position, math.nan))


def against_markdown(opinion: Opinion, page: Page) -> tuple[int, list[Difference]]:
    """Each number of report.md that is computed here too: (how many, those that differ)."""
    count, found = 0, []
    for place, printed, own in _pairs_of_numbers(opinion, page):
        for number, value in zip(printed, own, strict=False):
            if not math.isnan(value):
                count += 1
                if not _rounds_to(value, number):
                    found.append(Difference("report.md", place, number, f"{value:.6g}{SECOND}"))
        expected = [value for value in own if not math.isnan(value)]
        if len(printed) < len(expected):
            told = " ".join(printed) or "no number"
            found.append(Difference("report.md", place, told, f"{expected}{SECOND}"))
    judged = list(_judgements(opinion, page))
    count += len(judged)
    found += [
        Difference("report.md", place, printed, f"{own}{SECOND}")
        for place, printed, own in judged
        if not printed.startswith(own)
    ]
    if not any("Examples/s" in head for _, columns, _ in page.tables for head in columns):
        found.append(Difference("report.md", "results", "no table", "a table with Examples/s"))
    return count, found


def _judgements(opinion: Opinion, page: Page) -> Iterator[tuple[str, str, str]]:
    """(place, printed, own) of the words and adjusted p-values of all pairs, by Holm (1979)."""
    for section, columns, rows in page.tables:
        if not {"Faster by ratio", "Other"} <= set(columns):
            continue
        pairs = [dict(zip(columns, row, strict=False)) for row in rows]
        own = [ratio_of(opinion, one["Faster by ratio"], one["Other"]) for one in pairs]
        known = sorted(one.p_value for one in own if not math.isnan(one.p_value))
        steps = [p * (len(known) - rank) for rank, p in enumerate(known)]
        for cells, ratio in zip(pairs, own, strict=True):
            place = f"{section} / {cells['Faster by ratio']} ÷ {cells['Other']}"
            if math.isnan(ratio.p_value):
                yield f"{place} / verdict", cells["Verdict"], "no verdict"
                continue
            adjusted = min(1.0, max(steps[: known.index(ratio.p_value) + 1]))
            word = "cannot tell" if adjusted > 0.05 else "faster" if ratio.value > 1 else "slower"
            yield f"{place} / verdict", cells["Verdict"], word
            told = "< 0.001" if adjusted < 0.001 else f"{adjusted:.3f}"
            yield f"{place} / p, adjusted", cells["p, adjusted (Holm)"], told


def _rounds_to(value: float, printed: str) -> bool:
    """Whether a number, rounded to the decimals that are printed, is what is printed."""
    decimals = len(printed.partition(".")[2])
    half = 0.5 / 10**decimals
    return bool(abs(value - float(printed.replace(",", ""))) <= half * (1 + 1e-6))


def _pairs_of_numbers(
    opinion: Opinion, page: Page
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    """(place, numbers printed there, numbers computed here) of every table that is known."""
    for section, columns, rows in page.tables:
        for row in rows:
            cells = dict(zip(columns, row, strict=False))
            arm = _arm_in(opinion, row[0])
            if {"Faster by ratio", "Other"} <= cells.keys():
                yield from _of_pair(opinion, section, cells)
            elif columns[0] == MATRIX:
                yield from _of_matrix(opinion, section, arm, cells)
            elif columns[0] == "Arm" and arm:
                yield from _of_arm(opinion, section, arm, cells)
                if OF_MEDIANS & cells.keys():
                    yield from _of_medians(opinion, section, arm, cells)


def _of_pair(
    opinion: Opinion, section: str, cells: dict[str, str]
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    first, second = cells["Faster by ratio"], cells["Other"]
    ratio = ratio_of(opinion, first, second)
    place = f"{section} / {first} ÷ {second}"
    yield f"{place} / ratio", _numbers(cells["Ratio (95 % interval)"]), _ends(ratio)
    yield f"{place} / rounds", _numbers(cells["Rounds"]), (ratio.rounds,)
    if not cells["p"].startswith("<"):
        yield f"{place} / p", _numbers(cells["p"]), (ratio.p_value,)


def _ends(ratio: Ratio) -> tuple[float, float, float]:
    return ratio.value, ratio.low, ratio.high


def _of_matrix(
    opinion: Opinion, section: str, arm: str, cells: dict[str, str]
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    for other, cell in cells.items():
        if other in opinion.replicas and cell[:1].isdigit():
            ends = _ends(ratio_of(opinion, arm, other))
            yield f"{section} / {arm} / {other}", _numbers(cell), ends


def _of_arm(
    opinion: Opinion, section: str, arm: str, cells: dict[str, str]
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    rates = opinion.rates.loc[opinion.rates["arm"] == arm]
    for column, cell in cells.items():
        place = f"{section} / {arm} / {column}"
        if column.startswith("Examples/s (mean") and len(rates):
            yield place, _numbers(cell), geometric_mean(rates["rate"])
        elif column.startswith("Efficiency") and (base := re.search(r"% .*?of (.+)$", cell)):
            ends = _ends(ratio_of(opinion, arm, base[1]))
            share = tuple(100 * value / opinion.replicas[arm] for value in ends)
            yield place, _numbers(cell.removesuffix(base[1])), share
        elif named := re.match(r"Times as fast \(as (.+)\)$", column):
            yield place, _numbers(cell), _ends(ratio_of(opinion, arm, named[1]))


def _of_medians(
    opinion: Opinion, section: str, arm: str, cells: dict[str, str]
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    rates = opinion.rates.loc[opinion.rates["arm"] == arm]
    own = opinion.figures.loc[opinion.figures.index.isin(rates["position"])]
    for column, (name, scale) in MEDIANS.items():
        cell = cells.get(column, "")
        if cell[:1].isdigit():
            value = scale * float(own[name].median())
            yield f"{section} / {arm} / {column}", _numbers(cell), (value,)


def _arm_in(opinion: Opinion, cell: str) -> str:
    """The arm that a first cell names, which may say more about it; empty: none."""
    named = [arm for arm in opinion.replicas if cell == arm or cell.startswith(arm + " ")]
    return max(named, key=len, default="")


def _numbers(cell: str) -> list[str]:
    """The numbers of a cell in order; intervals have `, ` between theirs."""
    return NUMBER.findall(re.sub(r"n=.*", "", cell))
