"""How a drill tells the tasks of a run of a fault, and they tell that they wait: by files."""

from pathlib import Path

from pydantic import PositiveInt

from ringside_core.specs.files import write_whole
from ringside_core.specs.noun import Document

FOLDER = "drill"  # in the folder of a run
REQUEST = "fault.json"
STRUCK, TO_STRIKE = "struck", "to-strike"
REACHED = "reached-"


class FaultRequest(Document):
    """What the tasks of a run know of a fault.

    Attributes:
        fault: its name.
        task: of which it is made.
        update: after which every task waits until it is made.
        fit: of which training of a script, from 1.
    """

    fault: str
    task: str
    update: PositiveInt
    fit: PositiveInt


def write_request(run_dir: Path, request: FaultRequest) -> None:
    """Tell the tasks of a run that has not begun."""
    (run_dir / FOLDER).mkdir(parents=True, exist_ok=True)
    (run_dir / FOLDER / TO_STRIKE).touch()
    write_whole(run_dir / FOLDER / REQUEST, request.to_json())


def tell_struck(run_dir: Path) -> None:
    """Let all tasks go on."""
    (run_dir / FOLDER / TO_STRIKE).rename(run_dir / FOLDER / STRUCK)
