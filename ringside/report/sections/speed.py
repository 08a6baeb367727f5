"""How fast the arms are: results, scaling, and the spread of step times."""

from ringside.report.blocks import Block, Cell, Heading, Picture, Section, Table, Terms, Text, heads
from ringside.report.ranking import ranked, sizes_of, twins_aside
from ringside.report.sections.proof import not_comparable
from ringside.report.sections.tables import (
    RATES,
    efficiency_cell,
    rate_cells,
    results_table,
    steps_table,
)
from ringside.report.words import said, why_no_interval
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Comparison
from ringside_core.text import number, percent, plural


def results_section(summary: Summary) -> Section:
    """Every arm with every figure."""
    rows = ranked(summary)
    if rows:
        most = said(rows[0].mean_throughput, "examples/s")
        answer = f"The highest throughput is {most}, of {rows[0].arm.label}{twins_aside(summary)}."
    else:
        answer = "No comparable arm has a throughput."
    blocks: list[Block] = [
        Text(
            "Examples/s and efficiency: mean and 95 % interval [low, high]. Other columns: median "
            "of the completed runs and their range [lowest–highest]."
        ),
        results_table(summary),
    ]
    if why_not := why_no_interval(row.mean_throughput for row in summary.arms):
        blocks.append(Text(why_not))
    if because := not_comparable(summary):
        blocks += [Heading("Not comparable, because"), Terms(because, label="Not comparable")]
    blocks.append(Picture("throughput"))
    return Section("results", "What did each arm reach?", "Results", answer, tuple(blocks))


def scaling_section(comparison: Comparison, summary: Summary) -> Section:
    """The gain from more replicas."""
    kind = comparison.shared.scaling
    rows = [row for row in ranked(summary) if row.arm.replicas > 1]
    held = "the global batch" if kind == "strong" else "the batch of each replica"
    title = f"What do more replicas bring? ({kind} scaling)"
    if not rows:
        text = "No comparable arm ran with more than one replica."
        return Section("scaling", title, "Scaling", text, (Picture("scaling"),))
    text = (
        f"{kind.capitalize()} scaling: {held} is the same at every size. Efficiency is "
        "X(N) ÷ (N · X(base)); 100 % is the ideal line, and the base is named in each row. The "
        "ceiling is what as many separate trainings reach at once, each of a model of its own; "
        "only an arm whose replicas share work can exceed it. ringside compare --why measures it."
    )
    why_not = why_no_interval(row.mean_throughput for row in rows)
    blocks: list[Block] = [Text(text), _efficiencies(rows)]
    blocks += [Text(why_not)] if why_not else []
    blocks.append(Picture("scaling"))
    return Section("scaling", title, "Scaling", _scaling_answer(summary, rows), tuple(blocks))


def _scaling_answer(summary: Summary, rows: list[ArmRow]) -> str:
    lines = []
    for size in reversed(sizes_of(rows)):
        best = max(
            (row for row in rows if row.arm.replicas == size and row.against_serial.value),
            key=lambda row: row.against_serial.value or 0.0,
            default=None,
        )
        if best is not None:
            lines.append(
                f"with {size} replicas {best.arm.label} reaches "
                f"{percent(best.against_serial.value or 0.0)} of {size} × "
                f"{best.against_serial.base}"
            )
            if (part := best.of_ceiling.value) is not None:
                lines[-1] += f" ({percent(part)} of as many separate trainings)"
    if not lines:
        return "No arm with one replica is comparable, so there is no base for scaling."
    return f"At best, {'; '.join(lines)}."


def _efficiencies(rows: list[ArmRow]) -> Table:
    ceiling = any(row.of_ceiling.base for row in rows)
    columns = (*RATES, *(heads("Of the ceiling (N separate trainings)") if ceiling else ()))
    body = tuple(
        (
            Cell(row.arm.label),
            *rate_cells(row),
            *([efficiency_cell(row.of_ceiling, row)] if ceiling else []),
        )
        for row in rows
    )
    return Table(columns, body, label="Scaling efficiency", kind="scaling")


def steps_section(summary: Summary) -> Section:
    """How long a step takes: typical and slowest."""
    lines = []
    rows = ranked(summary)
    for size in reversed(sizes_of(rows)):
        known = [
            (value, row)
            for row in rows
            if row.arm.replicas == size and (value := row.spreads["step_p99_ms"].value) is not None
        ]
        if known:
            least, best = min(known, key=lambda pair: pair[0])
            lines.append(f"at {plural(size, 'replica')} {number(least)} ms, of {best.arm.label}")
    missing = (row.spreads["step_p99_ms"] for row in rows)
    reason = next((f": {one.reason}" for one in missing if one.value is None and one.reason), "")
    answer = f"No comparable arm has a p99{reason}."
    if lines:
        answer = f"Lowest p99{twins_aside(summary)}: {'; '.join(lines)}."
    blocks = (Picture("steps"), steps_table(summary))
    return Section("steps", "How even are the steps?", "Step times", answer, blocks)
