"""A task of the real contract (launch/task.py) that tells of two epochs, then does as asked.

`then`: `wait` makes `steps` until somebody ends it. `fill` fills the disk, then tells of an epoch
of `steps` and ends. Another word names the signal that ends it.

`clock`: in its mount namespace /proc/stat is a file; the machine is said to have booted an hour
later from then on. That is what the kernel says after a step of the clock by an hour.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RecordInProgress, Surroundings
from tests.small_disk import fill
from tests.unit.stats.factory import epoch


def step_the_clock() -> None:
    """Change the second in which the machine booted."""
    stat = Path("/proc/stat")
    text = stat.read_text()
    stat.write_text(re.sub(r"btime (\d+)", lambda found: f"btime {int(found[1]) + 3600}", text))


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Two epochs, and what was ordered."""
    for number in range(2):
        reporter.step(number + 1, 1000)
        record.epochs += (epoch(8.0, end_s=10.0 + number),)
        reporter.epoch(number, record.epochs[-1])
    order = record.spec.workload_options
    then, steps = order["then"], int(order.get("steps", 1000))
    if then == "fill":
        fill(run_dir / "full")
        ends = [(at + 1) * 8.0 / steps for at in range(steps)]
        record.epochs += (epoch(8.0, end_s=12.0, step_end_s=ends),)
        reporter.epoch(2, record.epochs[-1])
        reporter.step(3, 3)
        return
    if order.get("clock"):
        step_the_clock()
    for step in range(3, steps):
        reporter.step(step, steps)
        if then != "wait":
            os.kill(os.getpid(), signal.Signals[str(then)])
        time.sleep(0.1)


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
