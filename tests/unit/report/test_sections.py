"""What a report says of noise, parts, communication, accuracy, tuning; and if there is none."""

import math
import statistics
from dataclasses import replace

import pytest

from ringside.compare.budget import ROUNDS_BEFORE_WIDTH
from ringside.report.blocks import Terms, Text
from ringside.report.sections.accuracy import accuracy_section
from ringside.report.sections.caveats import caveats
from ringside.report.sections.definitions import DEFINITIONS
from ringside.report.sections.noise import NO_TWIN, noise_section
from ringside.report.sections.speed import results_section, scaling_section
from ringside.report.sections.tuning import NOT_TUNED, settings_of, tuning_section
from ringside.report.source import digest_of
from ringside.stats.rounds import RoundsUsed
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Rounds
from tests.unit.report.bout import bout
from tests.unit.report.judged import bare, judged, tables, verdict
from tests.unit.report.views import bout_view
from tests.unit.stats.factory import arm_of, weak

TWIN = verdict("horovod ×2", "horovod ×2 again", 1.004, "cannot tell")


# Noise


def test_noise_floor_is_the_same_arm_twice() -> None:
    """Its ratio and interval; `cannot tell` is the expected verdict."""
    summary = replace(judged(), noise_floor=(TWIN,))

    section = noise_section(bare(), summary)

    assert section.answer == (
        "horovod ×2 against itself: 1.00× [0.95, 1.05], cannot tell, as expected. "
        "3 rounds used. All 3 rounds were made."
    )
    assert section.sure


def test_an_arm_that_differs_from_itself_is_an_alarm() -> None:
    """The section says that it is unsure, the cell is marked, a caveat says what to do."""
    alarm = replace(TWIN, word="faster")
    summary = replace(judged(), noise_floor=(alarm,))

    section = noise_section(bare(), summary)
    told = [one for one in caveats(bare(), summary) if "differs from itself" in one.what]

    assert "faster, which is a false alarm" in section.answer
    assert not section.sure
    assert tables(*section.blocks)["Noise floor"].rows[0][2].bad
    assert [one.what.split(" differs")[0] for one in told] == ["horovod ×2"]
    assert "quiet machine" in told[0].advice


def test_without_a_twin_there_is_no_noise_floor() -> None:
    """The page does not claim that there is no noise."""
    section = noise_section(bare(), judged())

    assert section.answer.startswith(NO_TWIN)
    assert not section.sure


@pytest.mark.parametrize("kept", [True, False])
def test_disturbed_rounds_are_listed(kept: bool) -> None:
    """Which rounds, why, and whether they are used anyway."""
    used = RoundsUsed((0, 1, 2) if kept else (0, 2), {1: "serial: others used 46 %"}, kept)
    summary = replace(judged(), rounds=used)

    section = noise_section(bare(), summary)
    (row,) = tables(*section.blocks)["Disturbed rounds"].rows
    told = [one for one in caveats(bare(), summary) if "disturbed by other" in one.what]

    assert [cell.main for cell in row] == [
        "2",
        "serial: others used 46 %",
        "yes: too few others" if kept else "no",
    ]
    assert ("1 of them disturbed" if kept else "1 left out as disturbed") in section.answer
    assert bool(told) is kept


def test_interrupted_comparison_says_how_to_go_on() -> None:
    """It did not end, so there is no reason for its end."""
    comparison = bare().replace(ended_because="")

    told = [one for one in caveats(comparison, judged()) if "interrupted" in one.what]

    assert "It was interrupted and can be continued." in noise_section(comparison, judged()).answer
    assert len(told) == 1 and "--resume" in told[0].advice


def test_rounds_say_what_was_asked_for() -> None:
    """At least so many, until so narrow, within so long."""
    asked = Rounds(least=3, most=40, interval_width=0.05, budget_s=900)

    section = noise_section(bare().replace(asked=asked), judged())

    (facts,) = [block for block in section.blocks if isinstance(block, Terms)]
    assert dict(facts.items)["Asked for"] == (
        "at least 3 undisturbed rounds, at most 40, until each interval of interest is at most "
        "5.0 % wide, within 15 min"
    )
    fixed = noise_section(bare().replace(asked=Rounds(least=3, most=6)), judged())
    (facts,) = [block for block in fixed.blocks if isinstance(block, Terms)]
    assert dict(facts.items)["Asked for"] == "3 undisturbed rounds, at most 6"


# Accuracy, tuning, results, scaling


def test_too_few_seeds_give_no_time_to_accuracy() -> None:
    """MLPerf's rule needs five runs; the cell says so."""
    comparison = bare()

    section = accuracy_section(comparison, summarize(comparison))

    assert section.answer.startswith("No comparable arm has a time to accuracy: ")
    assert {row[3].main for row in tables(*section.blocks)[LEARNING].rows} == {"–"}


LEARNING = "Time to accuracy, one row for each arm"


def test_time_to_accuracy_is_the_olympic_mean() -> None:
    """Of serial's seven undisturbed rounds, the fastest and the slowest are left out."""
    runs = [run for run in bout().runs if run.arm == "serial" and run.round != 5]
    times = sorted(
        next(
            epoch.end_since_process_start_s
            for epoch in run.records[0].epochs
            if epoch.validation["accuracy"] >= 0.9
        )
        for run in runs
    )
    rows = {
        row[0].main: row for row in tables(*bout_view().section("accuracy").blocks)[LEARNING].rows
    }

    assert rows["serial"][3].main == f"{statistics.fmean(times[1:-1]):.2f}"
    assert rows["serial"][4].main == "3.00"  # 0.972 - 0.75·exp(-0.9·3) is the first above 0.9
    assert rows["horovod:controller=mpi ×2"][1].main == "6 of 7"
    assert not any("again" in label for label in rows)


def test_untuned_comparison_says_so() -> None:
    """The page does not suggest that the defaults are the best."""
    assert tuning_section(bare(), judged()).answer == NOT_TUNED


def test_tuned_stands_beside_default_with_its_settings() -> None:
    """Every trial is shown, the failed one with its reason; a trial is one run."""
    section = bout_view().section("tuning")
    shown = tables(*section.blocks)

    (row,) = shown["Default and tuned"].rows
    trials = shown["Every trial"].rows

    assert [cell.main for cell in row[:2]] == [
        "multi_worker_mirrored:steps_per_execution=10 ×2",
        "steps_per_execution=10",
    ]
    assert len(trials) == 4
    assert [cell.main for cell in trials[1][3:4]] == ["chosen"]
    assert trials[3][2].main == "–" and "XLA cannot compile it." in trials[3][4].main
    assert settings_of(arm_of("horovod", 2, cycle_time_ms=0.5)) == "cycle_time_ms=0.5"
    assert settings_of(arm_of("serial")) == "the defaults"


def test_results_name_the_highest_throughput() -> None:
    """Among the comparable arms; it is a geometric mean of the rounds."""
    comparison = bare()
    summary = summarize(comparison)
    rates = [
        100 / run.records[0].epochs[1].train_s for run in comparison.runs if run.arm == "horovod ×2"
    ]

    section = results_section(summary)

    mean = math.exp(statistics.fmean(map(math.log, rates)))
    assert f"The highest throughput is {mean:.0f} examples/s [" in section.answer
    assert section.answer.endswith(", of horovod ×2.")


@pytest.mark.parametrize(
    ("scaling", "held"),
    [("strong", "the global batch is the same"), ("weak", "the batch of each replica is the same")],
)
def test_strong_and_weak_scaling_are_kept_apart(scaling: str, held: str) -> None:
    """What is held is said, in the title and below it; the base is named."""
    section = scaling_section(weak(bare()) if scaling == "weak" else bare(), judged())

    assert f"({scaling} scaling)" in section.title
    assert isinstance(section.blocks[0], Text)
    assert held in section.blocks[0].text
    assert "of 2 × serial" in section.answer


def test_dear_clock_is_a_caveat() -> None:
    """If Ringside's own observers take more than 2 % of a step."""
    summary = judged()
    spread = summary.arms[0].throughput
    assert spread is not None
    dear = replace(spread, value=0.031)
    row = replace(summary.arms[0], spreads={**summary.arms[0].spreads, "clock_share": dear})

    told = caveats(bare(), replace(summary, arms=(row, *summary.arms[1:])))

    assert any("serial (3.1 %)" in one.what for one in told)
    assert summary.arms[0].spreads["clock_share"].value is None
    assert not any("own clock" in one.what for one in caveats(bare(), summary))


# The whole


def test_every_section_begins_with_its_answer() -> None:
    """One line each; names are unique, because they are anchors."""
    sections = bout_view().sections

    assert all(one.answer.endswith((".", "?")) and "\n" not in one.answer for one in sections)
    assert len({one.name for one in sections}) == len(sections)


def test_every_caveat_says_what_to_do() -> None:
    """A warning without advice is noise."""
    assert bout_view().caveats
    assert all(one.advice.endswith(".") for one in bout_view().caveats)


def test_digest_of_the_samples_is_in_the_environment() -> None:
    """So a report cannot be shown with other records."""
    (facts,) = bout_view().section("environment").blocks

    assert isinstance(facts, Terms)
    assert ("Digest of the raw samples", digest_of(bout().to_json().encode())) in facts.items


# Of a cell, of a word, of the metric's own name, and of hosts, which this comparison does not have.
GENERAL_TERMS = {"median [lowest–highest] n", "comparable", "final metric", "of the link"}


def test_every_term_that_is_defined_is_in_the_report() -> None:
    """A definition whose column has gone explains nothing."""
    others = [section for section in bout_view().sections if section.name != "definitions"]
    report = repr((others, bout_view().lead, bout_view().headlines, bout_view().facts)).lower()

    terms = {term for terms, _ in DEFINITIONS for term in terms.split(", ")}

    assert {term for term in terms if term.lower() not in report} == GENERAL_TERMS


def test_the_definition_of_a_width_has_the_rounds_of_the_code() -> None:
    """As many as must count before a narrow interval ends a comparison."""
    (meaning,) = (meaning for term, meaning in DEFINITIONS if term == "interval of interest")

    assert f"Once {ROUNDS_BEFORE_WIDTH} rounds count" in meaning


def test_every_kind_of_number_is_defined() -> None:
    """Every column head has a definition."""
    text = " ".join(f"{term} {meaning}" for term, meaning in DEFINITIONS).lower()

    for word in (
        "examples/s",
        "efficiency",
        "p50",
        "p95",
        "p99",
        "rank skew",
        "clock",
        "sure to be seen",
        "gradients:",
        "in one piece",
        "elements of the sums",
        "cores in use",
        "shared cores",
        "threads",
        "wall time",
        "paid once",
        "seeds:",
        "epochs to target:",
        "noise floor",
        "disturbed",
        "bus bandwidth",
        "α",
        "exposed",
        "time to accuracy",
        "peak memory",
        "s / 1000 examples",
        "start-up",
        "trial",
        "digest",
        "p, adjusted",
        "of the ceiling",
    ):
        assert word in text, word


def test_an_interval_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair without an interval counts as infinitely wide."""
    widest = ("horovod ×2 against serial", float("inf"))
    monkeypatch.setattr(Summary, "widest_of_interest", lambda _: widest)

    section = noise_section(bout(), bout_view().summary)

    facts = [item for block in section.blocks if isinstance(block, Terms) for item in block.items]
    assert ("Widest interval of interest", "not there yet: horovod ×2 against serial") in facts
