"""One process that times all-reduces, started like train.py."""

import os
import sys
from pathlib import Path

from launch.task import Reporter, end_process, run_launched
from ringside.collectives.ranks import MpiRanks, Ranks
from ringside.collectives.request import REQUEST, Answer, Request, answer_file
from ringside.collectives.stacks import stack_of
from ringside_core.specs import HorovodOptions, RecordInProgress, Surroundings, write_whole


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Join the other processes, time what the request asks for, and write the answer."""
    request = Request.from_json((run_dir / REQUEST).read_text(encoding="utf-8"), origin=REQUEST)
    stack = stack_of(request.stack)

    def answer(ranks: Ranks) -> None:
        found = Answer(timings=ranks.time_all(request, reporter.step))
        write_whole(answer_file(run_dir, ranks.rank), found.to_json())

    reporter.phase("importing")
    if stack.library == "mpi4py":
        options = record.spec.options
        assert isinstance(options, HorovodOptions)  # of its plan, see ringside.collectives.stacks
        os.environ.update(options.open_mpi_environment)  # read when mpi4py.MPI is imported
        ranks = MpiRanks()
        answer(ranks)
        ranks.end()
        return
    from ringside.collectives.tensorflow_ranks import TensorFlowRanks
    from trainers.process import started

    with started(record, surroundings, reporter.phase) as backend:  # as for a training
        assert backend is not None  # no process of these stacks is a server
        answer(TensorFlowRanks(backend, stack))


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
