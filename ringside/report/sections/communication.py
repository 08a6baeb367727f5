"""The cost of communication: the all-reduces of each stack, then bytes and time of each arm."""

from ringside.report.blocks import Block, Cell, Folded, Heading, Section, Table, Text, heads
from ringside.report.sections.breakdown import Breakdowns
from ringside.report.sections.tables import arms_in_order, spread_cell
from ringside.report.words import NOTHING, outcome_of, stack_name, why_no_interval, with_interval
from ringside.stats.breakdown import COMMUNICATION
from ringside.stats.collectives import (
    bus_bandwidth_gb_s,
    fit_cost_model,
    predicted_seconds,
    seconds_of,
    wire_bytes,
)
from ringside.stats.links import IMPOSSIBLE, link_words, share_of_link, slowest_bits_per_s
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Communication, Comparison, Timing
from ringside_core.text import exact_byte_size, number, percent, plural

TITLE = "What does communication cost?"
NOT_MEASURED = "All-reduces were not measured here. Run `ringside allreduce`, then compare."
COLUMNS = heads("<Stack | Size | Time (ms) | Bus bandwidth (GB/s) | Wrong (elements) | Of the link")
ARM_COLUMNS = heads(
    "<Arm | Gradients (bytes) | Sent (bytes a step, all interfaces) | "
    "All-reduce (ms, in one piece) | Exposed (ms per global batch)"
)


def communication_section(
    comparison: Comparison, summary: Summary, breakdown: Breakdowns | None
) -> Section:
    """The all-reduces that were measured, then what each arm sends and waits for."""
    found = comparison.communication
    blocks: list[Block] = []
    if found is not None:
        if found.links:
            blocks.append(Text(_links(found)))
        blocks.append(Folded("Every size", (timings_table(found),), ("report.html",)))
    rows = tuple(
        _arm(row, summary, found, breakdown)
        for row in arms_in_order(summary)
        if row.arm.replicas > 1 and not row.arm.twin_of and row.completed
    )
    if rows:
        blocks += [
            Heading("Sent, and waited for"),
            Text(
                "All-reduce: of all gradients in one piece, by a model of latency and bandwidth "
                "that was fitted to the times of every size (± its median error). Exposed: what "
                "the reduction really adds to a step."
            ),
            Table(ARM_COLUMNS, rows, label="Communication of each arm"),
        ]
        known = breakdown.arms if breakdown else ()
        exposed = (part.ms for arm in known for part in arm.parts if part.name == COMMUNICATION)
        if why_not := why_no_interval(exposed):
            blocks.append(Text(why_not))
    wrong = sum(stack.wrong for stack in found.stacks) if found else 0
    answer = _answer(found, wrong) if found else NOT_MEASURED
    return Section("communication", TITLE, "Communication", answer, tuple(blocks), sure=not wrong)


def _answer(found: Communication, wrong: int) -> str:
    largest = {stack.stack: stack.timings[-1] for stack in found.stacks if stack.timings}
    if not largest:
        return "No stack completed an all-reduce."
    name = max(largest, key=lambda stack: bus_bandwidth_gb_s(largest[stack]))
    right = "every element was correct" if not wrong else f"{wrong:,} ELEMENTS WERE WRONG"
    return (
        f"Fastest all-reduce of {exact_byte_size(largest[name].size_bytes)} among "
        f"{plural(found.num_ranks, 'rank')}: {stack_name(name)}, "
        f"{number(bus_bandwidth_gb_s(largest[name]))} GB/s bus bandwidth; {right}."
    )


def _links(found: Communication) -> str:
    rates = "; ".join(f"{one.sender} to {one.receiver} {link_words(one)}" for one in found.links)
    return (
        f"Links, each measured by a plain TCP transfer before the all-reduces: {rates}. Of the "
        "link: the shortest time that the slowest link allows ÷ the mean time."
    )


def timings_table(found: Communication) -> Table:
    """A line for each stack and size; a stack that did not run has one with the reason."""
    rows: list[tuple[Cell, ...]] = []
    columns = COLUMNS if found.links else COLUMNS[:-1]
    for stack in found.stacks:
        name = Cell(stack_name(stack.stack))
        if not stack.timings:
            why_not = Cell(NOTHING, outcome_of(stack.outcome))
            rows.append((name, why_not, *(Cell(NOTHING),) * (len(columns) - 2)))
        rows += [(name, *_timing(timing, found)) for timing in stack.timings]
    return Table(columns, tuple(rows), label="Every size of every all-reduce")


def _timing(timing: Timing, found: Communication) -> tuple[Cell, ...]:
    share: tuple[Cell, ...] = ()
    if bits_per_s := slowest_bits_per_s(found.links):
        hosts = len(set(found.hosts))
        reached = share_of_link(timing, num_hosts=hosts, bits_per_s=bits_per_s)
        share = (Cell(percent(reached), bad=reached > IMPOSSIBLE),)
    return (
        Cell(exact_byte_size(timing.size_bytes)),
        Cell(*with_interval(seconds_of(timing), scale=1e3)),
        Cell(number(bus_bandwidth_gb_s(timing))),
        Cell(f"{timing.wrong:,}", bad=timing.wrong > 0),
        *share,
    )


def _arm(
    row: ArmRow, summary: Summary, found: Communication | None, breakdown: Breakdowns | None
) -> tuple[Cell, ...]:
    gradients = _gradient_bytes(summary, row)
    return (
        Cell(row.arm.label),
        Cell(NOTHING, "not recorded") if gradients is None else Cell(f"{gradients:,}"),
        spread_cell(row.spreads["sent_bytes_per_step"]),
        _allreduce_time(row, found, gradients),
        _exposed(row, breakdown),
    )


def _allreduce_time(row: ArmRow, found: Communication | None, gradients: int | None) -> Cell:
    """Of an array as large as all gradients, by the cost model of the arm's stack."""
    stack = row.arm.options.stack
    stacks = found.stacks if found else ()
    timings = [timing for one in stacks if one.stack == stack for timing in one.timings]
    if stack is None or gradients is None or len(timings) < 2:
        return Cell(NOTHING, "not measured")
    model = fit_cost_model(timings)
    seconds = predicted_seconds(model, gradients, num_ranks=row.arm.replicas)
    return Cell(number(seconds * 1e3), f"± {percent(model.relative_error)}")


def _gradient_bytes(summary: Summary, row: ArmRow) -> int | None:
    """Bytes of one gradient of all weights as it is sent, as any process of the arm recorded."""
    runs = [one.run for one in summary.runs if one.arm == row.arm]
    known = ((r.gradient_bytes, run.spec) for run in runs for r in run.records)
    return next((wire_bytes(count, spec) for count, spec in known if count), None)


def _exposed(row: ArmRow, breakdown: Breakdowns | None) -> Cell:
    for arm in breakdown.arms if breakdown else ():
        if arm.arm == row.arm.label:
            for part in arm.parts:
                if part.name == COMMUNICATION:
                    return Cell(*with_interval(part.ms))
            return Cell(NOTHING, arm.reason)
    return Cell(NOTHING, "not measured for this arm" if breakdown else "run with --why")
