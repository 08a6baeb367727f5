"""What a report says of a drill that was made beside its comparison."""

from pathlib import Path

from ringside.drill.cells import RESULT, Cell, Drill
from ringside.report.blocks import Table
from ringside.report.markdown import render_markdown
from ringside.report.sections.safety import safety_section
from ringside.report.source import beside
from ringside.report.view import view_of
from ringside_core.specs import Outcome
from tests.unit.report.bout import bout
from tests.unit.stats.factory import spec_of

DONE = Outcome(kind="completed")
KILLED = Outcome(kind="failed", reason="rank-1 was killed", error_class="ProcessDied")
SAFE = Cell(
    arm="horovod ×2", fault="rank-killed", outcomes=(KILLED, DONE), noticed_s=1.5, back_s=9,
    again=1, deviation=0.0,
)  # fmt: skip
LOST = SAFE.replace(fault="nan", outcomes=(KILLED, KILLED), other_rows=2, deviation=None)
ABSENT = Cell(arm="horovod ×2", fault="server-killed", obstacle="it has no server")


def kept(folder: Path, *cells: Cell) -> Path:
    """A folder in which a drill of these cells was made."""
    drill = Drill(
        spec=spec_of("horovod", 2),
        deadline_s=20,
        tolerance=1e-10,
        struck_after={"horovod ×2": 17},
        cells=cells,
    )
    (folder / RESULT).write_text(drill.to_json())
    return folder


def test_faults_that_cost_nothing(tmp_path: Path) -> None:
    """What could not be made counts for neither side."""
    (section,) = safety_section(beside(Drill, kept(tmp_path, SAFE, ABSENT), RESULT))

    assert section.answer.startswith("1 fault was made; no run was")
    (table,) = (one for one in section.blocks if isinstance(one, Table))
    assert [cell.main for cell in table.rows[0]][:4] == ["rank-killed", "failed", "1.5 s", "9.0 s"]
    assert not any(cell.bad for row in table.rows for cell in row)


def test_a_loss_is_named_and_marked(tmp_path: Path) -> None:
    """In the answer, and in the table's row."""
    (section,) = safety_section(beside(Drill, kept(tmp_path, SAFE, LOST), RESULT))

    assert "1 of them cost a run something: nan under horovod ×2." in section.answer
    (table,) = (one for one in section.blocks if isinstance(one, Table))
    assert [row[0].bad for row in table.rows] == [False, True]


def test_it_stands_in_the_report(tmp_path: Path) -> None:
    """Of the comparison in whose folder it lies."""
    text = render_markdown(view_of(bout(), kept(tmp_path, SAFE)))

    assert "Which is safer?" in text
    assert "| rank-killed | failed |" in text
