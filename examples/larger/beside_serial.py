"""What the programs beside this one share: a serial run of its own process, and the comparison."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

MOST = 1e-10  # part of the largest weight of its array


def peak(process: int | str = "self") -> str:
    """The most memory that a process had."""
    found = Path(f"/proc/{process}/status").read_text().split("VmHWM:")[1].split()[0]
    return f"peak {int(found) // 1024} MiB"


class Clock:
    """Tells memory and speed of this process; the first update is traced, and does not count."""

    def __init__(self, batch: int) -> None:
        self.batch, self.ends = batch, list[float]()

    def tick(self) -> None:
        """An update has ended."""
        self.ends.append(time.perf_counter())

    def __str__(self) -> str:
        rate = self.batch * (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])
        return f"{peak()}, {rate:.0f} examples/s"


def alone(train: Callable[..., Any], *arguments: Any) -> Any:
    """What `train` returns in a process of its own, which has all memory and no devices yet."""
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        return other.submit(train, *arguments).result()


def compared(found: Sequence[Any], serial: Sequence[Any], updates: int) -> int:
    """Print whether all weights are those of the serial run; the exit code."""
    worst = np.max([abs(a - b).max() / abs(b).max() for a, b in zip(found, serial, strict=True)])
    same = bool(worst < MOST)  # what is no number is not
    said = "same as" if same else "NOT the same as"
    print(f"{said} serial: largest deviation {worst:.1e} of the weights after {updates} updates")
    return int(not same)
