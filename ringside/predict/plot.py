"""A prediction drawn: step time and efficiency against replicas, marks where it was measured."""

from pathlib import Path
from typing import Any

from ringside.predict.prediction import Prediction, StackPrediction
from ringside.report.drawing import (
    DASHES,
    MARKERS,
    SETTINGS,
    WIDTH_IN,
    legend,
    name_numbers,
    series,
)
from ringside.report.svg import MUTED, SERIES
from ringside_core.specs import whole_file

INK, GRID = "#1d2430", "#d8dce3"
HEIGHT_IN = 6.2


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
