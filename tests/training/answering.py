"""A program of a test in place of Ringside's train.py: what a started backend answers, as arrays.

The program is `train.py` of a folder. It defines a function, and ends with `answering(function)`.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from launch import Site, execute, make_plan
from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RecordInProgress, RunSpec, Surroundings

ASKED = "asked.json"
Answer = dict[str, Any]


def answers(program: Path, spec: RunSpec, run_dir: Path, **asked: Any) -> list[Answer]:
    """What each process of a run answers; servers do not.

    Args:
        program: folder of the program.
        spec: of the run.
        run_dir: its folder.
        asked: handed to the program's function.
    """
    (run_dir / ASKED).write_text(json.dumps(asked))
    site = dataclasses.replace(Site.here(), root=str(program))
    execution = execute(make_plan(spec, run_dir=run_dir, site=site), deadline_s=240.0)
    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    found = [dict(np.load(path)) for path in sorted(run_dir.glob("answer-*.npz"))]
    assert found
    return found


def answering(answer: Callable[..., Iterator[Answer]]) -> None:
    """Let this process answer, and end.

    Args:
        answer: (spec, started backend, run_dir, **asked) → arrays by name, in parts: after each
            the launcher sees progress.
    """

    def work(
        record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
    ) -> None:
        reporter.phase("importing")
        from trainers.process import started

        asked = json.loads((run_dir / ASKED).read_text())
        with started(record, surroundings, reporter.phase) as backend:
            if backend is not None:
                arrays: Answer = {}
                for done, part in enumerate(answer(record.spec, backend, run_dir, **asked), 1):
                    reporter.step(done, done + 1)
                    arrays |= part
                np.savez(run_dir / f"answer-{surroundings.task_name}.npz", **arrays)

    end_process(run_launched(work, sys.argv[1:]))
