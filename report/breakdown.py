"""Where the time of a step goes, and why one arm is faster than another."""

from dataclasses import dataclass

from measure.gap import COMPUTE, Gap, Part, Split, gap_between, split_of
from measure.intervals import Estimate
from measure.summary import Summary
from report.cells import Block, Cell, Column, Heading, Picture, Section, Table, Terms, Text
from report.headline import contenders
from report.ranking import ranked, sizes_of
from report.words import NOTHING, estimated, number, said
from specs import Comparison

TITLE = "Where does the time of a step go?"
NOT_MEASURED = (
    "Not measured. Run with --why: it times each arm without input, without reduction, and alone."
)


@dataclass(frozen=True)
class Breakdown:
    """The splits of the arms of the largest size, and the gap between the two that it is about.

    Attributes:
        gap: None: there are no two, or their split is not known.
    """

    splits: tuple[Split, ...]
    gap: Gap | None


def breakdown_of(comparison: Comparison, summary: Summary) -> Breakdown | None:
    """Splits and gap; None where no run was made to explain others."""
    rows = ranked(summary)
    if not rows or not any(arm.explains for arm in comparison.arms):
        return None
    largest = sizes_of(rows)[-1]
    labels = [row.arm.label for row in rows if row.arm.replicas == largest]
    splits = tuple(split_of(comparison, label) for label in labels)
    pair = contenders(summary, largest)
    gap = None
    if pair is not None:
        gap = gap_between(comparison, pair[0].arm.label, pair[1].arm.label)
    # What serial takes is known for every arm; it explains none of them alone.
    shown = tuple(one for one in splits if {part.name for part in one.parts} - {COMPUTE})
    return Breakdown(shown, gap if gap and {part.name for part in gap.parts} - {COMPUTE} else None)


def breakdown_section(found: Breakdown | None) -> Section:
    """The parts of a step, and of the difference between the two arms that matter."""
    if found is None:
        return Section("why", TITLE, "Where time goes", NOT_MEASURED, ())
    if not found.splits:
        told = "Runs that explain were asked for; none of them gave the parts of an arm."
        return Section("why", TITLE, "Where time goes", told, (), sure=False)
    names = _names(found)
    blocks: list[Block] = [Picture("breakdown"), _splits(found, names)]
    if found.gap is not None:
        blocks += [
            Heading(f"Why is {found.gap.first} faster than {found.gap.second}?"),
            Text(_gap_line(found.gap)),
            _gap(found.gap),
        ]
        if found.gap.convergence_s.value is not None:
            blocks.append(Text(_convergence(found.gap)))
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
    rest = f"{_signed(gap.remainder.value)} ms remain unexplained"
    return told + (
        f"The parts add up within the interval ({rest})."
        if gap.adds_up
        else f"The parts do not add up: {rest}."
    )


def _convergence(gap: Gap) -> str:
    """Whether one of them needs more epochs, apart from how long a step takes."""
    if gap.convergence_s.value == 0:
        return "Both need the same number of epochs to the target: convergence adds nothing."
    value, note = estimated(gap.convergence_s)
    return (
        f"Beside it, until the target, convergence: {gap.first} takes {value} s {note} longer as "
        "it needs more epochs (less, where negative)."
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
                Cell(*estimated(split.remainder)),
            )
        )
    return Table(columns, tuple(rows), label="Parts of a step, one row for each arm", kind="splits")


def _gap(gap: Gap) -> Table:
    columns = (
        Column("Part", numeric=False),
        Column("Difference", f"ms, {gap.first} less {gap.second}"),
    )
    rows = [(Cell(part.name), Cell(*estimated(part.ms))) for part in gap.parts]
    rows.append((Cell("remainder"), Cell(*estimated(gap.remainder))))
    rows.append((Cell("whole"), Cell(*estimated(gap.whole))))
    return Table(columns, tuple(rows), label="Parts of the gap", kind="gap")
