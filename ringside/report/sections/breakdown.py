"""Where the time of a step goes, and why one arm is faster than another."""

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
)
from ringside.report.ranking import ranked, sizes_of
from ringside.report.sections.headline import contenders
from ringside.report.words import NOTHING, covers, estimated, number, said, share, why_no_interval
from ringside.stats.accuracy import TargetGap, target_gap
from ringside.stats.breakdown import COMPUTE, Gap, Part, Split, gap_between, split_of
from ringside.stats.intervals import Estimate
from ringside.stats.summary import Summary
from ringside_core.specs import Comparison

TITLE = "Where does the time of a step go?"
NOT_MEASURED = (
    "Not measured. Run with --why: it times each arm without input, without reduction, and alone."
)


@dataclass(frozen=True)
class Breakdown:
    """The splits of the arms of the largest size, and the gap between the two that it is about.

    Attributes:
        gap: None: there are no two, or their split is not known.
        faster: whether the first of the gap is told to be faster.
        target: what the two need until the target; None: there is no gap.
    """

    splits: tuple[Split, ...]
    gap: Gap | None
    faster: bool = False
    target: TargetGap | None = None


def breakdown_of(comparison: Comparison, summary: Summary) -> Breakdown | None:
    """Splits and gap; None where no run was made to explain others."""
    rows = ranked(summary)
    if not rows or not any(arm.explains for arm in comparison.arms):
        return None
    largest = sizes_of(rows)[-1]
    labels = [row.arm.label for row in rows if row.arm.replicas == largest]
    splits = tuple(split_of(comparison, label) for label in labels)
    pair = contenders(summary, largest)
    # What serial takes is known for every arm; it explains none of them alone.
    shown = tuple(one for one in splits if {part.name for part in one.parts} - {COMPUTE})
    if pair is None:
        return Breakdown(shown, None)
    first, second = (row.arm.label for row in pair)
    gap = gap_between(comparison, first, second)
    if not {part.name for part in gap.parts} - {COMPUTE}:
        return Breakdown(shown, None)
    faster = summary.verdict_of(first, second).word == "faster"
    return Breakdown(shown, gap, faster, target_gap(comparison, first, second))


def breakdown_section(found: Breakdown | None) -> Section:
    """The parts of a step, and of the difference between the two arms that matter."""
    if found is None:
        return Section("why", TITLE, "Where time goes", NOT_MEASURED, ())
    if not found.splits:
        told = "Runs that explain were asked for; none of them gave the parts of an arm."
        return Section("why", TITLE, "Where time goes", told, (), sure=False)
    names = _names(found)
    blocks: list[Block] = [Picture("breakdown"), _splits(found, names)]
    if why_not := why_no_interval(_estimates(found)):
        blocks.append(Text(why_not))
    blocks += [*_gap_blocks(found), *_target_blocks(found)]
    blocks += [
        Heading("What the parts are"),
        Terms(tuple(_meanings(found).items()), label="What the parts are"),
    ]
    if unknown := tuple((one.arm, one.reason) for one in found.splits if one.reason):
        blocks += [Heading("Not known"), Terms(unknown, label="Parts that are not known")]
    return Section(
        "why",
        TITLE,
        "Where time goes",
        _answer(found),
        tuple(blocks),
        sure=found.gap is None or found.gap.adds_up,
    )


def _gap_blocks(found: Breakdown) -> list[Block]:
    """Part by part, what the two arms differ in."""
    gap = found.gap
    if gap is None:
        return []
    asked = f"Why is {gap.first} faster than {gap.second}?"
    title = asked if found.faster else f"{gap.first} and {gap.second}: where they differ"
    return [Heading(title), Text(_gap_line(gap)), _gap(gap)]


def _target_blocks(found: Breakdown) -> list[Block]:
    """What lies between the two until the target; nothing where no round tells."""
    gap, target = found.gap, found.target
    if gap is None or target is None or target.whole_s.value is None:
        return []
    columns = (
        Column("Part", numeric=False),
        Column("Difference", f"s, {gap.first} less {gap.second}"),
    )
    rows = tuple(
        (Cell(name), Cell(*estimated(part)))
        for name, part in (
            ("paid once", target.startup_s),
            ("seconds for an epoch (throughput)", target.throughput_s),
            ("epochs (convergence)", target.convergence_s),
            ("whole", target.whole_s),
        )
    )
    label = f"Time to the target of {gap.first} less that of {gap.second}"
    return [
        Heading(label),
        Table(columns, rows, label="Parts of the time to the target", kind="gap"),
    ]


def _estimates(found: Breakdown) -> list[Estimate]:
    """Everything of which an interval is shown."""
    pictures: list[Split | Gap] = [*found.splits, *([found.gap] if found.gap else [])]
    return [
        estimate
        for one in pictures
        for estimate in (one.whole, *(part.ms for part in one.parts), one.remainder)
    ]


def _answer(found: Breakdown) -> str:
    if found.gap is not None:
        return _gap_line(found.gap)
    first = found.splits[0]
    return f"{first.arm}: {_ms(first.whole)} per global batch, {_largest(first.parts)}."


def _gap_line(gap: Gap) -> str:
    """`A needs 1.9 ms less than B`; what makes most of it; whether the parts add up."""
    if gap.whole.value is None:
        return f"{gap.first} and {gap.second}: {gap.whole.reason or gap.reason}."
    less = "less" if gap.whole.value <= 0 else "more"
    told = (
        f"{gap.first} needs {number(abs(gap.whole.value))} ms {less} for a global batch than "
        f"{gap.second}; {_largest(gap.parts, gap.whole.value)}. "
    )
    if gap.remainder.value is None:
        return told + f"There is no remainder: {gap.remainder.reason}."
    rest = f"{_signed(gap.remainder.value)} ms"
    if gap.whole.value:
        rest += f", {share(abs(gap.remainder.value / gap.whole.value))} of it,"
    rest += " remain unexplained"
    if gap.remainder.interval is None:
        why_not = gap.remainder.reason or "no interval"
        return told + f"Whether the parts add up cannot be told: {why_not} ({rest})."
    return told + (
        f"{rest}; with this noise that can be chance."
        if gap.adds_up
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
    if covers(part.ms, 0):
        told = said(part.ms, "ms")
        return f"no single part can be told from 0; the largest is {part.name}, {told}"
    return f"the largest part is {part.name}, {said(part.ms, 'ms')}"


def _signed(value: float) -> str:
    return number(value) if value < 0 else f"+{number(value)}"


def _ms(estimate: Estimate) -> str:
    return NOTHING if estimate.value is None else f"{number(estimate.value)} ms"


def _names(found: Breakdown) -> list[str]:
    """Names of all parts, in the order in which they first come."""
    return list(dict.fromkeys(part.name for split in found.splits for part in split.parts))


def _meanings(found: Breakdown) -> dict[str, str]:
    parts = [part for split in found.splits for part in split.parts]
    meanings = {part.name: part.meaning for part in reversed(parts)}
    return {name: meanings[name] for name in _names(found)}


def _splits(found: Breakdown, names: list[str]) -> Table:
    columns = (
        Column("Arm", numeric=False),
        Column("Whole", "ms per global batch"),
        *(Column(name[:1].upper() + name[1:], "ms") for name in names),
        Column("Remainder", "ms"),
    )
    rows = []
    for split in found.splits:
        parts = {part.name: part.ms for part in split.parts}
        absent = Estimate(None, None, 0, "in the remainder")
        cells = [Cell(*estimated(parts.get(name, absent))) for name in names]
        rows.append(
            (
                Cell(split.arm),
                Cell(*estimated(split.whole)),
                *cells,
                _remainder(split.remainder),
            )
        )
    return Table(columns, tuple(rows), label="Parts of a step, one row for each arm", kind="splits")


def _remainder(remainder: Estimate) -> Cell:
    """What no part explains; marked where that is more than chance."""
    value, note = estimated(remainder)
    if remainder.interval is None or covers(remainder, 0):
        return Cell(value, note)
    return Cell(value, f"{note}, does not add up", bad=True)


def _gap(gap: Gap) -> Table:
    columns = (
        Column("Part", numeric=False),
        Column("Difference", f"ms, {gap.first} less {gap.second}"),
    )
    rows = [(Cell(part.name), Cell(*estimated(part.ms))) for part in gap.parts]
    rows.append((Cell("remainder"), _remainder(gap.remainder)))
    rows.append((Cell("whole"), Cell(*estimated(gap.whole))))
    return Table(columns, tuple(rows), label="Parts of the gap", kind="gap")
