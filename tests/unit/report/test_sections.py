"""What a report says of noise, communication, accuracy and tuning, and what its tables hold."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ringside.report.blocks import Folded, Terms, Text
from ringside.report.sections.caveats import caveats
from ringside.report.sections.communication import communication_section
from ringside.report.sections.definitions import DEFINITIONS
from ringside.report.sections.noise import noise_section
from ringside.report.sections.speed import scaling_section
from ringside.report.sections.tables import efficiency_cell
from ringside.report.sections.tuning import settings_of
from ringside.report.view import view_of
from ringside.stats.figure import Figure, Interval
from ringside.stats.summary import Efficiency
from ringside_core.specs import Communication, Division, Link
from tests.unit.report.bout import PARAMETERS, bout
from tests.unit.report.judged import bare, judged, pair, tables
from tests.unit.report.small import small
from tests.unit.report.views import bout_view, section_of
from tests.unit.stats.factory import arm_of, weak

TWIN = pair("serial", "serial again", 1.004)


# Noise


def test_noise_floor_is_the_same_arm_twice() -> None:
    """Its ratio and interval, which should hold 1."""
    summary = replace(judged(), noise_floor=TWIN)

    section = noise_section(bare(), summary)

    assert section.answer == (
        "serial against itself: 1.00× [0.95, 1.05]. 3 launches of the final. All 3 launches were "
        "made."
    )
    assert section.sure


def test_an_arm_that_differs_from_itself_is_an_alarm() -> None:
    """The section says that it is unsure, a caveat says what to do."""
    alarm = replace(TWIN, ratio=Figure(1.1, interval=Interval(1.05, 1.15), n=3))
    summary = replace(judged(), noise_floor=alarm)

    section = noise_section(bare(), summary)
    found = [one for one in caveats(bare(), summary) if "differs from itself" in one.what]

    assert "which leaves out 1: one of twenty does by chance" in section.answer
    assert not section.sure
    assert [one.what.split(" differs")[0] for one in found] == ["serial"]
    assert "quiet machine" in found[0].advice


@pytest.mark.parametrize("left_out", [True, False])
def test_disturbed_launches_are_listed(left_out: bool) -> None:
    """Which launches, why, and whether they count all the same."""
    summary = judged()
    launches = replace(
        summary.launches,
        final=(1, 3) if left_out else (1, 2, 3),
        disturbed={2: "serial: others used 46 %"},
        left_out=frozenset({2} if left_out else ()),
    )
    summary = replace(summary, launches=launches)

    section = noise_section(bare(), summary)
    (row,) = tables(*section.blocks)["Disturbed launches"].rows
    found = [one for one in caveats(bare(), summary) if "disturbed by other" in one.what]

    assert [cell.main for cell in row] == [
        "2",
        "serial: others used 46 %",
        "no" if left_out else "yes: too few others",
    ]
    assert ("1 left out as disturbed" in section.answer) is left_out
    assert bool(found) is not left_out


def test_launches_that_scatter_more_than_their_blocks_are_a_caveat() -> None:
    """More launches help there, longer ones do not."""
    made = [replace(judged(), inflation=factor) for factor in (1.2, 4.5)]

    found = [
        [one for one in caveats(bare(), each) if "Launches scatter" in one.what] for each in made
    ]

    assert not found[0]
    assert "4.5 times as much as their blocks" in found[1][0].what


def test_the_division_of_the_time_is_printed() -> None:
    """What each stage took, why so, and how much of it was measured."""
    division = Division(
        screening_s=60.0, launches=4, phase_s=40.0, start_s=15.0, pass_s=4.0, scatter=0.06,
        warm_passes=3,
    )  # fmt: skip
    comparison = bare().replace(division=division, notes=("a failed; b takes its place.",))

    section = noise_section(comparison, judged())
    (facts,) = (block for block in section.blocks if isinstance(block, Terms))
    shown = dict(facts.items)

    assert shown["Stage 1"] == "Screening: 60 s, 24 % of 4.2 min."
    assert "4 launches of serial, mirrored ×1" in shown["Stage 2"]
    assert (
        "each 40 s of 10 passes, of which 3 warm up. A start takes about 15 s" in shown["Stage 2"]
    )
    freedom = 3 * (len(comparison.finalists) - 1)
    half = stats.t.ppf(0.975, freedom) * np.sqrt((0.007**2 + 0.06**2 / 7) / 4)
    assert (
        f"Passes scatter by 6.0 %, so the interval will reach about {100 * np.expm1(half):.1f} % "
        "to each side." in shown["Stage 2"]
    )
    assert "a failed; b takes its place." in section.answer


# Accuracy, tuning, results, scaling


def test_tuned_stands_beside_default_with_its_settings() -> None:
    """Every trial is shown, the failed one with its reason; a trial is one run."""
    section = section_of(bout_view(), "tuning")
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


# The whole


# Of a cell, of a word, of the metric's own name, and of what this comparison does not have: hosts,
# live launches, another answer.
GENERAL_TERMS = {"median [lowest–highest] n", "comparable", "final metric", "of the link"}
GENERAL_TERMS |= {"contenders", "no difference", "launches scatter", "measured steps"}
GENERAL_TERMS |= {"input-bound"}  # only where an arm is


def test_every_term_that_is_defined_is_in_the_report() -> None:
    """A definition whose column has gone explains nothing."""
    others = [section for section in bout_view().sections if section.name != "definitions"]
    report = repr((others, bout_view().lead, bout_view().headline, bout_view().facts)).lower()

    terms = {term for terms, _ in DEFINITIONS for term in terms.split(", ")}

    assert {term for term in terms if term.lower() not in report} == GENERAL_TERMS


def test_an_efficiency_has_its_unit_and_its_base() -> None:
    """Value and interval are percentages of the arm that is named."""
    (row, *_) = judged().arms
    value = Efficiency(0.871, interval=Interval(0.844, 0.902), base="serial ×9")

    cell = efficiency_cell(value, row)

    assert (cell.main, cell.note) == ("87 %", "[84, 90] % of serial ×9")


def test_all_that_was_run_is_in_the_lead() -> None:
    """Arms, launches of the final, and breakdown arms."""
    diagnostic = sum(arm.for_breakdown for arm in bout().arms)

    assert f"15 arms, 6 launches of the final, {diagnostic} breakdown arms on" in bout_view().lead
    assert "3 arms, 4 launches of the final on" in view_of(small()).lead


def measured() -> Communication:
    """Of the made-up comparison."""
    found = bout().communication
    assert found is not None
    return found


def test_bytes_and_time_of_an_arm() -> None:
    """4 bytes a weight, 8.3 were counted; between two ranks t(n) = 90 µs + n · 0.9 ns over Gloo."""
    section = section_of(bout_view(), "communication")
    rows = {row[0].main: row for row in tables(*section.blocks)["Communication of each arm"].rows}

    gradients, sent, time = (cell.main for cell in rows["horovod ×2"][1:4])
    assert gradients == f"{4 * PARAMETERS:,}"
    assert int(sent.replace(",", "")) == pytest.approx(8.3 * PARAMETERS, rel=1e-2)
    assert float(time) == pytest.approx(1e3 * (90e-6 + 4 * PARAMETERS * 0.9e-9), rel=0.15)
    assert rows["mirrored ×2"][3].main == rows["parameter_server ×2"][3].main == "–"


def test_between_hosts_the_link_is_said() -> None:
    """Each link is shown, and each time with the least that the slowest link allows."""
    links = tuple(
        Link(sender=a, receiver=b, bytes=rate, seconds=8.0)
        for a, b, rate in (("one", "two", 4 * 10**9), ("two", "one", 3 * 10**9))
    )
    found = measured().replace(hosts=("one", "two"), links=links)

    section = communication_section(bare().replace(communication=found), judged(), None)

    said = " ".join(block.text for block in section.blocks if isinstance(block, Text))
    assert "one to two 4 Gbit/s; two to one 3 Gbit/s" in said
    (folded,) = (block for block in section.blocks if isinstance(block, Folded))
    share = tables(*folded.blocks)["Every size of every all-reduce"].rows[8][-1]
    timing = found.stacks[0].timings[8]
    mean_s = sum(map(sum, timing.seconds)) / 10
    # Between two: as many bytes as the array has, over the slower link.
    percent = 100 * 8 * timing.size_bytes / 3e9 / mean_s
    assert share.main.split() == [f"{percent:.0f}", "%"] and share.bad == (percent > 105)


def test_wrong_elements_are_shouted() -> None:
    """An all-reduce with wrong results is none."""
    first, *others = measured().stacks
    broken = first.replace(timings=(first.timings[0].replace(wrong=3), *first.timings[1:]))
    found = measured().replace(stacks=(broken, *others))

    section = communication_section(bare().replace(communication=found), judged(), None)

    assert "3 ELEMENTS WERE WRONG" in section.answer
    assert not section.sure
