"""A run that is started again in its folder, from its newest checkpoint, until it is over.

What an attempt has left moves into `attempts/<number>/` before the next one begins. Checkpoints
stay where they are.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from launch.claim import FOLDERS, SPEC, goes_on, holds_run
from launch.interrupts import Interrupts
from launch.journal import ATTEMPTS
from launch.watch import Progress, read_progress
from ringside_core.specs import (
    AUTO,
    Execution,
    Noun,
    Outcome,
    RefusalError,
    RunSpec,
    is_full,
    write_whole,
)
from ringside_core.specs.noun import Document

SUMMARY = "attempts.json"
# A refused run would be refused again, but for one that has run before: a host of it is not up yet,
# or a port not free. One that was ended as a whole was meant to end.
AGAIN = ("failed", "hung", "preempted")
# After an attempt that made no update, but the first: what is in its way may still be there.
NOT_YET_S = 30.0
# Starts one attempt of a spec, and waits for its end.
Start = Callable[[RunSpec, Interrupts], Execution]


class Attempt(Noun):
    """One attempt of a run.

    Attributes:
        resized: it was ended so that the next one has more replicas.
        updates: that it made; of a script, in its last `fit`.
        lost: of them, those that the next attempt had to make again; None: none followed, or the
            next attempt ended in another `fit` of the script.
    """

    outcome: Outcome
    resized: bool = False
    updates: NonNegativeInt
    lost: NonNegativeInt | None = None


class Attempts(Document):
    """What became of a run with its attempts, in order; the last one is the run's end."""

    attempts: tuple[Attempt, ...]

    def __str__(self) -> str:
        """How many, and the updates that were made more than once, where they are known."""
        lost = [attempt.lost for attempt in self.attempts if attempt.lost is not None]
        again = f", {sum(lost)} updates made again" if lost else ""
        return f"{len(self.attempts)} attempts{again}"


def set_aside(run_dir: Path) -> PositiveInt | None:
    """Move what an ended attempt has left out of the way; returns its number, if there is one.

    Raises:
        RefusalError: it has not ended.
    """
    if not holds_run(run_dir):
        return None
    if goes_on(run_dir):
        raise RefusalError(
            "A run goes on only after it has ended.",
            received=f"{run_dir}, in which another launcher works",
            advice="Wait for its end, or end it.",
        )
    earlier = [int(path.name) for path in (run_dir / ATTEMPTS).glob("*") if path.name.isdigit()]
    number = max(earlier, default=1)
    later_fits = [str(path.relative_to(run_dir)) for path in run_dir.glob("fit-*/records")]
    names = [name for name in (*FOLDERS, SPEC, *later_fits) if (run_dir / name).exists()]
    # A disk that was full then may have let only some of them go.
    if any((run_dir / ATTEMPTS / str(number) / name).exists() for name in names):
        number += 1
    target = run_dir / ATTEMPTS / str(number)
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).rename(target / name)
    return number


def attempt(
    spec: RunSpec, run_dir: Path, start: Start, *, restarts: int, say: Callable[[str], None]
) -> tuple[Execution, Attempts]:
    """Run a spec until it is over, or has been started again so often.

    Args:
        spec: of the run.
        run_dir: its folder.
        start: starts an attempt there.
        restarts: at most.
        say: called with a line about each attempt that is not the last.

    Returns:
        What became of the last attempt, and of all.

    Raises:
        KeyboardInterrupt, SystemExit: see `execute`.
    """
    made: list[Attempt] = []
    found = _checkpoints(run_dir)  # of another run
    left: Progress | None = None  # where the attempt before ended
    with Interrupts(saves=True) as interrupts:
        while True:
            execution = start(spec, interrupts)
            at = max(trainers_of(run_dir), key=lambda task: (task.fit, task.step), default=None)
            if at is not None and left is not None and at.fit == left.fit:
                # Of the last one that trained, if one that did not came between.
                last = max(n for n, earlier in enumerate(made) if earlier.updates)
                made[last] = made[last].replace(lost=max(0, at.total_steps - left.steps_left))
            left = left if at is None else at
            resized = interrupts.has_resized() and execution.outcome.kind == "preempted"
            updates = 0 if at is None else at.step
            made.append(Attempt(outcome=execution.outcome, resized=resized, updates=updates))
            if len(made) > 1:
                with suppress(OSError):  # a full disk ends no run that is started again
                    write_whole(run_dir / SUMMARY, Attempts(attempts=tuple(made)).to_json())
            refused = execution.outcome.kind == "refused" and len(made) > 1
            again = (refused or execution.outcome.kind in AGAIN) and not interrupts.preempting
            faults = sum(not attempt.resized for attempt in made)
            if not again or faults > restarts:
                return execution, Attempts(attempts=tuple(made))
            if not resized:
                say(f"{execution.outcome}; restart {faults} of {restarts}")
            if len(made) > 1 and not updates:
                wait(NOT_YET_S, interrupts)
            for tries in reversed(range(restarts + 1)):
                try:
                    set_aside(run_dir)
                    break
                except OSError as error:  # a full disk may have space again
                    if not (tries and is_full(error)):
                        raise
                wait(NOT_YET_S, interrupts)
            if _checkpoints(run_dir) - found:
                spec = spec.replace(resume_from=AUTO)


def wait(seconds: float, interrupts: Interrupts) -> None:
    """Wait; a signal that was noted meanwhile is raised."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        interrupts.raise_noted()
        time.sleep(0.1)


def _checkpoints(run_dir: Path) -> set[tuple[str, int]]:
    """The checkpoints in a folder: name, and when it was written in nanoseconds."""
    return {(file.name, file.stat().st_mtime_ns) for file in run_dir.glob("checkpoint*.npz")}


def trainers_of(run_dir: Path) -> list[Progress]:
    """Where the tasks are that count updates, in the present attempt."""
    found = []
    with suppress(FileNotFoundError):  # another attempt begins, and the folder goes
        for file in (run_dir / "progress").iterdir():
            found.append(read_progress(file.name, file.read_text(errors="replace")))
    return [task for task in found if task is not None and task.total_steps]
