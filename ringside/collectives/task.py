"""What one process of a stack does; allreduce_task.py is the program."""

import os
from pathlib import Path

from launch.task import Reporter
from ringside.collectives.loop import Ranks, time_everything
from ringside.collectives.request import REQUEST, Answer, RankTimes, Request, answer_file
from ringside.collectives.stacks import Stack, stack_of
from ringside_core.specs import HorovodOptions, RecordInProgress, Surroundings, write_whole


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Join the other processes, time what the request asks for, and write the answer."""
    request = Request.from_json((run_dir / REQUEST).read_text(encoding="utf-8"), origin=REQUEST)
    stack = stack_of(request.stack)
    reporter.phase("importing")
    if stack.family == "mpi":
        options = record.spec.options
        assert isinstance(options, HorovodOptions)  # of its plan, see ringside.collectives.stacks
        os.environ.update(options.open_mpi_environment)  # read when mpi4py.MPI is imported
        from ringside.collectives.bare_mpi import MpiRanks

        ranks = MpiRanks()
        _time_and_write(ranks, request, run_dir, reporter)
        ranks.end()
        return
    _under_tensorflow(stack, request, record, surroundings, run_dir, reporter)


def _under_tensorflow(
    stack: Stack,
    request: Request,
    record: RecordInProgress,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
) -> None:
    """The same with TensorFlow; the backend is started as for a training."""
    from ringside.collectives.tensorflow_ranks import HorovodRanks, StrategyRanks, check_nccl
    from trainers.process import started

    if stack.needs_nccl:
        check_nccl()
    with started(record, surroundings, reporter.phase) as backend:
        if backend is None:
            return
        if stack.family == "parameter_server":
            from ringside.collectives.push_pull import time_push_pull

            for rank, times in enumerate(time_push_pull(backend, request, reporter.step)):
                _write(run_dir, rank, times)
            return
        kind = HorovodRanks if stack.family == "horovod" else StrategyRanks
        _time_and_write(kind(backend), request, run_dir, reporter)


def _time_and_write(ranks: Ranks, request: Request, run_dir: Path, reporter: Reporter) -> None:
    _write(run_dir, ranks.rank, time_everything(ranks, request, reporter.step))


def _write(run_dir: Path, rank: int, times: tuple[RankTimes, ...]) -> None:
    write_whole(answer_file(run_dir, rank), Answer(rank=rank, times=times).to_json())
