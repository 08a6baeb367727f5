"""A task of the real contract (launch/task.py) that trains nothing, and steps the clock on order.

`clock`: in its mount namespace /proc/stat is a file; the machine is said to have booted an hour
later from then on. That is what the kernel says after a step of the clock by an hour.
"""

import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RecordInProgress, Surroundings


def step_the_clock() -> None:
    """Change the second in which the machine booted."""
    stat = Path("/proc/stat")
    text = stat.read_text()
    stat.write_text(re.sub(r"btime (\d+)", lambda found: f"btime {int(found[1]) + 3600}", text))


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Make some steps; the clock is stepped after the second."""
    order = record.spec.workload_options
    for step in range(1, int(order["steps"]) + 1):
        reporter.step(step, int(order["steps"]))
        if step == 2 and order.get("clock"):
            step_the_clock()
        time.sleep(0.1)


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
