"""Where the time of a step goes, and why one arm is faster than another."""

import itertools
from dataclasses import dataclass

from ringside.report.blocks import (
    Block,
    Cell,
    Column,
    Heading,
    Picture,
    Section,
    Table,
    Terms,
    Text,
    heads,
)
from ringside.report.ranking import ranked, sizes_of
from ringside.report.sections.headline import contenders
from ringside.report.words import NOTHING, said, why_no_interval, with_interval
from ringside.stats.breakdown import (
    MEANINGS,
    OF_EVERY_ARM,
    Breakdown,
    Part,
    breakdown_between,
    breakdown_of,
)
from ringside.stats.figure import Figure
from ringside.stats.summary import Summary
from ringside_core.specs import Comparison
from ringside_core.text import number, percent

TITLE = "Where does the time of a step go?"
NOT_MEASURED = (
    "Not measured. Run with --why: it times each arm without input, without reduction, and alone."
)


@dataclass(frozen=True)
class Breakdowns:
    """The breakdowns of the arms of the largest size, and of what two of them differ in."""

    arms: tuple[Breakdown, ...]
    difference: Breakdown | None  # of the two arms that the headline is about
    faster: bool = False  # the headline says that the first of these two is faster


def breakdowns_of(comparison: Comparison, summary: Summary) -> Breakdowns | None:
    """The breakdowns of a comparison; None if it has no breakdown arms."""
    rows = ranked(summary)
    if not rows or not any(arm.for_breakdown for arm in comparison.arms):
        return None
    largest = sizes_of(rows)[-1]
    labels = [row.arm.label for row in rows if row.arm.replicas == largest]
    arms = tuple(breakdown_of(comparison, label) for label in labels)
    pair = contenders(summary)
    # What is known of every arm says nothing about one.
    shown = tuple(one for one in arms if {part.name for part in one.parts} - OF_EVERY_ARM)
    if pair is None:
        return Breakdowns(shown, None)
    first, second = (row.arm.label for row in pair)
    difference = breakdown_between(comparison, first, second)
    if not {part.name for part in difference.parts} - OF_EVERY_ARM:
        return Breakdowns(shown, None)
    faster = summary.contest is not None and summary.contest.word == "faster"
    return Breakdowns(shown, difference, faster)


def breakdown_section(found: Breakdowns | None) -> Section:
    """The parts of a step, and of the difference between the two arms that matter."""
    if found is None:
        return Section("breakdown", TITLE, "Where time goes", NOT_MEASURED, ())
    if not found.arms:
        text = "The breakdown runs gave no parts of any arm."
        return Section("breakdown", TITLE, "Where time goes", text, (), sure=False)
    difference = found.difference
    names = list(dict.fromkeys(part.name for one in found.arms for part in one.parts))
    shown = [*found.arms, *([difference] if difference else [])]
    figures = [[one.whole, *(part.ms for part in one.parts), one.remainder] for one in shown]
    blocks: list[Block] = [Picture("breakdown"), _arms_table(found, names)]
    if why_not := why_no_interval(itertools.chain(*figures)):
        blocks.append(Text(why_not))
    first = found.arms[0]
    whole = NOTHING if first.whole.value is None else f"{number(first.whole.value)} ms"
    answer = f"{first.arm}: {whole} per global batch, {_largest(first.parts)}."
    if difference is not None:
        title = f"{difference.arm} and {difference.less}: where they differ"
        if found.faster:
            title = f"Why is {difference.arm} faster than {difference.less}?"
        answer = _difference_line(difference)
        blocks += [Heading(title), Text(answer), _difference_table(difference)]
    blocks += [
        Heading("What the parts are"),
        Terms(tuple((name, MEANINGS[name]) for name in names), label="What the parts are"),
    ]
    if unknown := tuple((one.arm, one.reason) for one in found.arms if one.reason):
        blocks += [Heading("Not known"), Terms(unknown, label="Parts that are not known")]
    sure = difference is None or difference.remainder.covers(0)
    return Section("breakdown", TITLE, "Where time goes", answer, tuple(blocks), sure=sure)


def _difference_line(between: Breakdown) -> str:
    """`A needs 1.9 ms less than B`; the part that does most of it; whether the parts add up."""
    whole, remainder = between.whole, between.remainder
    if whole.value is None:
        return f"{between.arm} and {between.less}: {whole.reason or between.reason}."
    less = "less" if whole.value <= 0 else "more"
    text = (
        f"{between.arm} needs {number(abs(whole.value))} ms {less} for a global batch than "
        f"{between.less}; {_largest(between.parts, whole.value)}. "
    )
    if remainder.value is None:
        return text + f"There is no remainder: {remainder.reason}."
    rest = f"the remainder is {'+' * (remainder.value >= 0)}{number(remainder.value)} ms"
    if whole.value:
        rest += f", {percent(abs(remainder.value / whole.value))} of the difference"
    if remainder.interval is None:
        why_not = remainder.reason or "no interval"
        return text + f"Whether the parts add up is not known: {why_not} ({rest})."
    return text + (
        f"{rest[0].upper()}{rest[1:]}; with this noise it can be chance."
        if remainder.covers(0)
        else f"The parts do not add up: {rest}."
    )


def _largest(parts: tuple[Part, ...], whole: float = 1.0) -> str:
    """The part that does most of it, in the direction of the whole."""
    sign = -1 if whole < 0 else 1
    known = [(part.ms.value, part) for part in parts if part.ms.value is not None]
    if not known:
        return "no part is known"
    value, part = max(known, key=lambda pair: sign * pair[0])
    if sign * value <= 0:
        return "no known part explains it"
    if part.ms.covers(0):
        text = said(part.ms, "ms")
        return f"no single part differs from 0 for certain; the largest is {part.name}, {text}"
    return f"the largest part is {part.name}, {said(part.ms, 'ms')}"


def _arms_table(found: Breakdowns, names: list[str]) -> Table:
    columns = (
        *heads("<Arm | Whole (ms per global batch)"),
        *(Column(name[:1].upper() + name[1:], "ms") for name in names),
        Column("Remainder", "ms"),
    )
    rows = []
    for one in found.arms:
        parts = {part.name: part.ms for part in one.parts}
        absent = Figure(None, "in the remainder")
        cells = [Cell(*with_interval(parts.get(name, absent))) for name in names]
        rows.append(
            (Cell(one.arm), Cell(*with_interval(one.whole)), *cells, _remainder(one.remainder))
        )
    return Table(
        columns, tuple(rows), label="Parts of a step, one row for each arm", kind="breakdowns"
    )


def _remainder(remainder: Figure) -> Cell:
    """The remainder; marked if it is more than chance."""
    value, note = with_interval(remainder)
    if remainder.interval is None or remainder.covers(0):
        return Cell(value, note)
    return Cell(value, f"{note}, does not add up", bad=True)


def _difference_table(difference: Breakdown) -> Table:
    less = Column("Difference", f"ms, {difference.arm} less {difference.less}")
    rows = [(Cell(part.name), Cell(*with_interval(part.ms))) for part in difference.parts]
    rows.append((Cell("remainder"), _remainder(difference.remainder)))
    rows.append((Cell("whole"), Cell(*with_interval(difference.whole))))
    columns = (*heads("<Part"), less)
    return Table(columns, tuple(rows), label="Parts of the difference", kind="difference")
