"""Losses of all epochs of exact arms are held against each other; who departs is not ranked."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ringside.stats.summary import Summary, summarize
from ringside_core.specs import ByDesign, Run
from tests.unit.report.proofs import certificate
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of, weak

DROPOUT = ByDesign(layer="dropout (Dropout)", differs="random masks", treated="drawn by example")
NORM = ByDesign(layer="norm (BatchNormalization)", differs="mean", treated="by slice", split=True)
SERIAL, HOROVOD, MIRRORED = arm_of("serial"), arm_of("horovod", 2), arm_of("mirrored", 2)
SERVER = arm_of("parameter_server", 2)
RIGHT = (2.0, 1.0, 0.5)
# Two updates in each epoch: 1e-3 · 1.05² of the largest loss, 2.0, passes, if nothing differed yet.
PASSES, DEPARTS = 0.5 + 2.0e-3, 0.5 + 2.4e-3


def run(arm: Any, losses: Sequence[float], number: int = 0, **changes: Any) -> Run:
    """A run with these losses after each epoch, in training and in validation."""
    spec = spec_of(arm.backend, arm.replicas, seed=number + 1, **changes)
    epochs = [
        epoch(1.0, train={"loss": loss}, validation={"loss": loss, "accuracy": 0.5})
        for loss in losses
    ]
    records = [record(spec, epochs, rank) for rank in range(spec.topology.num_processes)]
    return run_of(arm, records, number=number)


def compared(*runs: Run, **of_certificates: Any) -> Summary:
    """A comparison of these runs, with a certificate for each arm."""
    arms = {one.label: one for one in (SERIAL, HOROVOD, MIRRORED, SERVER)}
    labels = list(dict.fromkeys(one.arm for one in runs))
    specs = {one.arm: one.spec for one in reversed(runs)}
    fields = {"by_design": (), **of_certificates}
    return summarize(
        comparison_of(
            [arms[label] for label in labels],
            runs,
            certificates=tuple(
                certificate(arms[label], specs[label], **fields) for label in labels
            ),
        )
    )


def why_not(summary: Summary) -> Mapping[str, str]:
    """Why arms are not ranked, by label."""
    return {row.arm.label: row.not_comparable_because for row in summary.arms if not row.comparable}


def test_rounding_is_no_departure() -> None:
    """All agree, and it is said how well; the tolerance is of the largest loss."""
    summary = compared(run(SERIAL, RIGHT), run(HOROVOD, (2.0, 1.0, PASSES)), run(MIRRORED, RIGHT))

    assert not why_not(summary)
    assert str(summary.losses) == (
        "The losses of every epoch of 3 exact arms were held against each other: they agree up to "
        "rounding; the largest difference is 1.0e-03 of the largest loss."
    )


def test_who_departs_from_serial_is_not_ranked() -> None:
    """In any launch; arm, epoch and size are named. The others stay."""
    summary = compared(
        run(SERIAL, RIGHT),
        run(HOROVOD, RIGHT),
        run(MIRRORED, RIGHT),
        run(SERIAL, RIGHT, 1),
        run(HOROVOD, (2.0, 1.0, DEPARTS), 1),
        run(MIRRORED, RIGHT, 1),
    )

    assert why_not(summary) == {
        "horovod ×2": "its training loss of epoch 3 in launch 2 is 0.5024, that of serial is 0.5: "
        "1.2e-03 of the largest loss apart, where rounding explains 1.1e-03"
    }
    assert {one.names for one in summary.pairs} == {frozenset(("serial", "mirrored ×2"))}
    assert "horovod ×2 departs by more than rounding" in str(summary.losses)


def test_what_rounding_has_parted_may_part_much_further() -> None:
    """By and by it passes; at once it does not; and what came before counts in this round only."""
    parted = (2.0, 1.0 + 4e-5, 0.5 + 3e-2)  # shares 0, 2e-5 and 1.5e-2
    further = (2.0, 1.0 + 4e-5, 0.5 + 5e-2)

    assert not why_not(compared(run(SERIAL, RIGHT), run(HOROVOD, parted)))
    assert why_not(compared(run(SERIAL, RIGHT), run(HOROVOD, further)))
    later = (2.0, 1.0, 0.5 + 3e-2)
    rounds = [run(SERIAL, RIGHT), run(HOROVOD, parted), run(SERIAL, RIGHT, 1)]
    assert why_not(compared(*rounds, run(HOROVOD, later, 1)))


def test_validation_counts_too() -> None:
    """Its own largest loss is the scale."""
    wrong = run(HOROVOD, RIGHT)
    epochs = [
        one.replace(validation={**one.validation, "loss": one.validation["loss"] * 1.01})
        for one in wrong.records[0].epochs
    ]
    records = tuple(one.replace(epochs=tuple(epochs)) for one in wrong.records)

    summary = compared(run(SERIAL, RIGHT), wrong.replace(records=records))

    departure = summary.losses.departures["horovod ×2"]
    assert departure.kind == "validation"
    assert departure.share == pytest.approx(0.01)


def test_without_serial_the_majority_is_right() -> None:
    """Two of three agree. Of two arms no one knows which is right: neither is ranked."""
    two = arm_of("multi_worker_mirrored", 2)
    wrong = (2.0, 1.1, 0.5)
    runs = [run(HOROVOD, wrong), run(MIRRORED, RIGHT), run(two, RIGHT)]
    certificates = tuple(certificate(one, by_design=()) for one in (HOROVOD, MIRRORED, two))
    three = comparison_of([HOROVOD, MIRRORED, two], runs, certificates=certificates)

    assert list(why_not(summarize(three))) == ["horovod ×2"]
    doubtful = why_not(compared(run(HOROVOD, wrong), run(MIRRORED, RIGHT)))
    assert list(doubtful) == ["horovod ×2", "mirrored ×2"]
    assert all("no majority says which of them is right" in one for one in doubtful.values())


def test_layers_that_draw_keep_all_apart_and_layers_that_split_keep_sizes_apart() -> None:
    """Dropout differs lawfully between all arms, batch normalisation between sizes."""
    other = (2.0, 1.2, 0.5)
    runs = [run(SERIAL, RIGHT), run(HOROVOD, other), run(MIRRORED, other)]
    wrong = [runs[0], runs[1], run(MIRRORED, RIGHT)]

    assert why_not(compared(*runs))
    drawn = compared(*runs, by_design=(DROPOUT,))
    assert not why_not(drawn)
    assert str(drawn.losses) == (
        "The losses of the epochs were not held against each other: dropout (Dropout) draws "
        "random numbers, which differ between arms."
    )
    assert not why_not(compared(*runs, by_design=(NORM,)))
    split = compared(*wrong, by_design=(NORM,))
    assert list(why_not(split)) == ["horovod ×2", "mirrored ×2"]
    assert "among arms of one size because of norm (BatchNorm" in str(split.losses)


def test_weak_scaling_keeps_sizes_apart_and_asynchronous_arms_are_never_held() -> None:
    """Another global batch has other losses; so have several asynchronous workers."""
    other = (2.0, 1.2, 0.5)
    runs = [run(SERIAL, RIGHT, global_batch=16), run(HOROVOD, other, global_batch=32)]
    certificates = tuple(
        certificate(arm, one.spec, by_design=())
        for arm, one in zip((SERIAL, HOROVOD), runs, strict=True)
    )
    comparison = weak(comparison_of([SERIAL, HOROVOD], runs, certificates=certificates))

    assert not why_not(summarize(comparison))
    assert str(summarize(comparison).losses) == ""
    assert not why_not(compared(run(SERIAL, RIGHT), run(SERVER, other)))
