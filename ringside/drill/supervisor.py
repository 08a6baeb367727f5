"""A run under `ringside launch --restarts`, as a process that a drill can kill.

`python -m ringside.drill.supervisor FILE` reads a Supervised, and writes one line for each attempt
that has ended. It ends at once when its standard input does.
"""

import os
import sys
import threading
import time
from pathlib import Path

from pydantic import PositiveInt

from launch import LauncherName, execute, make_plan
from launch.attempts import attempt, set_aside
from launch.elastic import Elastic
from launch.interrupts import Interrupts
from ringside_core.specs import AUTO, Execution, Noun, Outcome, Placement, RunSpec
from ringside_core.specs.noun import Document, UnixSeconds


class Supervised(Document):
    """A run, and how it is started; min_replicas: see `launch.elastic`."""

    spec: RunSpec
    run_dir: str
    placement: Placement
    launcher: LauncherName
    restarts: int
    min_replicas: PositiveInt | None
    deadline_s: float


class Ended(Noun):
    """An attempt that has ended, with all of its processes."""

    outcome: Outcome
    at_unix_s: UnixSeconds


def main() -> int:
    """Supervise one run; returns its exit code."""
    asked = Supervised.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_the_drill, daemon=True).start()
    spec, run_dir = asked.spec, Path(asked.run_dir)
    if set_aside(run_dir) is not None:
        spec = spec.replace(resume_from=AUTO)

    elastic = asked.min_replicas and Elastic(
        spec,
        min(asked.min_replicas, spec.topology.num_replicas),
        hosts=lambda: asked.placement.hosts or (),
        placement=asked.placement,
        run_dir=run_dir,
        say=lambda _: None,
    )

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        def run(spec: RunSpec, placement: Placement) -> Execution:
            plan = make_plan(spec, run_dir=run_dir, placement=placement, launcher=asked.launcher)
            return execute(plan, deadline_s=asked.deadline_s, interrupts=interrupts)

        execution = elastic.run(spec, run, interrupts) if elastic else run(spec, asked.placement)
        ended = Ended(outcome=execution.outcome, at_unix_s=time.time())
        print(ended.model_dump_json(), flush=True)
        return execution

    execution, _ = attempt(spec, run_dir, start, restarts=asked.restarts, say=lambda _: None)
    return execution.outcome.exit_code


def _end_with_the_drill() -> None:
    """A killed drill leaves no run behind: what a killed launcher leaves, its guard ends."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
