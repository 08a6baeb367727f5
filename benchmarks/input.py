"""Measure whether Ringside's input is as fast as the one that its author wrote.

python benchmarks/input.py --passes 12 --inputs "tf.image,TFRecord"

Each data set of benchmarks/input_sides.py is read as fast as it can be, without a model: as its
author wrote it, with autotuning, and through Ringside, with one replica and with two. Each side is
a process. They read in turns, and are frozen (SIGSTOP) in between. A pass gives one ratio of
examples/s. Printed are the geometric mean of the passes and its 95 % interval, and the same of
examples for a second of CPU time, which a busy machine disturbs less.
"""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.input_sides import AUTHOR, INPUTS
from benchmarks.starting import start
from ringside.cli.common import new_folder
from ringside.stats.figure import Figure, geometric_mean_with_interval
from ringside_core.die_with_parent import dying_with_parent
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import RefusalError, write_whole

THROUGH_RINGSIDE = ("1", "2")  # replicas, in one process
SIDES = (AUTHOR, *THROUGH_RINGSIDE)
WARM_UP_S = 2.0  # the autotuner's first steps follow each other closely, later ones do not
START_S = 300
# Of each side in each pass: examples a second, and examples a second of CPU time.
Rates = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Reader:
    """A process that reads one side's batches; it is frozen while it is not asked."""

    process: subprocess.Popen[bytes]
    answers: Connection

    def read(self, seconds: float) -> tuple[float, float]:
        """Examples a second over so many seconds, and examples a second of CPU time."""
        os.kill(self.process.pid, signal.SIGCONT)
        self.answers.send(seconds)
        rates: tuple[float, float] = self.answers.recv()
        os.kill(self.process.pid, signal.SIGSTOP)
        return rates


@contextmanager
def started(name: str, side: str) -> Iterator[tuple[Listener, subprocess.Popen[bytes]]]:
    """Start a side, and end it; it will connect to the listener."""
    with tempfile.TemporaryDirectory() as folder:
        asked, socket = Path(folder) / "request.json", str(Path(folder) / "socket")
        asked.write_text(json.dumps({"input": name, "side": side}), encoding="utf-8")
        with Listener(socket, family="AF_UNIX") as listener:
            command = [*dying_with_parent("benchmarks.input_sides"), str(asked), socket]
            process = subprocess.Popen(command)
            try:
                yield listener, process
            finally:
                process.kill()
                process.wait()


def connected(listener: Listener, process: subprocess.Popen[bytes]) -> Reader:
    """The reader of a side, once it is ready.

    Raises:
        RefusalError: it ended, or took too long.
    """
    listener._listener._socket.settimeout(1.0)  # type: ignore[attr-defined]
    for _ in range(START_S):
        with suppress(TimeoutError):
            return Reader(process, listener.accept())
        if process.poll() is not None:
            break
    raise RefusalError("A side must start.", received=f"exit {process.poll()}")


def measure(name: str, passes: int, seconds: float, generator: random.Random) -> Rates:
    """What each side reads in each pass; the order of the sides is drawn in each pass."""
    rates: Rates = {side: [] for side in SIDES}
    with ExitStack() as stack:
        sides = [stack.enter_context(started(name, side)) for side in SIDES]
        readers = {side: connected(*one) for side, one in zip(SIDES, sides, strict=True)}
        for reader in readers.values():
            reader.read(WARM_UP_S)
        for _ in range(passes):
            for side in generator.sample(SIDES, len(SIDES)):
                rates[side].append(readers[side].read(seconds))
    return rates


def ratio(rates: Rates, side: str, clock: int) -> Figure:
    """Examples of a side ÷ those of the author's pipeline: geometric mean over passes.

    Args:
        rates: of one input.
        side: through Ringside.
        clock: 0: in a second; 1: in a second of CPU time.
    """
    pairs = zip(rates[side], rates[AUTHOR], strict=True)
    return geometric_mean_with_interval([ours[clock] / theirs[clock] for ours, theirs in pairs])


def main(
    *,
    inputs: Annotated[str, typer.Option(help="Names with commas between.")] = ",".join(INPUTS),
    passes: Annotated[int, typer.Option(min=1, help="Blocks of each side.")] = 12,
    seconds: Annotated[float, typer.Option(min=0.1, help="Timed part of a block.")] = 1.0,
    order_seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the sides.")] = 1,
    output: Annotated[Path, typer.Option(help="Where the folder of the results is made.")] = Path(
        "runs"
    ),
) -> None:
    """Time inputs as their authors wrote them against the same inputs through Ringside."""
    names = [name.strip() for name in inputs.split(",")]
    if unknown := [name for name in names if name not in INPUTS]:
        raise RefusalError(
            "An input must be known.", received=unknown, advice=f"Choose of {', '.join(INPUTS)}."
        )
    console, generator = (
        Console(width=None if sys.stdout.isatty() else 120),
        random.Random(order_seed),
    )
    folder = new_folder(output, f"input-{time.strftime('%Y%m%d-%H%M%S')}")
    measured: dict[str, Rates] = {}
    for name in names:
        with console.status(name):
            measured[name] = measure(name, passes, seconds, generator)
        write_whole(folder / "input.json", _to_json(measured, order_seed))
    console.print(table(measured))
    console.print(f"every block: {folder / 'input.json'}", highlight=False)


def _to_json(measured: dict[str, Rates], seed: int) -> str:
    body = {
        "command": shlex.join(["python", *sys.argv]),
        "order_seed": seed,
        "machine": machine_facts().model_dump(mode="json"),
        "examples_per_s_and_per_cpu_s": measured,
    }
    return json.dumps(body, indent=1)


def table(measured: dict[str, Rates]) -> Table:
    """A row for each input through Ringside with each number of replicas."""
    result = Table(title="Input through Ringside, and as its author wrote it", title_justify="left")
    result.add_column("input")
    for heading in (
        "replicas",
        "author, ms a batch",
        "author, examples/s",
        "Ringside",
        "ratio, 95 % interval",
        "by CPU time",
    ):
        result.add_column(heading, justify="right")
    for name, rates in measured.items():
        for side in THROUGH_RINGSIDE:
            result.add_row(name, side, *_cells(rates, side, INPUTS[name].batch))
    return result


def _cells(rates: Rates, side: str, batch: int) -> list[str]:
    theirs, ours = (
        geometric_mean_with_interval([rate for rate, _ in rates[one]]).value or 0.0
        for one in (AUTHOR, side)
    )
    ratios = [_told(ratio(rates, side, clock)) for clock in (0, 1)]
    return [f"{1e3 * batch / theirs:.3g}", f"{theirs:,.0f}", f"{ours:,.0f}", *ratios]


def _told(figure: Figure) -> str:
    within = figure.interval
    interval = figure.reason if within is None else f"[{within.low:.2f}, {within.high:.2f}]"
    return f"{figure.value:.2f} {interval}"


if __name__ == "__main__":
    start(main)
