"""What the input costs, which part of it, and which change would help."""

from collections.abc import Iterator

from ringside.report.blocks import (
    Block,
    Bullets,
    Caveat,
    Cell,
    Heading,
    Section,
    Table,
    Text,
    heads,
)
from ringside.report.ranking import ratio_cell
from ringside.report.sections.proof import NOT_COMPARABLE
from ringside.report.words import NOTHING, ratio_words, with_interval
from ringside.stats.figure import Figure
from ringside.stats.final import Pair
from ringside.stats.inputs import InputStudy, input_study
from ringside.stats.summary import Summary
from ringside_core.specs import Arm, Comparison
from ringside_core.specs.input_change import CHANGES
from ringside_core.text import number, percent

NOT_TIMED = ("arrays", "object")  # they are read by Keras
MATTERS = 1.05  # times as fast without input: from here on the input is worth a change


def input_section(comparison: Comparison, summary: Summary) -> Iterator[Section]:
    """Nothing, of a comparison that studied no input."""
    study = input_study(comparison, summary)
    if study is None:
        return
    blocks: list[Block] = [
        Heading("The parts of the data, on one process"),
        stages_table(comparison),
        Heading("What a change gains"),
        changes_table(study, summary),
    ]
    if lines := lines_to_write(study, summary):
        blocks += [Heading("The lines to change"), Bullets(tuple(Caveat(*line) for line in lines))]
    blocks.append(Text(NOTE))
    answer = " ".join(input_lines(comparison, study, summary))
    yield Section("input", "Does the training wait for its data?", "Input", answer, tuple(blocks))


NOTE = (
    "Reading alone: batches are read and nothing is trained. Data in memory: the first batch is "
    "fed again and again. A change that is not certified may train other rows, or in another order."
)


def input_lines(comparison: Comparison, study: InputStudy, summary: Summary) -> list[str]:
    """What the study says, a sentence each."""
    rates = {name: study.rates[arm.label].value for name, arm in _parts(study).items()}
    said = {k: "unknown" if v is None else f"{number(v)} examples/s" for k, v in rates.items()}
    found = [", ".join(f"{name} {rate}" for name, rate in said.items()) + "."]
    slowest = max(comparison.stages, key=lambda one: one.seconds)
    total_s = sum(one.seconds for one in comparison.stages)
    part = ""  # of arrays nothing is timed
    if total_s:
        share = percent(slowest.seconds / total_s)
        part = f"{slowest.name} ({slowest.kind}) takes {share} of the reading, "
        part += f"{1000 * slowest.seconds:.3g} ms of a batch."
    gain = Figure(None) if study.in_memory is None else study.ratios[study.in_memory.label]
    if gain.value is None or gain.interval is None:
        found.append(f"What the input costs is not known: {gain.reason or 'it did not run'}.")
    elif gain.interval.low > MATTERS:
        found.append(
            f"The input holds the training back: with its data in memory it is {ratio_words(gain)} "
            f"as fast. {part}"
        )
    elif gain.interval.high < MATTERS:
        most = percent(max(0.0, gain.interval.high - 1))
        found.append(f"The input is not the matter: in memory nothing gains more than {most}.")
    else:
        found.append(f"Cannot tell whether the input holds the training back: {ratio_words(gain)}.")
    for arm in study.changed:
        if arm.label in study.faster and _same(summary, arm):
            gains = ratio_words(study.ratios[arm.label])
            found.append(f"What helps most and is certified: {arm.settings.input}, {gains}.")
            break
    return found


def lines_to_write(study: InputStudy, summary: Summary) -> tuple[tuple[str, str], ...]:
    """Each change that makes it faster, and its line."""
    return tuple(
        (
            f"{arm.settings.input}: {ratio_words(study.ratios[arm.label])}"
            f"{'' if _same(summary, arm) else '; not certified'}.",
            CHANGES[arm.settings.input].line,
        )
        for arm in study.changed
        if arm.settings.input and arm.label in study.faster
    )


def stages_table(comparison: Comparison) -> Table:
    """Every part from the source on."""
    rows = tuple(
        (
            Cell(one.name),
            Cell(one.kind),
            Cell(f"{1000 * one.seconds:.3g}" if one.kind not in NOT_TIMED else NOTHING),
            Cell("yes" if one.draws else ""),
        )
        for one in comparison.stages
    )
    return Table(heads("<Part | <Kind | Own time (ms of a batch) | <Draws"), rows, label="Input")


def changes_table(study: InputStudy, summary: Summary) -> Table:
    """Every arm against the one as it is, fastest first."""
    body = []
    named = {arm.label: name for name, arm in _parts(study).items()}
    for arm in (*_parts(study).values(), *study.changed):
        ratio = study.ratios.get(arm.label, Figure(None, "base"))
        value, note = with_interval(study.rates[arm.label])
        body.append(
            (
                Cell(named.get(arm.label) or str(arm.settings.input)),
                Cell(value, note),
                ratio_cell(Pair(arm.label, study.base.label, ratio)),
                Cell("" if arm.for_breakdown else _certified(summary, arm)),
            )
        )
    columns = heads("<Input | examples/s | Times as fast (as written) | <Trains the same")
    return Table(columns, tuple(body), label="Changes of the input")


def _parts(study: InputStudy) -> dict[str, Arm]:
    named = {
        "reading alone": study.alone,
        "data in memory": study.in_memory,
        "as written": study.base,
    }
    return {name: arm for name, arm in named.items() if arm is not None}


def _same(summary: Summary, arm: Arm) -> bool:
    return any(row.arm.label == arm.label and row.comparable for row in summary.arms)


def _certified(summary: Summary, arm: Arm) -> str:
    row = next(row for row in summary.arms if row.arm.label == arm.label)
    return "certified" if row.comparable else row.not_comparable_because or NOT_COMPARABLE
