"""What `ringside input` says: whether the input matters, which part, which change, which line."""

from typing import Any

import numpy as np
import pytest

import ringside.cli.input as command
from ringside.report.sections.caveats import caveats
from ringside.report.sections.input import input_lines, input_section, lines_to_write
from ringside.report.sections.tables import results_table
from ringside.stats.evidence import same_rows
from ringside.stats.inputs import InputStudy, input_study
from ringside.stats.summary import summarize
from ringside_core.specs import (
    Arm,
    Block,
    Comparison,
    LedgerDigest,
    RefusalError,
    Settings,
)
from ringside_core.specs.input_change import CHANGES, InputStage
from tests.unit.report.bout import bout
from tests.unit.report.proofs import recertified, verified
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of

STAGES = (
    InputStage(name="arrays", kind="other", seconds=0.001, draws=False),
    InputStage(name="map(decode)", kind="map", seconds=0.009, draws=False),
    InputStage(name="batch", kind="batch", seconds=0.0, draws=False),
)
BASE = arm_of("serial")
ROWS = 100  # of an epoch


def named(label: str, **changes: Any) -> Arm:
    """The serial arm with another name."""
    return BASE.replace(label=label, group=label, **changes)


def compared(in_memory_s: float, cached_s: float) -> Comparison:
    """As written an epoch takes a second; four launches that differ by some parts in a thousand."""
    seconds = {
        BASE: 1.0,
        named("cached", settings=Settings(input="cache")): cached_s,
        named("unordered", settings=Settings(input="unordered")): 0.5,
        named("without input", ablation="no_input"): in_memory_s,
        named("without training", ablation="no_training"): 0.95,
    }
    random, runs = np.random.default_rng(1), []
    for number in range(4):
        for arm, each in seconds.items():
            spec = spec_of("serial", save="record", ablation=arm.ablation, input=arm.settings.input)
            train_s = each * random.lognormal(0, 0.003)
            made = record(spec, [epoch(9.0), epoch(train_s), epoch(train_s)])
            runs.append(run_of(arm, [made], number=number, spec=spec))
    comparison = verified(comparison_of(list(seconds), runs, stages=STAGES))
    return recertified(comparison, "unordered", lambda one: None)


def study_of(comparison: Comparison) -> InputStudy:
    """The study of a comparison."""
    found = input_study(comparison, summarize(comparison))
    assert found
    return found


def test_the_input_matters() -> None:
    """The slowest part by its name; the fastest change that trains the same; each with its line."""
    comparison = compared(in_memory_s=0.4, cached_s=0.6)
    study, summary = study_of(comparison), summarize(comparison)

    rates, holds, helps = input_lines(comparison, study, summary)
    assert rates.startswith("reading alone 10")
    assert "data in memory 2" in rates
    assert "as written" in rates
    assert holds.startswith("The input holds the training back: with its data in memory it is 2.5")
    assert "map(decode) (map) takes 90 % of the reading, 9 ms of a batch." in holds
    assert helps.startswith("What helps most and is certified: cache, 1.6")
    said = dict(lines_to_write(study, summary))
    assert [line.split(":")[0] for line in said] == ["unordered", "cache"]
    assert next(iter(said)).endswith("; not certified.")
    assert list(said.values()) == [CHANGES["unordered"].line, CHANGES["cache"].line]
    ratio = study.ratios["cached"]
    assert ratio.value == pytest.approx(1 / 0.6, rel=0.01)
    assert ratio.interval
    assert ratio.interval.low < 1 / 0.6 < ratio.interval.high


def test_the_input_does_not_matter() -> None:
    """One sentence with the most that could be gained; nothing to write but what gains."""
    comparison = compared(in_memory_s=0.99, cached_s=1.0)
    lines = input_lines(comparison, study_of(comparison), summarize(comparison))

    assert lines[1].startswith("The input is not the matter: in memory nothing gains more than 1.")
    assert len(lines) == 2


def test_changes_have_no_vote_on_which_rows_are_right() -> None:
    """Three arms with other rows do not outvote the one as its author wrote it."""
    runs = []
    for change, value in ((None, "a"), ("cache", "b"), ("arrays", "b"), ("unordered", "b")):
        spec = spec_of("serial", input=change)
        rows = LedgerDigest(rows=ROWS, hash=value * 16)
        runs.append(run_of(BASE, [record(spec, [epoch(1.0, ledger=rows)] * 2)]))

    assert same_rows(runs) == ["one run"] * 4


def test_what_fills_its_cache_has_no_figure() -> None:
    """The first epoch took longer than half of its blocks."""
    arm = named("cached", settings=Settings(input="cache"))
    blocks = tuple(
        Block(number=k, begun_after=20 * k, ended_after=20 * k + 20, wall_s=1.0) for k in range(8)
    )
    runs = []
    for one, first in ((BASE, 30), (arm, 100)):
        spec = spec_of("serial", save="record", input=one.settings.input)
        ends = tuple(0.1 * k for k in range(1, 1 + first)), tuple(0.1 * k for k in range(1, 131))
        epochs = [
            epoch(each[-1], step_end_s=each, steps=len(each), examples=3 * len(each))
            for each in ends
        ]
        runs.append(run_of(one, [record(spec, epochs)], spec=spec, blocks=blocks))
    comparison = comparison_of([BASE, arm], runs, stages=STAGES, live=True)

    study = study_of(comparison)
    assert study.rates[BASE.label].value
    assert study.rates[arm.label].value is None
    assert study.ratios[arm.label].reason.startswith("its first epoch took most of a launch")


def test_only_a_study_has_a_section() -> None:
    """A comparison without stages says nothing of its input."""
    comparison = compared(in_memory_s=0.4, cached_s=0.6)
    (section,) = input_section(comparison, summarize(comparison))
    assert section.name == "input"

    plain = comparison.replace(stages=())
    assert not list(input_section(plain, summarize(plain)))


def test_arrays_have_no_part_that_is_slow() -> None:
    """Nothing of them is timed; the answer is by what the training gains in memory."""
    arrays = InputStage(name="ndarray", kind="arrays", seconds=0.0, draws=False)
    comparison = compared(in_memory_s=0.99, cached_s=1.0).replace(stages=(arrays,))

    (section,) = input_section(comparison, summarize(comparison))

    assert "The input is not the matter" in section.answer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("cash", "There is no change of the input of that name"),
        ("interleave", "The change interleave needs a tf.data.Dataset that reads files"),
    ],
)
def test_a_change_that_cannot_be_tried(changes: str, words: str) -> None:
    """It is refused before anything runs, with those that can."""
    with pytest.raises(RefusalError, match=words) as refused:
        command._named(changes, STAGES)
    assert "cache" in str(refused.value)


def test_an_arm_as_fast_as_its_data_is_marked() -> None:
    """From 80 % on in the table; half is a reason to be careful, and more than all was no bound."""
    summary = summarize(bout().replace(input_examples_s=21_000.0))
    rates = {row.arm.label: row.mean_throughput.value or 0.0 for row in summary.arms}
    notes = {row[0].main: row[0].note for row in results_table(summary).rows}
    (caveat,) = (one for one in caveats(bout(), summary) if "ringside input" in one.advice)

    bound = {label for label, note in notes.items() if note == "input-bound"}
    assert bound == {
        row.arm.label
        for row in summary.arms
        if 0.8 * 21_000 <= rates[row.arm.label] <= 1.1 * 21_000
        and not (row.not_completed or row.arm.twin_of)
    }
    assert "horovod ×2" in bound
    assert "parameter_server ×1" not in caveat.what
    first = max(bound, key=lambda label: rates[label])
    assert f"{first} {100 * rates[first] / 21_000:.0f} %, " in caveat.what
    assert "One process reads 21,000 examples/s" in caveat.what
    fast = summarize(bout().replace(input_examples_s=10_000.0))
    assert "input-bound" not in {row[0].note for row in results_table(fast).rows[:4]}
