"""What others did on the processors: from /proc/stat and the time that is our own."""

import os
import subprocess
import sys

import pytest

from measure.load import TICKS_PER_S, LoadWatch, others_cpu_s, read_ticks

STAT = """cpu  600 0 600 9 9 0 0 0 0 0
cpu0 100 20 30 4000 500 6 7 80 90 0
cpu1 1000 0 0 0 0 0 0 0 0 0
cpu11 5 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_busy_is_user_nice_system_and_interrupts() -> None:
    """Not idle, waiting, stolen or a guest's; only of the processors that are asked for."""
    ticks = read_ticks(STAT, {0, 11})

    assert ticks.busy_s == pytest.approx((100 + 20 + 30 + 6 + 7 + 5) / TICKS_PER_S)
    assert ticks.steal_s == pytest.approx(80 / TICKS_PER_S)


def test_what_is_not_our_own_is_others() -> None:
    """Never below 0, whatever the ticks of the kernel leave."""
    assert others_cpu_s(busy_s=5.0, own_s=3.5) == 1.5
    assert others_cpu_s(busy_s=3.49, own_s=3.5) == 0.0


def test_the_time_of_a_child_is_our_own() -> None:
    """A child of a child that computes is not somebody else, if its parents wait for it."""
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    shell = f"{sys.executable} -c '{burn}'; true"  # a second command: the shell waits
    with LoadWatch() as nothing:
        pass
    with LoadWatch() as watch:
        own_s = watch._own_s
        subprocess.run(["sh", "-c", shell], check=True)

    after = LoadWatch()
    with after:
        pass
    if watch.load is None:
        pytest.skip("no /proc/stat")
    assert after._own_s - own_s >= 0.5
    assert nothing.load is not None
    assert watch.load.cores == len(os.sched_getaffinity(0))
