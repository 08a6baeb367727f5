"""Which arm to take: each fact by itself, and costs where a price is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringside.cli.report import report_again
from ringside.report.blocks import Cell, Section, Table
from ringside.report.check import check_report
from ringside.report.sections.choice import costs
from ringside.report.source import RESULTS
from ringside.report.view import view_of
from ringside_core.specs import Block, Comparison, RefusalError, Run
from tests.unit.report.bout import EXAMPLES, bout
from tests.unit.report.proofs import recertified
from tests.unit.report.test_safety import LOST, SAFE, kept
from tests.unit.report.views import bout_view, section_of

PRICE = 2.40


def priced(price: float) -> Comparison:
    """The made-up comparison, whose hosts cost so much for an hour."""
    return bout().replace(asked=bout().asked.replace(price=price))


def table_of(section: Section) -> Table:
    """Its table."""
    return next(block for block in section.blocks if isinstance(block, Table))


def test_each_fact_stands_by_itself() -> None:
    """The arms of the largest size and serial, fastest first; no costs without a price."""
    section, headline = section_of(bout_view(), "choice"), bout_view().headline
    table = table_of(section)

    assert headline is not None
    assert section.answer.startswith(headline.sentence)
    assert "Memory: " in section.answer
    assert "ringside drill" in section.answer
    labels = [row[0].main for row in table.rows]
    assert "serial" in labels
    assert all(label == "serial" or label.endswith("×2") for label in labels)
    assert [column.name for column in table.columns][-1] == "Certificate"


def test_costs_are_hours_of_a_host() -> None:
    """Of an epoch: its examples ÷ examples/s of the arm; held against a sum by hand."""
    view = view_of(priced(PRICE))
    table = table_of(section_of(view, "choice"))

    rates = {row.arm.label: row.mean_throughput for row in view.summary.arms}
    for row in table.rows:
        rate = rates[row[0].main]
        assert rate.value is not None
        cost = PRICE * EXAMPLES / rate.value / 3600
        assert float(row[-2].main) == pytest.approx(cost, rel=0.01)
    seconds = view.summary.arms[0].spreads["time_to_target_s"].value
    (serial,) = (row for row in table.rows if row[0].main == view.summary.serial)
    assert seconds is not None
    assert float(serial[-1].main) == pytest.approx(PRICE * seconds / 3600, rel=0.01)


def test_a_live_epoch_that_was_ended_has_no_cost() -> None:
    """A part of an epoch would be too cheap."""
    summary = view_of(priced(PRICE)).summary
    row = summary.arms[0]
    block = Block(number=0, begun_after=0, ended_after=29, wall_s=1.0)

    def first_epoch(run: Run, *blocks: Block) -> Run:
        records = tuple(one.replace(epochs=one.epochs[:1]) for one in run.records)
        return run.replace(records=records, blocks=blocks)

    def cost(*blocks: Block) -> Cell:
        runs = tuple(replace(one, run=first_epoch(one.run, *blocks)) for one in summary.runs)
        return costs(row, replace(summary, runs=runs), PRICE)[0]

    assert cost().main != "–"
    assert cost(block) == Cell("–", "no whole epoch was trained")


def test_without_a_comparable_serial_arm() -> None:
    """Others are certified: the report is written, and says against what there is no ratio."""
    view = view_of(recertified(bout(), "serial"))
    table = table_of(section_of(view, "choice"))

    assert {row[2].note for row in table.rows} == {"no comparable serial arm"}


def test_a_drill_of_other_arms_says_nothing_of_these(tmp_path: Path) -> None:
    """It may be of another size."""
    view = view_of(bout(), kept(tmp_path, SAFE.replace(arm="horovod ×4")))

    assert "The drill beside it has none of these arms." in section_of(view, "choice").answer


def test_what_faults_cost_is_that_of_the_drill(tmp_path: Path) -> None:
    """An arm that the drill has not says so."""
    view = view_of(bout(), kept(tmp_path, SAFE, LOST))
    section = section_of(view, "choice")
    cells = {row[0].main: row[4] for row in table_of(section).rows}

    assert "Faults cost horovod ×2 something." in section.answer
    assert (cells["horovod ×2"].main, cells["horovod ×2"].note) == ("nan", "of 2")
    assert cells["mirrored ×2"].note == "not in the drill"


def test_a_price_is_kept_with_the_results(tmp_path: Path) -> None:
    """So the pages can be rendered again; a price that is none is refused, and nothing changes."""
    (tmp_path / RESULTS).write_text(bout().to_json(), encoding="utf-8")

    report_again(tmp_path, PRICE)

    assert "at 2.4 an hour" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert not any(check_report(tmp_path).values())
    before = (tmp_path / RESULTS).read_bytes()
    with pytest.raises(RefusalError):
        report_again(tmp_path, -1.0)
    assert (tmp_path / RESULTS).read_bytes() == before
