"""Time to accuracy, and its two factors: speed of training and number of epochs."""

from ringside.report.blocks import Block, Cell, Column, Picture, Section, Table, Text, heads
from ringside.report.words import NOTHING
from ringside.stats.accuracy import ArmAccuracy, accuracy_of
from ringside.stats.figure import Figure
from ringside.stats.summary import Summary
from ringside_core.specs import Comparison
from ringside_core.text import number, plural

TITLE = "How soon does it reach the target?"


def accuracy_section(comparison: Comparison, summary: Summary) -> Section:
    """Time to accuracy by MLPerf's rule."""
    if summary.quality_target is None:
        text = "The workload has no quality target, so there is no time to accuracy."
        return Section("accuracy", TITLE, "Accuracy", text, (Picture("quality"),))
    own = {row.arm.label for row in summary.arms if not row.arm.twin_of}
    rows = [one for one in accuracy_of(comparison) if one.label in own]
    targets = [row.spreads["time_to_target_s"] for row in summary.arms]
    reached, completed = sum(one.n for one in targets), sum(one.of for one in targets)
    blocks: list[Block] = [
        Text(
            f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was reached in "
            f"{reached} of {completed} completed runs. Time = paid once + epochs × seconds for an "
            "epoch. MLPerf's mean leaves out "
            "the fastest and the slowest run, and has no interval."
        ),
        _table(summary, rows),
        Picture("quality"),
    ]
    return Section("accuracy", TITLE, "Accuracy", _answer(summary, rows), tuple(blocks))


def _answer(summary: Summary, rows: list[ArmAccuracy]) -> str:
    comparable = {row.arm.label for row in summary.arms if row.comparable}
    known = [
        (one.time_s.value, one)
        for one in rows
        if one.time_s.value is not None and one.label in comparable
    ]
    if not known:
        reason = next((one.time_s.reason for one in rows if one.time_s.reason), "")
        return "No comparable arm has a time to accuracy" + (f": {reason}." if reason else ".")
    seconds, best = min(known, key=lambda pair: pair[0])
    return (
        f"{best.label} is the first to {summary.quality_metric} ≥ "
        f"{summary.quality_target:g}: {number(seconds)} s over {plural(best.seeds, 'seed')}."
    )


def _table(summary: Summary, rows: list[ArmAccuracy]) -> Table:
    target = f"{summary.quality_metric} ≥ {summary.quality_target:g}"
    columns = (
        *heads("<Arm | Reached (of runs) | Seeds | Time to accuracy (MLPerf's mean, s)"),
        Column("Epochs to target", target),
        *heads("An epoch (s) | Paid once (start-up and tracing, s)"),
    )
    body = tuple(
        (
            Cell(one.label),
            Cell(f"{one.reached} of {one.of}", bad=one.reached < one.of),
            Cell(str(one.seeds)),
            _time(one.time_s),
            _number(one.epochs_to_target),
            _number(one.s_per_epoch),
            _number(one.startup_s),
        )
        for one in rows
    )
    return Table(columns, body, label="Time to accuracy, one row for each arm", kind="accuracy")


def _time(time_s: Figure) -> Cell:
    """The mean and its runs; that it has no interval is said once, above."""
    if time_s.value is None:
        return Cell(NOTHING, time_s.reason)
    return Cell(number(time_s.value), f"n={time_s.n}")


def _number(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else number(value))
