"""What the search for settings tried for each arm, and what it chose."""

from collections import Counter
from collections.abc import Sequence

from ringside.report.blocks import Block, Cell, Folded, Section, Table, Text, heads
from ringside.report.ranking import ranked, ratio_cell
from ringside.report.words import NOTHING, outcome_of, why_no_interval, with_interval
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.summary import Summary
from ringside_core.specs import Arm, Comparison, Trial
from ringside_core.text import listed, number, plural

NOT_TUNED = "Not tuned: every arm ran with the settings in its name. Run with --tuned."


def tuning_section(comparison: Comparison, summary: Summary) -> Section:
    """Default and tuned, side by side, then every trial."""
    if not comparison.trials:
        return Section("tuning", "Would other settings help?", "Tuning", NOT_TUNED, ())
    blocks: list[Block] = []
    if any(row.arm.tuned_from for row in summary.arms):
        blocks.append(_tuned(summary))
        tuned = [row.arm for row in summary.arms if row.arm.tuned_from]
        shown = {name for arm in tuned for name in (arm.label, arm.tuned_from)}
        rates = [row.mean_throughput for row in summary.arms if row.arm.label in shown]
        if why_not := why_no_interval(rates):
            blocks.append(Text(why_not))
    count = plural(len(comparison.trials), "trial")
    blocks.append(Folded(f"All {count}", (_trials(comparison.trials),)))
    answer = _answer(comparison, summary)
    return Section("tuning", "Would other settings help?", "Tuning", answer, tuple(blocks))


def settings_of(arm: Arm) -> str:
    """Everything that an arm sets: options of its backend, then other settings."""
    defaults = type(arm.options)()
    lines = [
        f"{name}={value}"
        for name, value in arm.options
        if value != getattr(defaults, name) and name != "backend"
    ]
    lines += [f"{name}={value}" for name, value in arm.settings if value is not None]
    return ", ".join(lines) or "the defaults"


def _answer(comparison: Comparison, summary: Summary) -> str:
    budget = Counter(trial.tuned_from for trial in comparison.trials)
    counts = sorted(set(budget.values()))
    each = plural(counts[0], "trial") if len(counts) == 1 else f"{counts[0]}–{counts[-1]} trials"
    text = f"{plural(len(budget), 'arm')} had {each}" + (" each" if len(budget) > 1 else "")
    known = {row.arm.label for row in ranked(summary)}
    rows = [row for row in ranked(summary) if row.arm.tuned_from]
    gains = [
        row.arm.tuned_from
        for row in rows
        if row.arm.tuned_from in known
        and (within := summary.pair_of(row.arm.label, row.arm.tuned_from).ratio.interval)
        and within.low > 1
    ]
    if not any(row.arm.tuned_from for row in summary.arms):
        return f"{text}; for no arm were other settings the fastest."
    if not gains:
        return f"{text}; no tuned arm is faster than its default beyond chance."
    verb = "is" if len(gains) == 1 else "are"
    return f"{text}; {listed(gains)} {verb} faster with other settings."


def _tuned(summary: Summary) -> Table:
    columns = heads(
        "<Arm | <Settings | Default (examples/s [95 % interval] n) | "
        "Tuned (examples/s [95 % interval] n) | <Tuned ÷ default"
    )
    by_label = {row.arm.label: row for row in summary.arms}
    known = {row.arm.label for row in ranked(summary)}
    rows = []
    for row in summary.arms:
        if not row.arm.tuned_from:
            continue
        default = by_label.get(row.arm.tuned_from)
        nothing = Cell(NOTHING, "no such arm")
        rates = [
            nothing if one is None else Cell(*with_interval(one.mean_throughput))
            for one in (default, row)
        ]
        both = {row.arm.label, row.arm.tuned_from} <= known
        rows.append(
            (
                Cell(row.arm.label),
                Cell(settings_of(row.arm)),
                *rates,
                ratio_cell(summary.pair_of(row.arm.label, row.arm.tuned_from))
                if both
                else Cell(NOTHING, "not comparable", bad=True),
            )
        )
    return Table(columns, tuple(rows), label="Default and tuned")


def _trials(trials: Sequence[Trial]) -> Table:
    columns = heads("<Tuned for | <Settings | Examples/s (one run) | <Chosen | <Outcome")
    rows = []
    for trial in trials:
        rate = throughput_examples_s(trial.run) if trial.run.outcome.completed else None
        value = None if rate is None else rate.value
        rows.append(
            (
                Cell(trial.tuned_from),
                Cell(settings_of(trial.arm)),
                Cell(NOTHING) if value is None else Cell(number(value)),
                Cell("passed over", trial.passed_over, bad=True)
                if trial.passed_over
                else Cell("chosen" if trial.chosen else ""),
                Cell(outcome_of(trial.run.outcome), bad=not trial.run.outcome.completed),
            )
        )
    return Table(columns, tuple(rows), label="Every trial")
