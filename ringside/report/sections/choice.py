"""Which arm to take: what was measured and what is known, each fact by itself."""

from collections.abc import Iterator

from ringside.drill.cells import Drill
from ringside.report.blocks import Block, Cell, Heading, Section, Table, Terms, heads
from ringside.report.ranking import family_of, ranked, ratio_cell
from ringside.report.sections.headline import Headline
from ringside.report.sections.proof import certified_cell
from ringside.report.sections.tables import spread_cell, target_cell
from ringside.report.words import NOTHING, with_interval
from ringside.stats.figure import Figure, Interval
from ringside.stats.final import Pair
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Comparison
from ringside_core.text import listed, number

# Of November 2026, with where it can be looked up; docs/upstream.md has the traps.
UPSTREAM = (
    (
        "Horovod",
        "0.28.1 of June 2023 is the last release (horovod#3942). One of its files must be changed "
        "for TensorFlow 2.19 and later (docs/stack.md). It also runs under PyTorch.",
    ),
    (
        "tf.distribute",
        "It comes with each TensorFlow. Keras 3's own fit fails under MultiWorkerMirroredStrategy "
        "(keras#20585) and ParameterServerStrategy (keras#18624); Ringside and Keras 2 do not.",
    ),
)
HOUR_S = 3600.0


def choice_section(
    comparison: Comparison, summary: Summary, headline: Headline, drill: Drill | None
) -> Iterator[Section]:
    """The arms of the largest size and serial; nothing, where no two of them are ranked.

    Args:
        comparison: with a price, or without one.
        summary: of the comparison.
        headline: what is said of its speed.
        drill: that was made beside it.
    """
    rows = ranked(summary)
    size = max((row.arm.replicas for row in rows), default=0)
    rows = [row for row in rows if row.arm.replicas == size or row.arm.label == summary.serial]
    if len(rows) < 2:
        return
    blocks: list[Block] = [_table(comparison, summary, rows, drill)]
    blocks += [Heading("What upstream maintains (November 2026)"), Terms(UPSTREAM)]
    yield Section(
        "choice",
        "Which one should I take?",
        "Choosing",
        " ".join(_answer(summary, rows, headline, drill)),
        tuple(blocks),
        sure=headline.decided,
    )


def _answer(
    summary: Summary, rows: list[ArmRow], headline: Headline, drill: Drill | None
) -> Iterator[str]:
    """Speed, memory, faults; what does not tell arms apart is not named."""
    yield headline.sentence
    memory = [
        (value / 2**30, row.arm.label)
        for row in rows
        if row.arm.label != summary.serial
        and (value := row.spreads["peak_pss_bytes"].value) is not None
    ]
    if len(memory) > 1:
        (least, lean), (most, heavy) = min(memory), max(memory)
        yield f"Memory: {number(least)} GiB ({lean}) to {number(most)} GiB ({heavy})."
    if drill is None:
        yield "What faults cost is not known yet: ringside drill says it."
        return
    made = [row for row in rows if any(not cell.obstacle for cell in drill.of(row.arm.label))]
    lost = [row.arm.label for row in made if _faults(row, drill).bad]
    if not made:
        yield "The drill beside it has none of these arms."
    elif lost:
        yield f"Faults cost {listed(lost)} something."
    else:
        yield f"No fault that was made cost {listed([row.arm.label for row in made])} a run."


def _table(
    comparison: Comparison, summary: Summary, rows: list[ArmRow], drill: Drill | None
) -> Table:
    price = comparison.asked.price
    more = (
        ""
        if price is None
        else f" | Steps of an epoch (at {price:g} an hour) | To the target (same)"
    )
    columns = heads(
        "<Arm | <Family | Times as fast (as serial) | Peak memory (PSS, GiB) | "
        f"<Faults | <Certificate{more}"
    )
    return Table(
        columns,
        tuple(
            (
                Cell(row.arm.label),
                Cell(family_of(row)),
                ratio_cell(_against_serial(row, summary, rows)),
                spread_cell(row.spreads["peak_pss_bytes"], scale=1 / 2**30),
                _faults(row, drill),
                certified_cell(row.certificate, row.not_comparable_because),
                *(() if price is None else costs(row, summary, price)),
            )
            for row in rows
        ),
        label="What is known of each arm",
    )


def _against_serial(row: ArmRow, summary: Summary, rows: list[ArmRow]) -> Pair:
    label = row.arm.label
    if summary.serial not in {one.arm.label for one in rows}:
        return Pair(label, "", Figure(None, "no comparable serial arm"))
    if label == summary.serial:
        return Pair(label, "", Figure(None, "base"))
    return summary.pair_of(label, summary.serial)


def _faults(row: ArmRow, drill: Drill | None) -> Cell:
    """Those that cost a run of this arm something."""
    cells = drill.of(row.arm.label) if drill else ()
    made = [cell for cell in cells if not cell.obstacle]
    if drill is None or not made:
        return Cell(NOTHING, "no drill beside it" if drill is None else "not in the drill")
    lost = [cell.fault for cell in made if not cell.lost_nothing(drill.tolerance)]
    return Cell(listed(lost) if lost else "none cost a run", f"of {len(made)}", bad=bool(lost))


def costs(row: ArmRow, summary: Summary, price: float) -> tuple[Cell, Cell]:
    """Training steps of an epoch, and the target, in units of the price, for all hosts."""
    runs = [one.run for one in summary.runs if one.arm == row.arm and one.run.outcome.completed]
    hosts = max(len({record.machine.host for record in run.records}) for run in runs)
    # The last epoch of a live run ends where its phase does.
    whole = [
        epoch.examples
        for run in runs
        for record in run.records
        for epoch in record.epochs[: -1 if run.blocks else None]
    ]
    rate, each = row.mean_throughput, price * hosts / HOUR_S
    of_epoch = Figure(None, "no whole epoch was trained")
    if whole and rate.value is not None:
        cost, within = max(whole) * each, rate.interval
        interval = within and Interval(cost / within.high, cost / within.low)
        of_epoch = Figure(cost / rate.value, rate.reason, interval=interval, n=rate.n)
    target = row.spreads["time_to_target_s"]
    to_target = target_cell(target)
    if target.value is not None and not to_target.bad:
        to_target = spread_cell(target, scale=each)
    return Cell(*with_interval(of_epoch)), to_target
