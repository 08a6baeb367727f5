"""A task's part of a drill."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringside.drill.request import FOLDER, REACHED, REQUEST, STRUCK, FaultRequest
from ringside_core.specs import write_whole

if TYPE_CHECKING:
    from trainers.driver import Listener


def drilled(run_dir: Path, task: str) -> "list[Listener]":
    """The listeners of a training that a drill looks at; none: nobody does."""
    folder = run_dir / FOLDER
    if not (folder / REQUEST).exists():
        return []
    from trainers.fault import Fault

    text = (folder / REQUEST).read_text(encoding="utf-8")
    request = FaultRequest.from_json(text, origin=REQUEST)
    return [
        Fault(
            request.update,
            reached=partial(_reached, folder / f"{REACHED}{task}"),
            may_go_on=(folder / STRUCK).exists,
            makes=request.fault if request.task == task else "",
        )
    ]


def _reached(file: Path, done: int) -> None:
    write_whole(file, f"{done}\n")
