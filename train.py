"""One process of one run, started by horovodrun, mpirun, srun, TF_CONFIG or a person.

python train.py --backend mirrored --replicas 2
horovodrun -np 4 python train.py --backend horovod
mpirun -np 2 python train.py --backend horovod
srun --ntasks=2 python train.py --backend multi_worker_mirrored
TF_CONFIG='{…}' python train.py --backend multi_worker_mirrored
"""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from launch.flags import spec_flags, with_flags
from launch.launchers.slurm import node_addresses
from launch.task import (
    Reporter,
    end_process,
    must_be_writable,
    own_surroundings,
    run_launched,
    run_process,
)
from ringside.certificates.trial_request import TRIAL
from ringside_core.specs import (
    AUTO,
    RecordInProgress,
    RefusalError,
    RunSpec,
    Surroundings,
    read_surroundings,
)
from ringside_core.text import print_anything
from ringside_core.wrong_flags import about_flag


def _train(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """The part that needs TensorFlow. What it learns goes into the record, also when it fails."""
    reporter.phase("importing")
    from trainers.process import started

    verifies = (run_dir / TRIAL).exists()
    with started(record, surroundings, reporter.phase, verifies=verifies) as backend:
        if backend is None:
            return
        from ringside.script import run_whole

        trial = None
        if verifies:
            from ringside.certificates.trial import trial_of

            trial = trial_of(record, run_dir)
        run_whole(record, backend, surroundings, run_dir, reporter, trial)


@with_flags(spec=spec_flags(lambda: read_surroundings(os.environ, node_addresses)))
def _by_hand(
    *,
    spec: RunSpec,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results. It must not hold this process's record yet. Default: "
            "runs/ and the run's name; there an earlier record is replaced."
        ),
    ] = None,
) -> None:
    """Train one workload under one backend, as one process of a run."""
    surroundings = own_surroundings(spec)
    folder = run_dir or Path("runs") / spec.run_name
    # Look only at the own record: other ranks of this run may have started, or ended, already.
    record = folder / "records" / f"{surroundings.task_name}.json"
    with must_be_writable():
        if spec.resume_from == AUTO:
            pass  # it is kept, see `run_process`
        elif run_dir is None:
            record.unlink(missing_ok=True)
        elif record.exists():
            raise RefusalError(
                "A run needs a folder of its own.",
                received=f"{folder}, which holds {record.name} already",
                advice="Choose another with --run-dir, or remove it.",
            )
    raise typer.Exit(run_process(_train, spec, surroundings, folder, aloud=surroundings.rank == 0))


def main(arguments: list[str]) -> int:
    """Run with these command-line arguments; returns the exit code."""
    # Slurm sends it ahead of its limit, to processes too that have nothing to save yet, or no more.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print_anything()
    try:
        if {"--spec", "--run-dir"} <= set(arguments):
            return run_launched(_train, arguments)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(_by_hand)
        return app(args=arguments, prog_name="train.py", standalone_mode=False) or 0
    except typer.TyperException as error:
        print(f"train.py: {about_flag(error, 'train.py')}", file=sys.stderr)
        return 2
    except RefusalError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except SystemExit as done:
        return int(done.code or 0) if not isinstance(done.code, str) else 1


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
