"""The cost of communication: collectives and their models, bytes and time of each arm."""

from collections.abc import Mapping

from ringside.report.blocks import (
    Block,
    Cell,
    Column,
    Folded,
    Heading,
    Picture,
    Section,
    Table,
    Text,
)
from ringside.report.sections.breakdown import Breakdowns
from ringside.report.sections.tables import arms_in_order, spread_cell
from ringside.report.words import NOTHING, outcome_of, stack_name, why_no_interval, with_interval
from ringside.stats.breakdown import COMMUNICATION
from ringside.stats.collectives import (
    LEAST_FOR_P99,
    CostModel,
    algorithm_bandwidth_gb_s,
    bus_bandwidth_gb_s,
    fit_cost_model,
    predicted_bytes_per_step,
    predicted_seconds,
    times_of,
    wire_bytes,
)
from ringside.stats.links import IMPOSSIBLE, link_words, share_of_link, slowest_bits_per_s
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Communication, Comparison, StackTimings, Timing
from ringside_core.specs.communication import Operation
from ringside_core.text import exact_byte_size, number, percent, plural

TITLE = "What does communication cost?"
NOT_MEASURED = "Collectives were not measured here. Run `ringside allreduce`, then compare."
OPERATIONS = {"allreduce": "all-reduce", "broadcast": "broadcast", "push_pull": "push and pull"}

Models = Mapping[tuple[str, str], CostModel]


def communication_section(
    comparison: Comparison, summary: Summary, breakdown: Breakdowns | None
) -> Section:
    """Collectives with their models, then what each arm sends and waits for."""
    found = comparison.communication
    models = models_of(found) if found else {}
    blocks: list[Block] = []
    if found is not None:
        blocks += [Picture("communication"), _models_table(found, models)]
        if found.links:
            blocks.append(Text(_links(found)))
        blocks.append(Folded("Every size", (_timings_table(found),), ("report.html",)))
    arms = _arms_table(summary, models, breakdown, hosts=len(comparison.hosts))
    if arms.rows:
        blocks += [
            Heading("Predicted, counted, and waited for"),
            Text(
                "Bytes on all links for one step: predicted from the gradients and the collective, "
                "and counted on the interfaces. Time: what the model gives for all gradients in "
                "one piece, and the time that the reduction really adds to a step."
            ),
            arms,
        ]
        known = breakdown.arms if breakdown else ()
        exposed = (part.ms for one in known for part in one.parts if part.name == COMMUNICATION)
        if why_not := why_no_interval(exposed):
            blocks.append(Text(why_not))
    wrong = sum(stack.wrong for stack in found.stacks) if found else 0
    return Section(
        "communication",
        TITLE,
        "Communication",
        _answer(found, models) if found else NOT_MEASURED,
        tuple(blocks),
        sure=not wrong,
    )


def models_of(found: Communication) -> Models:
    """The fitted model of each stack and operation that was timed at two sizes or more."""
    models = {}
    for stack in found.stacks:
        for operation, timings in timings_by_operation(stack).items():
            if len({timing.size_bytes for timing in timings}) > 1 and found.num_ranks > 1:
                models[stack.stack, operation] = fit_cost_model(
                    timings, add_seconds_per_byte=found.add_seconds_per_byte
                )
    return models


def timings_by_operation(stack: StackTimings) -> dict[str, list[Timing]]:
    """The timings of a stack, smallest size first."""
    found: dict[str, list[Timing]] = {}
    for timing in sorted(stack.timings, key=lambda timing: timing.size_bytes):
        found.setdefault(timing.operation, []).append(timing)
    return found


def _answer(found: Communication, models: Models) -> str:
    best = []
    for stack in found.stacks:
        timings = timings_by_operation(stack).get("allreduce")
        if timings and (bandwidth := bus_bandwidth_gb_s(timings[-1])) is not None:
            best.append((bandwidth, stack.stack, timings[-1].size_bytes))
    if not best:
        return "No stack completed an all-reduce."
    bandwidth, name, size = max(best)
    wrong = sum(stack.wrong for stack in found.stacks)
    right = "every element was correct" if not wrong else f"{wrong:,} ELEMENTS WERE WRONG"
    worst = max((one.relative_error for one in models.values()), default=None)
    told = (
        f"Fastest all-reduce of {exact_byte_size(size)} among {plural(found.num_ranks, 'rank')}: "
        f"{stack_name(name)}, {number(bandwidth)} GB/s bus bandwidth; {right}."
    )
    if worst is not None:
        told += f" The models are wrong by at most {percent(worst)} (median over sizes)."
    return told


def _links(found: Communication) -> str:
    """The rate of each link, and what `of the link` means."""
    told = "; ".join(
        f"{link.sender} to {link.receiver} {link_words(link)}"
        + ("" if link.tool == "tcp" else f" by {link.tool}")
        for link in found.links
    )
    return (
        f"Links, each measured by a plain TCP transfer before the collectives: {told}. Of the "
        "link: the shortest time that the slowest link allows ÷ the slowest rank's median time."
    )


def _models_table(found: Communication, models: Models) -> Table:
    columns = (
        Column("Stack", numeric=False),
        Column("Operation", numeric=False),
        Column("α", "µs"),
        Column("1 ÷ β", "GB/s"),
        Column("γ", "ns/KiB"),
        Column("Error of the model", "median, largest"),
        Column("Bus bandwidth", "GB/s at the largest size"),
        Column("Wrong", "elements"),
    )
    rows = []
    for stack in found.stacks:
        if not stack.timings:
            nothing = (Cell(NOTHING),) * (len(columns) - 2)
            why_not = Cell(NOTHING, outcome_of(stack.outcome))
            rows.append((Cell(stack_name(stack.stack)), why_not, *nothing))
        for operation, timings in timings_by_operation(stack).items():
            bus = bus_bandwidth_gb_s(timings[-1])
            wrong = sum(timing.wrong for timing in timings)
            rows.append(
                (
                    Cell(stack_name(stack.stack)),
                    Cell(OPERATIONS[operation]),
                    *_model_cells(models.get((stack.stack, operation))),
                    Cell(NOTHING) if bus is None else Cell(number(bus)),
                    Cell(f"{wrong:,}", bad=wrong > 0),
                )
            )
    return Table(columns, tuple(rows), label="Cost models of the collectives", kind="models")


def _model_cells(model: CostModel | None) -> tuple[Cell, ...]:
    if model is None:
        return (Cell(NOTHING, "two sizes are needed"), *[Cell(NOTHING)] * 3)
    beta = model.beta_s_per_byte
    return (
        Cell(number(model.alpha_s * 1e6)),
        Cell(number(1e-9 / beta) if beta else NOTHING),
        Cell(
            NOTHING
            if model.gamma_s_per_byte is None
            else number(model.gamma_s_per_byte * 1e9 * 1024)
        ),
        Cell(
            percent(model.relative_error),
            model.reason or percent(model.largest_relative_error),
            bad=bool(model.reason),
        ),
    )


def _timings_table(found: Communication) -> Table:
    columns = (
        Column("Stack", numeric=False),
        Column("Operation", numeric=False),
        Column("Size"),
        Column("Repetitions"),
        Column("Mean", "µs [least–most of a rank]"),
        Column("Median", "µs"),
        Column("p99", f"µs, from {LEAST_FOR_P99} repetitions on"),
        Column("Algorithm bandwidth", "GB/s"),
        Column("Bus bandwidth", "GB/s"),
        *([Column("Of the link")] if found.links else []),
        Column("Wrong", "elements"),
    )
    rows = tuple(
        _timing(stack, timing, _of_the_link(found, timing))
        for stack in found.stacks
        for timings in timings_by_operation(stack).values()
        for timing in timings
    )
    return Table(columns, rows, label="Every size of every collective", kind="collectives")


def _of_the_link(found: Communication, timing: Timing) -> tuple[Cell, ...]:
    """The share of the link that it reaches; no cell if there are no links."""
    bits_per_s = slowest_bits_per_s(found.links)
    if bits_per_s is None:
        return ()
    hosts = len(set(found.hosts))
    reached = share_of_link(timing, num_hosts=hosts, bits_per_s=bits_per_s)
    return (Cell(percent(reached), bad=reached > IMPOSSIBLE),)


def _timing(stack: StackTimings, timing: Timing, of_the_link: tuple[Cell, ...]) -> tuple[Cell, ...]:
    times, bus = times_of(timing), bus_bandwidth_gb_s(timing)
    low, high = number(times.shortest_s * 1e6), number(times.longest_s * 1e6)
    algorithm = algorithm_bandwidth_gb_s(size_bytes=timing.size_bytes, seconds=times.mean_s)
    return (
        Cell(stack_name(stack.stack)),
        Cell(OPERATIONS[timing.operation]),
        Cell(exact_byte_size(timing.size_bytes)),
        Cell(str(len(timing.seconds))),
        Cell(number(times.mean_s * 1e6), f"[{low}–{high}]"),
        Cell(number(times.median_s * 1e6)),
        Cell(NOTHING if times.p99_s is None else number(times.p99_s * 1e6)),
        Cell(number(algorithm)),
        Cell(NOTHING if bus is None else number(bus)),
        *of_the_link,
        Cell(f"{timing.wrong:,}", bad=timing.wrong > 0),
    )


# What an arm sends and waits for


def _arms_table(
    summary: Summary, models: Models, breakdown: Breakdowns | None, *, hosts: int
) -> Table:
    columns = (
        Column("Arm", numeric=False),
        Column("Gradients", "bytes"),
        Column("Predicted", "bytes a step, all ranks"),
        Column("Counted", "bytes a step, all interfaces"),
        Column("Predicted", "ms, in one piece"),
        Column("Exposed", "ms per global batch"),
    )
    rows = tuple(
        _arm(row, summary, models, breakdown, hosts=hosts)
        for row in arms_in_order(summary)
        if row.arm.replicas > 1 and not row.arm.twin_of and row.completed
    )
    return Table(columns, rows, label="Communication of each arm", kind="arms")


def _arm(
    row: ArmRow, summary: Summary, models: Models, breakdown: Breakdowns | None, *, hosts: int
) -> tuple[Cell, ...]:
    counted = spread_cell(row.spreads["sent_bytes_per_step"])
    if (sent := row.spreads["sent_bytes_per_step"].value) is not None:
        counted = Cell(f"{sent:,.0f}", counted.note)
    return (
        Cell(row.arm.label),
        *_predicted(row, _gradient_bytes(summary, row), counted, models, hosts=hosts),
        _exposed(row, breakdown),
    )


def _predicted(
    row: ArmRow, gradients: int | None, counted: Cell, models: Models, *, hosts: int
) -> tuple[Cell, ...]:
    """Gradients, predicted bytes, counted bytes, predicted time."""
    if gradients is None:
        return Cell(NOTHING, "not recorded"), Cell(NOTHING), counted, Cell(NOTHING)
    known = Cell(f"{gradients:,}")
    if row.arm.capabilities.process_model == "single":
        inside = Cell("0", "one process: nothing is sent")
        return known, inside, counted, Cell(NOTHING, "one process")
    coordinated = row.arm.capabilities.process_model == "coordinator"
    operation: Operation = "push_pull" if coordinated else "allreduce"
    each = predicted_bytes_per_step(gradients, row.arm.replicas, operation=operation)
    sent = row.arm.replicas * each
    stack = row.arm.options.stack
    model = models.get((stack, operation)) if stack else None
    if coordinated and hosts > 1:
        # Measured with every worker away from the server; in a run some are beside it.
        time = Cell(NOTHING, "some workers are on their server's host")
    elif model is None:
        time = Cell(NOTHING, f"{stack_name(stack) if stack else 'its collective'} was not measured")
    else:
        seconds = predicted_seconds(model, gradients, num_ranks=row.arm.replicas)
        time = Cell(number(seconds * 1e3), f"by {stack_name(stack or '')}")
    return known, Cell(f"{sent:,.0f}", OPERATIONS[operation]), counted, time


def _gradient_bytes(summary: Summary, row: ArmRow) -> int | None:
    """Bytes of one gradient of all weights as it is sent, as any process of the arm recorded."""
    found = [
        wire_bytes(record.gradient_bytes, one.run.spec)
        for one in summary.runs
        if one.arm == row.arm
        for record in one.run.records
        if record.gradient_bytes
    ]
    return found[0] if found else None


def _exposed(row: ArmRow, breakdown: Breakdowns | None) -> Cell:
    for one in breakdown.arms if breakdown else ():
        if one.arm == row.arm.label:
            for part in one.parts:
                if part.name == COMMUNICATION:
                    return Cell(*with_interval(part.ms))
            return Cell(NOTHING, one.reason)
    return Cell(NOTHING, "not measured for this arm" if breakdown else "run with --why")
