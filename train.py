"""One process of one run: what horovodrun, mpirun, srun, TF_CONFIG and a person start.

python train.py --backend mirrored --replicas 2
horovodrun -np 4 python train.py --backend horovod
mpirun -np 2 python train.py --backend horovod
srun --ntasks=2 python train.py --backend multi_worker_mirrored
TF_CONFIG='{…}' python train.py --backend multi_worker_mirrored
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from launch.flags import with_spec_flags
from launch.launchers.slurm import node_addresses
from launch.task import (
    Reporter,
    end_process,
    must_be_writable,
    own_surroundings,
    run_launched,
    run_process,
)
from ringside_core.readings.process import process_start_unix_s
from ringside_core.specs import (
    RefusalError,
    RunSpec,
    Surroundings,
    read_surroundings,
)


def _train(
    spec: RunSpec,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
    facts: dict[str, Any],
) -> None:
    """Everything that needs TensorFlow; what it learns goes into `facts`, also when it fails."""
    reporter.phase("importing")
    from ringside_core.workloads.registry import load_workload
    from trainers.fit import fit
    from trainers.process import started
    from trainers.training import FitResult

    with started(spec, surroundings, reporter.phase, facts) as backend:
        if backend is None:
            return
        reporter.phase("building")
        workload = load_workload(
            spec.workload, options=spec.workload_options, data_dir=spec.data_dir
        )
        if workload.target is not None:
            facts["quality_target"] = (workload.target.metric, workload.target.at_least)
        result = FitResult()
        try:
            fit(
                spec,
                workload,
                backend,
                run_dir=run_dir,
                process_start=process_start_unix_s(),
                on_step=reporter.step,
                on_epoch=reporter.epoch,
                result=result,
            )
        finally:
            facts.update(
                epochs=tuple(result.epochs),
                initial_digest=result.initial_digest,
                final_digest=result.final_digest,
                train_examples=result.train_examples,
                replica_deviation=result.replica_deviation,
                data_digest=result.data_digest,
                clock_s_per_step=result.clock_s_per_step,
                gradient_bytes=result.gradient_bytes,
            )
            if result.first_step_done is not None:
                facts["startup_s"] = result.first_step_done - process_start_unix_s()


def _surroundings() -> Surroundings:
    return read_surroundings(os.environ, node_addresses)


@with_spec_flags(_surroundings)
def _by_hand(
    *,
    spec: RunSpec,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where results go; refused if it holds this process's record already. Default: "
            "runs/ and the run's name, where an earlier record is replaced."
        ),
    ] = None,
) -> None:
    """Train one workload under one backend, as one process of a run."""
    surroundings = own_surroundings(spec)
    folder = run_dir or Path("runs") / spec.run_name
    # Only this process's own record: other ranks of this run may have started, or ended, before.
    record = folder / "records" / f"{surroundings.task_name}.json"
    with must_be_writable():
        if run_dir is None:
            record.unlink(missing_ok=True)
        elif record.exists():
            raise RefusalError(
                "A run needs a folder of its own.",
                received=f"{folder}, which holds {record.name} already",
                advice="Choose another with --run-dir, or remove it.",
            )
    raise typer.Exit(
        run_process(
            _train,
            spec,
            surroundings,
            folder,
            aloud=surroundings.rank == 0,
        )
    )


def main(arguments: list[str]) -> int:
    """Run with these command-line arguments; returns the exit code."""
    try:
        if "--spec" in arguments:
            return run_launched(_train, arguments)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(_by_hand)
        app(args=arguments, prog_name="train.py", standalone_mode=True)
    except RefusalError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except SystemExit as done:
        return int(done.code or 0) if not isinstance(done.code, str) else 1
    return 0


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
