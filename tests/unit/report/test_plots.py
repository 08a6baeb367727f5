"""What is drawn, and how: safe marks, series that differ without colour, labels as they are."""

from ringside.report.plots import _curves, _quantiles
from ringside.stats.summary import summarize
from ringside_core.specs import Block
from tests.unit.report.views import bout_plots, bout_view
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of


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


def test_quality_is_drawn_where_the_table_says_that_the_target_was_reached() -> None:
    """From the start of the arm alone, 5 s, and not from that in a live launch, 9 s."""
    arm, spec = arm_of("serial"), spec_of("serial")
    blocks = (Block(number=0, begun_after=2, ended_after=4, wall_s=1.0),)
    epochs = [epoch(1.0, end_s=end_s, accuracy=0.95) for end_s in (20.0, 30.0)]
    records = [record(spec, epochs, startup_s=9.0)]
    runs = [run_of(arm, records, number=k, blocks=blocks) for k in range(4)]
    runs[0] = runs[0].replace(alone_start_s=5.0)
    summary = summarize(comparison_of([arm], runs, finalists=("serial",), live=True))

    (seconds, _), *_ = _curves(summary, "accuracy")["serial"]

    assert seconds == [16.0, 26.0]
    assert summary.arms[0].spreads["time_to_target_s"].value == 16.0


def test_series_differ_without_colour() -> None:
    """Any two groups differ by marker and dash."""
    from ringside.report.drawing import styles_of

    styles = styles_of(bout_view().summary.arms).values()

    assert len({(style.marker, str(style.dash)) for style in styles}) == len(styles) == 10
