"""Which arm is safer: what faults did to each, if a drill was made beside the comparison."""

from collections.abc import Iterator

from ringside.drill.cells import Cell as Faulted
from ringside.drill.cells import Drill
from ringside.report.blocks import Block, Cell, Heading, Section, Table, Terms, heads
from ringside_core.text import plural

COLUMNS = heads("<fault | <ended | <noticed | <back | <again | <rows | <weights")
MEANING = {
    "ended": "how the attempt ended; and how the run did, if it was not completed",
    "noticed": "seconds until every process of that attempt was gone; –: the attempt went on",
    "back": "seconds until the first update beyond the fault",
    "again": "updates before the fault that were made once more",
    "rows": "epochs of the last attempt with other rows than in the run without a fault",
    "weights": "largest difference from the run without a fault; async: there is no right result",
}


def safety_section(drill: Drill | None) -> Iterator[Section]:
    """The tables of a drill; nothing where there was none."""
    if drill is None:
        return
    made = [cell for cell in drill.cells if not cell.obstacle]
    lost = [cell for cell in made if not cell.lost_nothing(drill.tolerance)]
    text = "no run was fed other rows, or ended with other weights where one result is right."
    if lost:
        named = ", ".join(f"{cell.fault} under {cell.arm}" for cell in lost)
        text = f"{len(lost)} of them cost a run something: {named}."
    answer = f"{plural(len(made), 'fault')} {'was' if len(made) == 1 else 'were'} made; {text}"
    blocks = (*arm_blocks(drill), Terms(tuple(MEANING.items())))
    yield Section("safety", "Which is safer?", "Safety", answer, blocks)


def arm_blocks(drill: Drill) -> Iterator[Block]:
    """A table of each arm, under its title."""
    for title, table in arm_tables(drill):
        yield from (Heading(title), table)


def arm_tables(drill: Drill) -> Iterator[tuple[str, Table]]:
    """A table of each arm, and its title."""
    for label, after in drill.struck_after.items():
        rows = []
        for one in drill.of(label):
            fault, *rest = row_of(one)
            lost = not one.lost_nothing(drill.tolerance)
            rows.append((Cell(fault, bad=lost), *map(Cell, rest)))
        table = Table(COLUMNS, tuple(rows), label=f"faults under {label}")
        yield f"{label}, after update {after}", table


def row_of(cell: Faulted) -> tuple[str, ...]:
    """What became of one fault, in the order of COLUMNS."""
    if cell.obstacle:
        return (cell.fault, f"not made: {cell.obstacle}", *["–"] * 5)
    weights = "nothing left" if cell.deviation is None else f"{cell.deviation:.0e}"
    return (
        cell.fault,
        _ended(cell),
        _seconds(cell.noticed_s),
        _seconds(cell.back_s),
        "–" if cell.again is None else str(cell.again),
        str(cell.other_rows) if cell.other_rows else "same",
        weights if cell.exact else "async",
    )


def _ended(cell: Faulted) -> str:
    kinds = [one.kind for one in cell.outcomes]
    if not kinds:
        return "gone"
    text = kinds[0] if cell.fault != "launcher-killed" else "killed"
    end = kinds[-1]
    return text if end == "completed" or len(kinds) == 1 else f"{text}, then {end}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
