"""What a process that verifies a program is asked: which trainings, and what they begin from."""

from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from ringside_core.specs import Document

TRIAL, CASES, TRACES = "trial.json", "cases", "traces"
# The trainings at a fit, in their order; each reads the data after the one before. They differ in
# nothing that is traced, but for `tiled`.
TILED, UPDATES, SHORT = "tiled", "updates", "short"
SUMS = "sums"
DEFAULT_UPDATES, FEWEST_UPDATES = 20, 4


class TrialRequest(Document):
    """What one set of processes does.

    Attributes:
        updates: that are watched.
        most_replicas: of all arms that are compared; the short batch has one row more.
        tiled: begin with a training in which each row stands once for each replica.
        watched: the updates are trained, one by one.
        whole_states: nothing is trained of a model whose weights are not all kept after each
            update, since nothing could begin from them.
        plain: plain Keras trains, without a backend.
        workers: plain Keras makes so many updates of each batch, of rows w::workers, as
            asynchronous workers do in turn.
        sums: plain Keras' gradients of a batch in which each row stands once, twice and three
            times, and of the rows that each of `most_replicas` would have.
        moved: begin with each weight moved by so many roundings, up or down, to see what rounding
            does; with states, each update.
        states: trace of plain Keras in float64; each update begins from its state. Empty: from the
            update before it.
        resume_from: checkpoint from which the watched updates go on; empty: they begin.
        at_tape: gradients are added at the tape, whatever the author says.
    """

    updates: PositiveInt = DEFAULT_UPDATES
    most_replicas: PositiveInt = 1
    tiled: bool = False
    watched: bool = True
    whole_states: bool = False
    plain: bool = False
    workers: PositiveInt = 1
    sums: bool = False
    moved: NonNegativeInt = 0
    states: str = ""
    resume_from: str = ""
    at_tape: bool = False


def trace_file(run_dir: Path, case: str, task: str) -> Path:
    """The file into which a process writes its trace of a training."""
    return run_dir / TRACES / case / f"{task}.npz"
