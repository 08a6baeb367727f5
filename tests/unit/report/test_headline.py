"""Who wins, by how much, how sure: the sentences of the first screen, and the verdict matrix."""

from dataclasses import replace

from ringside.report.html import forest_of
from ringside.report.ranking import ranked
from ringside.report.sections.caveats import caveats
from ringside.report.sections.headline import contenders, headlines
from ringside.report.sections.verdicts import matrix_of, serial_table
from ringside.stats.figure import Figure, Interval
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison
from tests.unit.report.bout import bout
from tests.unit.report.judged import SECONDS, bare, judged, verdict
from tests.unit.report.views import bout_view

BEST = verdict("horovod ×2", "mirrored ×2", 1.25, "faster")
TIE = verdict("mirrored ×1", "horovod ×1", 1.02, "cannot tell")
NONE = Figure(1.25, "2 rounds: too few for an interval, 3 are needed", n=2)


def test_winner_is_named_with_ratio_interval_rounds_and_proof() -> None:
    """The best arm of each family, the faster first; the largest size first."""
    serial = verdict("horovod ×2", "serial", 1.25, "faster")

    first, second = headlines(judged(BEST, TIE, serial))

    assert (first.replicas, second.replicas) == (2, 1)
    assert first.line == (
        "2 replicas: horovod ×2 is 1.25× as fast as mirrored ×2, the fastest measured arms of "
        "Horovod and tf.distribute. "
        "95 % interval [1.19, 1.31], 8 rounds. Same arithmetic: both certified. "
        "Against serial: 1.25× [1.19, 1.31], faster."
    )
    assert first.told and first.word == "faster"


def test_no_winner_says_what_would_have_been_seen() -> None:
    """`cannot tell`, and the smallest difference that this experiment would have called."""
    reason = "equal throughput is within the interval"
    _, tie = headlines(judged(BEST, replace(TIE, reason=reason)))

    assert tie.sentence == (
        "Cannot tell mirrored ×1 from horovod ×1, the fastest measured arms of tf.distribute and "
        "Horovod: 1.02×."
    )
    assert "A difference of 6.2 % would have been seen in 4 of 5 such experiments." in tie.evidence
    assert reason[1:] not in tie.evidence  # the interval says so itself
    assert not tie.told and tie.word == "cannot tell"


def test_two_rounds_give_no_verdict() -> None:
    """The ratio is shown, with the reason why there is no interval."""
    few = replace(BEST, ratio=NONE, word="cannot tell", smallest_visible=None)

    head = headlines(judged(few))[0]

    assert head.word == "no verdict"
    assert head.sentence == (
        "horovod ×2 ran 1.25× as fast as mirrored ×2, the fastest measured arms of Horovod and "
        "tf.distribute: no verdict."
    )
    assert "2 rounds: too few for an interval, 3 are needed." in head.evidence
    assert forest_of([head]) == {}
    same_order = replace(few, ratio=replace(NONE, reason="both always ran in the same order"))
    assert headlines(judged(same_order))[0].evidence.startswith("Both always ran")


def test_distribution_that_loses_is_said_first() -> None:
    """In bold on the first screen and as the first caveat, if the interval says so."""
    slower = verdict("serial", "horovod ×2", 1.25, "faster")

    lost = judged(BEST, slower)
    head, caveat = headlines(lost)[0], caveats(bare(), lost)[0]
    wide = Figure(1.25, interval=Interval(0.9, 1.7), n=8)
    even = judged(BEST, replace(slower, ratio=wide, word="cannot tell"))

    told = "lower than serial, without distribution: 0.80× [0.76, 0.84]."
    assert head.loses
    assert head.against_serial == f"S{told}"
    assert caveat.what == f"Distribution loses with 2 replicas. horovod ×2: s{told}"
    assert not headlines(even)[0].loses
    assert not any("Distribution loses" in one.what for one in caveats(bare(), even))


def test_a_tuned_arm_against_one_that_is_not_is_a_caveat() -> None:
    """Also if trials were made for it, and what they chose is not ranked; not if they chose it."""
    comparison = bout()
    trials = comparison.trials
    other = next(arm for arm in comparison.arms if arm.label == "horovod:controller=mpi ×2")
    chose_another = trials[1].replace(tuned_from=other.label)
    chose_it = trials[0].replace(tuned_from=other.label, arm=other, chosen=True)

    def told(made: Comparison) -> list[str]:
        found = [one.what for one in caveats(made, bout_view().summary)]
        return [what for what in found if "may come from the tuning" in what]

    one_sided = [
        "At 2 replicas multi_worker_mirrored:steps_per_execution=10 ×2 is tuned and "
        "horovod:controller=mpi ×2 is not: a part of the difference may come from the tuning."
    ]
    assert told(comparison) == one_sided
    assert told(comparison.replace(trials=(*trials, chose_another))) == one_sided
    assert told(comparison.replace(trials=(*trials, chose_it))) == []


def test_contenders_are_the_best_of_both_families_or_the_two_fastest() -> None:
    """The other family's best comes before a second arm of the faster family."""

    def names(seconds: dict[tuple[str, int], float]) -> list[str]:
        pair = contenders(summarize(bare(seconds)), 2)
        return [] if pair is None else [row.arm.label for row in pair]

    two = {("mirrored", 2): 1.0, ("multi_worker_mirrored", 2): 1.1, ("horovod", 2): 3.0}
    assert names(two) == ["mirrored ×2", "horovod ×2"]
    assert names({("multi_worker_mirrored", 2): 1.1, ("mirrored", 2): 1.0}) == [
        "mirrored ×2",
        "multi_worker_mirrored ×2",
    ]
    assert names({("mirrored", 2): 1.0}) == []


def test_arm_certified_in_turn_is_said_to_be_so() -> None:
    """An asynchronous arm does not compute exactly the same."""
    summary = judged(BEST)
    arms = [
        replace(row, certificate=row.certificate.replace(kind="in turn"))
        if row.certificate and row.arm.label == "mirrored ×2"
        else row
        for row in summary.arms
    ]

    head = headlines(replace(summary, arms=tuple(arms)))[0]

    assert (
        "Same arithmetic: both certified, one where updates wait for each other." in head.evidence
    )


def test_arms_of_two_keras_are_not_said_to_compute_the_same() -> None:
    """Each is certified against a serial run of its own Keras, and nobody has compared those."""
    summary = judged(BEST)
    arms = [
        replace(
            row,
            certificate=row.certificate.replace(spec=row.certificate.spec.replace(keras=3)),
        )
        if row.certificate and row.arm.label == "mirrored ×2"
        else row
        for row in summary.arms
    ]

    head = headlines(replace(summary, arms=tuple(arms)))[0]

    assert (
        "Same arithmetic: no; each certified against the serial run of its own Keras"
        in head.evidence
    )
    assert "both certified" not in head.evidence


def test_matrix_holds_each_pair_of_a_size_once() -> None:
    """Fastest first; a cell says how many times as fast the row is as the column."""
    others = [
        verdict("mirrored ×2", "multi_worker_mirrored ×2", 2.0, "faster"),
        verdict("horovod ×2", "multi_worker_mirrored ×2", 2.5, "cannot tell"),
    ]
    summary = judged(BEST, *others)

    table = matrix_of(summary, ranked(summary, 2))

    assert [column.name for column in table.columns] == [
        "Arm",
        "mirrored ×2",
        "multi_worker_mirrored ×2",
    ]
    said = [[f"{cell.main} {cell.note} {cell.word}".strip() for cell in row] for row in table.rows]
    assert said == [
        ["horovod ×2", "1.25× [1.19, 1.31] faster", "2.50× [2.38, 2.62] cannot tell"],
        ["mirrored ×2", "", "2.00× [1.90, 2.10] faster"],
    ]


def test_pair_that_was_judged_the_other_way_round_is_turned() -> None:
    """Half as fast becomes twice as fast."""
    turned = verdict("mirrored ×2", "horovod ×2", 0.8, "slower")

    head = headlines(judged(turned))[0]

    assert "horovod ×2 is 1.25× as fast as mirrored ×2" in head.sentence


def test_every_arm_stands_against_serial() -> None:
    """At any size, with the smallest difference that would have been seen."""
    summary = judged(verdict("serial", "mirrored ×1", 1.25, "faster"))

    table = serial_table(summary)

    assert table is not None
    assert len(table.rows) == len(SECONDS) - 1
    (row,) = [row for row in table.rows if row[0].main == "mirrored ×1"]
    assert [cell.main for cell in row] == ["mirrored ×1", "1", "0.80×", "slower", "6.2 %"]
    assert row[2].note == "[0.76, 0.84]"
