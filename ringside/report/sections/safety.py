"""Which arm is safer: what faults did to each, if a drill was made beside the comparison."""

from collections.abc import Iterator

from ringside.drill.cells import Drill
from ringside.drill.table import COLUMNS, MEANING, row_of
from ringside.report.blocks import Block, Cell, Column, Heading, Section, Table, Terms
from ringside_core.text import plural


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
    blocks: list[Block] = []
    for title, table in arm_tables(drill):
        blocks += [Heading(title), table]
    blocks.append(Terms(tuple(MEANING.items())))
    yield Section("safety", "Which is safer?", "Safety", answer, tuple(blocks))


def arm_tables(drill: Drill) -> Iterator[tuple[str, Table]]:
    """A table of each arm, and its title."""
    columns = tuple(Column(name, numeric=False) for name in COLUMNS)
    for label, after in drill.struck_after.items():
        rows = []
        for one in drill.of(label):
            fault, *rest = row_of(one)
            lost = not one.lost_nothing(drill.tolerance)
            rows.append((Cell(fault, bad=lost), *map(Cell, rest)))
        yield (
            f"{label}, after update {after}",
            Table(columns, tuple(rows), label=f"faults under {label}"),
        )
