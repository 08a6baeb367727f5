"""A prediction as a reader sees it: tables for the terminal, a Markdown page, and a drawing."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text as RichText

from ringside.predict.prediction import Checked, PredictedStep, Prediction, StackPrediction
from ringside.report.blocks import Block, Cell, Column, Heading, Section, Table, Text
from ringside.report.drawing import (
    DASHES,
    MARKERS,
    MUTED,
    SERIES,
    SETTINGS,
    WIDTH_IN,
    legend,
    name_numbers,
    series,
)
from ringside.report.terminal import rich_table
from ringside.report.words import NOTHING
from ringside_core.specs import whole_file
from ringside_core.text import decimals_for, number, percent, plain

LABEL_WIDTH = 34
INK, GRID = "#1d2430", "#d8dce3"
HEIGHT_IN = 6.2
GROWTH = {"served": "queue at the server", "open_mpi": "Open MPI's choice"}
COVERS = (
    "The interval covers: scatter between rounds, the error of the all-reduce's curve (once more "
    "for each doubling of the ranks), and the growth that theory leaves open. It cannot cover what "
    "two hosts do not show: switches and their congestion, slow hosts among many, failures, "
    "other algorithms of the stack at other sizes."
)


def sections_of(prediction: Prediction) -> tuple[Section, ...]:
    """What is said, before any format."""
    sections = [_steps_section(prediction), _inputs_section(prediction)]
    if prediction.checks:
        sections.insert(0, _checks_section(prediction))
    return tuple(sections)


def render_markdown(prediction: Prediction) -> str:
    """The page."""
    from ringside.report.markdown import escaped, rendered_section

    parts = [f"# {escaped(_title(prediction))}", escaped(prediction.command)]
    for section in sections_of(prediction):
        parts += rendered_section(section)
    parts.append("![Step time and efficiency by replicas](prediction.svg)")
    return "\n\n".join(parts) + "\n"


def printed(prediction: Prediction) -> tuple[RichTable | RichText, ...]:
    """The same for a terminal: each section's table, its answer, and what is said below."""
    found: list[RichTable | RichText] = []
    for section in sections_of(prediction):
        found += printed_section(section)
    return tuple(found)


def printed_section(section: Section) -> Iterator[RichTable | RichText]:
    """One section for a terminal."""
    for block in section.blocks:
        if isinstance(block, Table):
            yield rich_table(block, title=section.title, label_width=LABEL_WIDTH, notes_beside=True)
            yield RichText(plain(section.answer))
        elif isinstance(block, Heading):
            yield RichText("\n" + plain(block.text), style="bold")
        elif isinstance(block, Text):
            yield RichText("- " + plain(block.text))


def _title(prediction: Prediction) -> str:
    return f"{prediction.workload} at other sizes, {prediction.scaling} scaling"


def link_of(prediction: Prediction) -> str:
    """Which link is meant, in words."""
    measured, wanted = prediction.measured_bits_per_s, prediction.bits_per_s
    if measured is None:
        return "one machine: no link was measured"
    at = f"{number(measured / 1e6)} Mbit/s"
    if wanted is None:
        return f"the link that was measured, {at} by TCP"
    return f"a link that carries {number(wanted / 1e6)} Mbit/s by TCP; measured at {at}"


# The predicted steps


def _steps_section(prediction: Prediction) -> Section:
    columns = (
        Column("Stack", numeric=False),
        Column("Replicas", "on hosts"),
        Column("Step", "ms, 95 % interval"),
        Column("Throughput", "examples/s"),
        Column("Efficiency", "against ×1 of the stack"),
    )
    rows = [
        (
            Cell(stack.label),
            Cell(f"{step.replicas:,}", f"on {step.hosts:,}"),
            Cell(*_step_words(step)),
            Cell(number(step.throughput_examples_s)),
            Cell(*_efficiency(stack, step)),
        )
        for stack in prediction.stacks
        for step in stack.steps
    ]
    blocks: list[Block] = [
        Table(columns, tuple(rows), label="Predicted steps"),
        Text(COVERS),
    ]
    reasons = dict.fromkeys(one.reason for one in prediction.stacks if one.reason)
    blocks += [Text(f"There is no interval: {reason}.") for reason in reasons]
    blocks += [
        Text(f"Not predicted: {label}: {reason}")
        for label, reason in prediction.not_predicted.items()
    ]
    blocks += map(Text, prediction.notes)
    answer = (
        f"{prediction.replicas_per_host} on each host; {link_of(prediction)}. Nothing of this was "
        "measured."
    )
    return Section("steps", "Predicted", "Predicted", answer, tuple(blocks))


def _step_words(step: PredictedStep) -> tuple[str, str]:
    value = number(step.step_ms)
    if step.low_ms is None or step.high_ms is None:
        return value, "no interval"
    places = decimals_for(step.step_ms)
    return value, f"[{number(step.low_ms, places)}, {number(step.high_ms, places)}]"


def _efficiency(stack: StackPrediction, step: PredictedStep) -> tuple[str, str]:
    value = percent(stack.efficiency(step))
    if step.low_ms is None or step.high_ms is None:
        return value, ""
    low, high = (percent(stack.efficiency(step, end)) for end in (step.high_ms, step.low_ms))
    return value, f"[{low.removesuffix(' %')}, {high.removesuffix(' %')}]"


# What it was computed from


def _inputs_section(prediction: Prediction) -> Section:
    columns = (
        Column("Stack", numeric=False),
        Column("Gradient", "MB"),
        Column("×1", "ms, measured"),
        Column("×2", "ms, measured"),
        Column("Computing at ×2", "ms"),
        Column("All-reduce alone", "ms, among 2"),
        Column("Remainder", "ms; negative: hidden"),
        Column("Of it waiting", "ms"),
        Column("Grows as", numeric=False),
    )
    rows = tuple(
        (
            Cell(stack.label),
            Cell(number(stack.gradient_bytes / 1e6)),
            Cell(number(stack.alone_ms)),
            Cell(number(stack.two_ms)),
            Cell(number(stack.compute_ms)),
            Cell(NOTHING if stack.algorithm == "served" else number(stack.pair_ms)),
            Cell(NOTHING if stack.algorithm == "served" else number(stack.rest_ms)),
            Cell(NOTHING if stack.algorithm == "served" else number(stack.waiting_ms)),
            Cell(GROWTH.get(stack.algorithm, stack.algorithm)),
        )
        for stack in prediction.stacks
    )
    answer = "Measured at one and two replicas; the rest follows from it (docs/prediction.md)."
    table = Table(columns, rows, label="What the prediction was computed from")
    return Section("inputs", "Computed from", "Computed from", answer, (table,))


# Against what was measured


def _checks_section(prediction: Prediction) -> Section:
    found = prediction.checks
    inside = [one for one in found if one.within]
    told = [one for one in found if one.within is not None]
    worst = max(found, key=lambda one: abs(one.error))
    answer = (
        f"Largest error {error_percent(worst.error)} ({worst.label} ×{worst.predicted.replicas}); "
        f"{len(inside)} of {len(told)} intervals hold what was measured."
    )
    return Section("check", "Predicted and measured", "Check", answer, (checks_table(found),))


def checks_table(checks: Iterable[Checked]) -> Table:
    """Predicted and measured side by side, with the error."""
    columns = (
        Column("Stack", numeric=False),
        Column("Replicas"),
        Column("Predicted", "ms, 95 % interval"),
        Column("Measured", "ms"),
        Column("Error"),
        Column("In the interval", numeric=False),
    )
    words = {True: "yes", False: "no", None: "no interval"}
    rows = tuple(
        (
            Cell(one.label),
            Cell(f"{one.predicted.replicas:,}"),
            Cell(*_step_words(one.predicted)),
            Cell(number(one.measured_ms), f"n={one.rounds}"),
            Cell(error_percent(one.error)),
            Cell(words[one.within], bad=one.within is False),
        )
        for one in checks
    )
    return Table(columns, rows, label="Predicted and measured")


def error_percent(error: float) -> str:
    """An error of 0.052 as +5.2 %."""
    return f"{100 * error:+.1f} %"


# The drawing


def draw_prediction(prediction: Prediction, folder: Path) -> tuple[Path, ...]:
    """Write prediction.svg and prediction.png, each whole."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    files = (folder / "prediction.svg", folder / "prediction.png")
    with matplotlib.rc_context():
        # First matplotlib's own defaults: a person's matplotlibrc must not change the drawing.
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        inks = {key: INK for key, value in SETTINGS.items() if str(value).startswith("#0")}
        parameters.update({**SETTINGS, **inks, "grid.color": GRID, "svg.hashsalt": "prediction"})
        figure = Figure(figsize=(WIDTH_IN * 1.4, HEIGHT_IN), layout="constrained")
        figure.set_facecolor("white")
        _draw(figure, prediction)
        for file, canvas in zip(files, (FigureCanvasSVG, FigureCanvasAgg), strict=True):
            with whole_file(file) as stream:
                kind = {"metadata": {"Date": None}} if file.suffix == ".svg" else {"dpi": 160}
                bound: Any = canvas(figure)
                bound.print_figure(stream, format=file.suffix[1:], **kind)
    return files


def _draw(figure: Any, prediction: Prediction) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    for index, stack in enumerate(prediction.stacks):
        _stack(above, below, stack, index, prediction)
    above.set_yscale("log")
    above.set_ylabel("step, ms")
    above.set_title(f"{prediction.workload}, {prediction.scaling} scaling", loc="left")
    below.set_ylabel("efficiency against ×1, %")
    below.set_ylim(bottom=0)
    below.set_xscale("log", base=2)
    below.set_xlabel("replicas (lines: predicted with 95 % interval; marks: measured)")
    for axes in (above, below):
        axes.set_axisbelow(True)
    name_numbers(above.yaxis, log=True)
    sizes = sorted({1, 2, *(step.replicas for one in prediction.stacks for step in one.steps)})
    below.set_xticks(sizes, [f"{size:,}" for size in sizes])
    below.minorticks_off()
    legend(figure, [above])


def _stack(above: Any, below: Any, stack: StackPrediction, index: int, whole: Prediction) -> None:
    color = SERIES[index % len(SERIES)]
    look = {"color": color, "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.4}
    steps = sorted(stack.steps, key=lambda step: step.replicas)
    sizes = [step.replicas for step in steps]
    above.plot(sizes, [step.step_ms for step in steps], label=series(stack.label), **look)
    below.plot(sizes, [100 * stack.efficiency(step) for step in steps], **look)
    if all(step.low_ms and step.high_ms for step in steps):
        band = {"color": color, "alpha": 0.15, "linewidth": 0}
        above.fill_between(sizes, [s.low_ms for s in steps], [s.high_ms for s in steps], **band)
        below.fill_between(
            sizes,
            [100 * stack.efficiency(s, s.high_ms) for s in steps],
            [100 * stack.efficiency(s, s.low_ms) for s in steps],
            **band,
        )
    mine = [one for one in whole.checks if one.label == stack.label]
    seen = {1: stack.alone_ms, **{one.predicted.replicas: one.measured_ms for one in mine}}
    at_two = stack.alone_batch * (2 if whole.scaling == "weak" else 1)
    if stack.two_batch == at_two:  # measured under this scaling
        seen.setdefault(2, stack.two_ms)
    at, times = list(seen), list(seen.values())
    shrinks = whole.scaling == "strong"
    reached = [100 * stack.alone_ms / ms / (n if shrinks else 1) for n, ms in seen.items()]
    mark = {
        "marker": MARKERS[index % len(MARKERS)],
        "color": color,
        "linestyle": "none",
        "markeredgecolor": MUTED,
        "markersize": 5,
    }
    above.plot(at, times, **mark)
    below.plot(at, reached, **mark)
