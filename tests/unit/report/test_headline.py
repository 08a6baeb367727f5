"""Who wins, by how much, how sure: the sentences of the first screen, and the matrix of pairs."""

from dataclasses import replace
from typing import Any

import pytest

from ringside.report.html import forest_of
from ringside.report.ranking import ranked
from ringside.report.sections.caveats import caveats
from ringside.report.sections.headline import Headline, headline_of
from ringside.report.sections.verdicts import matrix_of, serial_table
from ringside.stats.figure import Figure, Interval
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Comparison, Load
from tests.unit.report.bout import bout
from tests.unit.report.judged import SECONDS, bare, contest, judged, pair
from tests.unit.report.views import bout_view
from tests.unit.stats.factory import spec_of

SERIAL = pair("horovod ×2", "serial", 1.25, "faster")


def head_of(summary: Summary, **changes: Any) -> Headline:
    """The headline."""
    return headline_of(bare().replace(**changes), summary)


def test_winner_is_named_with_ratio_interval_launches_and_proof() -> None:
    """A sentence that a manager can repeat; the family is named, and its arm if it has others."""
    head = head_of(judged(SERIAL, contest=contest(1.25)))

    assert head.line == (
        "With 2 replicas Horovod trains 1.25× as fast as tf.distribute (mirrored) here, 95 % "
        "interval [1.19, 1.31]. 3 launches. Same arithmetic: both certified. "
        "Against serial: 1.25× [1.19, 1.31], faster."
    )
    assert (head.decided, head.word) == (True, "faster")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            contest(1.01, "no difference", second=("mirrored ×2", "multi_worker_mirrored ×2")),
            "No difference of more than 6.1 % between Horovod and tf.distribute (mirrored and "
            "multi_worker_mirrored) with 2 replicas here: 1.01×, 95 % interval [0.96, 1.06].",
        ),
        (
            contest(1.04, "cannot tell"),
            "Cannot tell whether Horovod or tf.distribute (mirrored) is faster with 2 replicas "
            "here: 1.04×, 95 % interval [0.88, 1.20].",
        ),
        (
            contest(1.25, first=("multi_worker_mirrored ×2",)),
            "With 2 replicas multi_worker_mirrored ×2 trains 1.25× as fast as mirrored ×2 here, "
            "95 % interval [1.19, 1.31].",
        ),
    ],
)
def test_other_answers(made: Any, sentence: str) -> None:
    """No difference is an answer; two arms of one family are named by their labels."""
    assert head_of(judged(contest=made)).sentence == sentence


def test_what_would_help_is_one_thing() -> None:
    """More time, or a quiet machine if others used it."""
    load = Load(wall_s=10, cores=2, others_cpu_s=5, steal_cpu_s=0)
    wide = judged(contest=contest(1.04, "cannot tell"))
    busy = tuple(run.replace(load=load) for run in bare().runs)

    assert "What would help: more time, by --resume with a --budget." in head_of(wide).evidence
    assert "What would help: a quiet machine; other programs took 25 % of the processors." in (
        head_of(wide, runs=busy).evidence
    )
    assert not head_of(wide).decided


def test_each_look_is_another_chance_of_a_wrong_answer() -> None:
    """Said beside the answer, and as a caveat."""
    summary = judged(contest=contest(1.25))

    head = head_of(summary, looks=2)
    found = [one.what for one in caveats(bare().replace(looks=2), summary)]

    assert "looked at 2 times, so an answer is wrong in up to 10 % of such" in head.evidence
    assert any("another chance of a wrong answer: 10 % at most" in what for what in found)


def test_without_an_interval_there_is_no_verdict() -> None:
    """The ratio is shown, with the reason why there is no interval."""
    none = Figure(1.25, "2 launches: too few for an interval, 3 are needed", n=2)

    head = head_of(judged(contest=contest(1.25, "no verdict", ratio=none)))

    assert head.sentence == (
        "With 2 replicas Horovod ran 1.25× as fast as tf.distribute (mirrored): no verdict."
    )
    assert head.evidence.startswith("2 launches: too few for an interval, 3 are needed. Same")
    assert forest_of(head) == ""
    untrusted = replace(judged(contest=contest(1.25, "no verdict", ratio=none)), untrusted="busy")
    assert head_of(untrusted).evidence.startswith("Busy. Same")


def test_without_a_final_there_is_no_verdict() -> None:
    """Each arm ran once; or there is one arm only."""
    once = bare(rounds=1)
    alone = bare({("serial", 1): 1.0, ("horovod", 2): 0.8}, rounds=1)

    bare_once = once.replace(certificates=())

    first, second = headline_of(once, summarize(once)), headline_of(alone, summarize(alone))

    assert first.word == "one launch"
    assert first.sentence.startswith("With 2 replicas horovod ×2 ran 1.2")
    assert first.sentence.endswith("as fast as mirrored ×2: one launch, no verdict.")
    assert second.word == "no opponent"
    assert headline_of(bare_once, summarize(bare_once)).word == "no arm"


def test_distribution_that_loses_is_said_first() -> None:
    """In bold on the first screen and as the first caveat, if the interval says so."""
    slower = pair("serial", "horovod ×2", 1.25, "faster")
    wide = Figure(1.25, interval=Interval(0.9, 1.7), n=3)

    lost = judged(slower, contest=contest(1.25))
    head, caveat = head_of(lost), caveats(bare(), lost)[0]
    even = judged(replace(slower, ratio=wide, word="cannot tell"), contest=contest(1.25))
    by_holm = judged(replace(slower, word="cannot tell"), contest=contest(1.25))

    sentence = "lower than serial, without distribution: 0.80× [0.76, 0.84]."
    assert head.loses
    assert head.against_serial == f"S{sentence}"
    assert caveat.what == f"Distribution loses with 2 replicas. horovod ×2: s{sentence}"
    assert not head_of(even).loses
    assert not head_of(by_holm).loses  # of several arms; the interval is of this pair alone
    assert not any("Distribution loses" in one.what for one in caveats(bare(), even))


def test_the_answer_says_that_a_strategy_merges_metrics_in_each_step() -> None:
    """Between processes, where Keras' own fit does so and the arm says nothing of it."""
    seconds = {("serial", 1): 1.0, ("multi_worker_mirrored", 2): 0.6, ("horovod", 2): 0.8}
    made = bare(seconds)
    said = "multi_worker_mirrored merges metrics in each step"

    def evidence(**settings: Any) -> str:
        shared = made.shared.replace(**settings)
        return headline_of(made.replace(shared=shared), summarize(made)).evidence

    assert said in evidence()
    assert not any(said in evidence(metrics=when) for when in ("each_epoch", "each_step"))
    assert said not in evidence(keras=3)
    assert "merges metrics" not in head_of(judged(contest=contest(1.25))).evidence


def test_a_tuned_arm_against_one_that_is_not_is_a_caveat() -> None:
    """Also if trials were made for it, and what they chose is not ranked; not if they chose it."""
    comparison = bout()
    trials = comparison.trials
    other = next(arm for arm in comparison.arms if arm.label == "horovod:controller=mpi ×2")
    chose_another = trials[1].replace(tuned_from=other.label)
    chose_it = trials[0].replace(tuned_from=other.label, arm=other, chosen=True)

    def about_tuning(made: Comparison) -> list[str]:
        found = [one.what for one in caveats(made, bout_view().summary)]
        return [what for what in found if "may come from the tuning" in what]

    one_sided = [
        "multi_worker_mirrored:steps_per_execution=10 ×2 is tuned and "
        "horovod:controller=mpi ×2 is not: a part of the difference may come from the tuning."
    ]
    assert about_tuning(comparison) == one_sided
    assert about_tuning(comparison.replace(trials=(*trials, chose_another))) == one_sided
    assert about_tuning(comparison.replace(trials=(*trials, chose_it))) == []


def proved(**changes: Any) -> str:
    """The evidence where the certificate of one contender says something else."""
    summary = judged(contest=contest(1.25))
    arms = [
        replace(row, certificate=row.certificate.replace(**changes))
        if row.certificate and row.arm.label == "mirrored ×2"
        else row
        for row in summary.arms
    ]
    return head_of(replace(summary, arms=tuple(arms))).evidence


def test_arm_certified_in_turn_is_said_to_be_so() -> None:
    """An asynchronous arm does not compute exactly the same."""
    found = proved(kind="in turn")

    assert "Same arithmetic: both certified, one where updates wait for each other." in found


def test_arms_of_two_keras_are_not_said_to_compute_the_same() -> None:
    """Each is certified against a serial run of its own Keras, and those were not compared."""
    found = proved(spec=spec_of("mirrored", 2, keras=3))

    assert "Same arithmetic: no; each certified against the serial run of its own Keras" in found
    assert "both certified" not in found


def test_matrix_holds_each_pair_of_a_size_once() -> None:
    """Fastest first; a cell says how many times as fast the row is as the column."""
    summary = judged(
        pair("horovod ×2", "mirrored ×2", 1.25),
        pair("mirrored ×2", "multi_worker_mirrored ×2", 2.0),
        pair("multi_worker_mirrored ×2", "horovod ×2", 0.4),  # turned where it is shown
    )

    table = matrix_of(summary, ranked(summary, 2))

    assert [column.name for column in table.columns] == [
        "Arm",
        "mirrored ×2",
        "multi_worker_mirrored ×2",
    ]
    said = [[f"{cell.main} {cell.note}".strip() for cell in row] for row in table.rows]
    assert said == [
        ["horovod ×2", "1.25× [1.19, 1.31]", "2.50× [2.38, 2.63]"],
        ["mirrored ×2", "", "2.00× [1.90, 2.10]"],
    ]


def test_every_arm_stands_against_serial() -> None:
    """At any size; one that was not in the final has no word."""
    once = Figure(1.6, "one launch", n=1)
    summary = judged(
        pair("serial", "mirrored ×1", 1.25, "faster"), pair("serial", "horovod ×1", 1.6, ratio=once)
    )

    table = serial_table(summary)

    assert table is not None
    assert len(table.rows) == len(SECONDS) - 1
    rows = {row[0].main: row for row in table.rows}
    assert [cell.main for cell in rows["mirrored ×1"]] == ["mirrored ×1", "1", "0.80×", "slower"]
    assert rows["mirrored ×1"][2].note == "[0.76, 0.84]"
    assert [cell.main for cell in rows["horovod ×1"]][2:] == ["0.62×", "–"]
    assert rows["horovod ×1"][2].note == "one launch"
