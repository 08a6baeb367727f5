"""What is drawn, and how: safe marks, series that differ without colour, labels as they are."""

from ringside.report.plots import _quantiles, plots_of
from ringside.report.view import view_of
from tests.unit.report.proofs import verified
from tests.unit.report.views import bout_plots, bout_view
from tests.unit.stats.factory import arm_of, comparison_of, simple_run


def test_plots_are_one_svg_each_without_foreign_marks() -> None:
    """Colours are those of the page, ids belong to one plot, text stays text."""
    plots = bout_plots()

    for plot in plots.values():
        assert plot.svg.startswith("<svg viewBox=")
        assert plot.svg.count("<svg") == 1
        assert "<style" not in plot.svg and "<metadata" not in plot.svg
        assert "#010203" not in plot.svg and "var(--ink)" in plot.svg
        assert "font-family" not in plot.svg
        assert f'id="{plot.name}-' in plot.svg
    assert "multi_worker_mirrored" in plots["throughput"].svg


def test_step_times_are_drawn_as_their_distribution() -> None:
    """Few steps are drawn exactly, many by the same shares; 0 ms is allowed."""
    assert _quantiles([4.0, 1.0, 0.0, 2.0]) == (
        [0.001, 0.001, 1.0, 2.0, 4.0],
        [0.0, 0.25, 0.5, 0.75, 1.0],
    )
    times, shares = _quantiles([float(n) for n in range(1, 10_001)])
    assert len(times) == len(shares) == 102
    assert all(
        abs(time / 10_000 - share) < 1e-9
        for time, share in zip(times, shares, strict=True)
        if share
    )


def test_series_differ_without_colour() -> None:
    """Any two groups differ by marker and dash."""
    from ringside.report.drawing import styles_of

    styles = styles_of(bout_view().summary.arms).values()

    assert len({(style.marker, str(style.dash)) for style in styles}) == len(styles) == 10


def test_labels_are_drawn_as_they_are() -> None:
    """`$` makes no formula, a leading `_` hides nothing, missing glyphs do no harm."""
    names = {"serial": "_$x^$ 模型"}
    made = [arm_of("serial"), arm_of("mirrored"), arm_of("mirrored", 2)]
    ran = [simple_run(arm.backend, arm.replicas, 1.0, position=k) for k, arm in enumerate(made)]
    comparison = comparison_of(made, ran)
    arms = tuple(
        arm.replace(label=names.get(arm.label, arm.label), group=names.get(arm.group, arm.group))
        for arm in comparison.arms
    )
    runs = tuple(run.replace(arm=names.get(run.arm, run.arm)) for run in comparison.runs)
    renamed = verified(comparison.replace(arms=arms, runs=runs, certificates=()))

    plots = {plot.name: plot for plot in plots_of(view_of(renamed))}

    for name in ("throughput", "scaling", "steps", "quality"):
        assert "_$x^$ 模型" in plots[name].svg.split(">", 1)[1], name
