"""Measure what Ringside itself costs: each backend against a hand-written script.

python benchmarks/tax.py --rounds 8 --backends serial,horovod --workload conv

In each round both sides of every arm are started anew, an arm at a time, and train in turns: short
blocks, each side frozen while the other one trains, as the live rounds of `ringside compare`. A
launch of both gives one ratio of step times. Printed are the geometric mean of the launches and its
95 % interval. benchmarks/README.md says what is the same on both sides, and what is not.
"""

import json
import math
import os
import random
import shlex
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.starting import start
from benchmarks.tax_sides import (
    BLOCKS,
    SIDES,
    WARM_UP_EPOCHS,
    WORKLOADS,
    RunFailedError,
    Side,
    Timing,
    check_options,
    epochs_of,
    launched_pair,
    log_ratio,
    plan_by_hand,
    run_script,
    trains_keras_3,
    unlike,
)
from launch.flags import spec_from_flags
from launch.interrupts import Interrupts
from ringside.cli.common import new_folder
from ringside.compare.arms import cores_here, parse_arms
from ringside.stats.figure import Figure, geometric_mean_with_interval
from ringside_core.memory import KEPT
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import RefusalError, RunSpec, Shared, Surroundings, write_whole
from ringside_core.text import file_name

BACKENDS = (
    "serial",
    "one_device",
    "mirrored",
    "central_storage",
    "multi_worker_mirrored",
    "parameter_server",
    "horovod",
    "horovod:controller=mpi",
)
SIZING_EPOCHS = WARM_UP_EPOCHS + 4
AT_MOST = 1.02


@dataclass(frozen=True)
class Sample:
    """One run of one side of one arm."""

    arm: str
    side: Side
    round: int
    timing: Timing


@dataclass
class Tax:
    """Everything that one call has measured; written to disk after each run."""

    command: str
    workload: str
    seed: int
    specs: dict[str, RunSpec]
    steps: dict[str, int] = field(default_factory=dict)  # of an epoch
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def pairs(self, arm: str) -> list[tuple[Timing, Timing]]:
        """(through Ringside, by hand) of each round that has both."""
        rounds: dict[int, dict[str, Timing]] = defaultdict(dict)
        for sample in self.samples:
            if sample.arm == arm:
                rounds[sample.round][sample.side] = sample.timing
        return [
            (sides["ringside"], sides["by hand"])
            for _, sides in sorted(rounds.items())
            if len(sides) == len(SIDES)
        ]

    def to_json(self) -> str:
        """All raw times, and the ratios."""
        body = {
            "command": self.command,
            "created_unix_s": time.time(),
            "workload": self.workload,
            "order_seed": self.seed,
            "machine": machine_facts().model_dump(mode="json"),
            "ratios": {arm: asdict(ratio(self.pairs(arm))) for arm in self.specs},
            "problems": self.problems,
            "runs": [asdict(sample) for sample in self.samples],
            "specs": {arm: spec.model_dump(mode="json") for arm, spec in self.specs.items()},
        }
        return json.dumps(body, indent=1)


def ratio(pairs: list[tuple[Timing, Timing]]) -> Figure:
    """Step time through Ringside ÷ step time by hand: geometric mean over launches."""
    return geometric_mean_with_interval([math.exp(log_ratio(*pair)) for pair in pairs])


def holds(figure: Figure) -> str:
    """Whether a ratio is at most AT_MOST, if its interval can tell."""
    if figure.interval is None:
        return "cannot tell"
    if figure.interval.high <= AT_MOST:
        return "yes"
    return "no" if figure.interval.low > AT_MOST else "cannot tell"


def epochs_for(seconds: float, sizing: Timing) -> int:
    """Number of epochs, so that those that count take about so many seconds."""
    epoch_s = statistics.mean(sizing.epoch_s[WARM_UP_EPOCHS:])
    return epochs_of(2 + max(1, math.ceil(seconds / BLOCKS / epoch_s)))


def main(
    *,
    backends: Annotated[
        str, typer.Option(help="Names with commas between. Default: all that can be compared.")
    ] = "",
    replicas: Annotated[
        str, typer.Option(help="Replicas of each backend that can have several.")
    ] = "2",
    workload: Annotated[str, typer.Option(help=f"Either {' or '.join(WORKLOADS)}.")] = "digits",
    keras: Annotated[int, typer.Option(min=2, max=3, help="2: legacy Keras, or 3.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Launches of both sides of each arm.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Timed part of each run.")] = 5.0,
    order_seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the runs.")] = 1,
    output: Annotated[Path, typer.Option(help="Where the folder of the results is made.")] = Path(
        "runs"
    ),
) -> None:
    """Time each backend through Ringside against a hand-written script that does the same."""
    # The scripts know nothing of Ringside, so both sides are told by their environment.
    for name, (_, value) in KEPT.items():
        os.environ.setdefault(name, str(value))
    console = Console(width=None if sys.stdout.isatty() else 120)
    specs = _specs(workload, backends, replicas, keras)
    folder = new_folder(output, f"tax-{workload}-{time.strftime('%Y%m%d-%H%M%S')}")
    command = shlex.join(["python", *sys.argv])
    tax = Tax(command, workload, order_seed, specs)
    stopped = False
    try:
        _size(console, tax, folder, seconds=seconds, rounds=rounds)
        _measure(console, tax, folder, rounds=rounds)
    except KeyboardInterrupt:
        stopped = True
    write_whole(folder / "tax.json", tax.to_json())
    console.print(table(tax))
    for problem in tax.problems:
        console.print(f"[red]problem[/] {problem}", highlight=False)
    console.print(f"every time: {folder / 'tax.json'}", highlight=False)
    if stopped:
        raise typer.Exit(130)
    if tax.problems:
        raise typer.Exit(1)


def _specs(workload: str, backends: str, replicas: str, keras: int) -> dict[str, RunSpec]:
    """The run of each arm as `ringside launch` makes it by default, on its share of the cores.

    Raises:
        RefusalError: an unknown workload or arm.
    """
    if workload not in WORKLOADS:
        raise RefusalError(
            "The hand-written scripts know some workloads only.",
            received=workload,
            advice=f"Choose {' or '.join(WORKLOADS)}.",
        )
    name, options = WORKLOADS[workload]
    run = spec_from_flags(
        Surroundings(),
        backend="serial",
        workload=name,
        workload_option=options,
        save="record",
        keras=keras,
    )
    if not backends:
        fits = (one for one in BACKENDS if run.keras == 2 or trains_keras_3(one))
        backends = ",".join(fits)
    named = [text.strip() for text in backends.split(",")]
    arms = [arm for arm in parse_arms(backends, replicas) if arm.group in named]
    shared = Shared.from_run(run).with_cores(cores_here(arms))
    specs = {arm.label: shared.spec_of(arm) for arm in arms}
    for label, spec in specs.items():
        check_options(label, spec)
    return specs


def _size(console: Console, tax: Tax, folder: Path, *, seconds: float, rounds: int) -> None:
    """Give each arm as many epochs as one short run by hand, which does not count, says."""
    left_s = 0.0
    for number, (arm, spec) in enumerate(list(tax.specs.items())):
        began = time.monotonic()
        place = folder / "sizing" / f"{number:03d}"
        short = spec.replace(epochs=SIZING_EPOCHS)
        with console.status(f"how long is an epoch of {arm}?"), Interrupts() as interrupts:
            try:
                timing = run_script(plan_by_hand(short, tax.workload, place), interrupts)
            except RunFailedError as error:
                tax.problems.append(f"{arm} by hand: {error}")
                del tax.specs[arm]
                continue
        left_s += len(SIDES) * rounds * (time.monotonic() - began + seconds)
        tax.specs[arm] = spec.replace(epochs=epochs_for(seconds, timing))
        tax.steps[arm] = timing.steps_per_epoch
    console.print(
        f"{len(tax.specs)} arms × {len(SIDES)} sides × {rounds} rounds: "
        f"about {left_s / 60:.0f} minutes",
        highlight=False,
    )


def _measure(console: Console, tax: Tax, folder: Path, *, rounds: int) -> None:
    """Launch all arms so many times; results are written to disk after each launch."""
    generator = random.Random(tax.seed)
    for number in range(rounds):
        for arm in generator.sample(list(tax.specs), len(tax.specs)):
            place = folder / "runs" / f"{number:03d}-{file_name(arm)}"
            with console.status(f"round {number + 1} of {rounds}: {arm}"):
                try:
                    timings = launched_pair(
                        tax.specs[arm], tax.workload, tax.steps[arm], place, generator
                    )
                except RunFailedError as error:
                    tax.problems.append(f"{arm}, round {number + 1}: {error}")
                    continue
            tax.samples += [Sample(arm, side, number, one) for side, one in timings.items()]
            write_whole(folder / "tax.json", tax.to_json())
        _check(tax, number)
        so_far = {arm: ratio(tax.pairs(arm)).value for arm in tax.specs}
        ratios = ", ".join(f"{arm} {value:.3f}" for arm, value in so_far.items() if value)
        console.print(f"after round {number + 1}: {ratios}", highlight=False)


def _check(tax: Tax, number: int) -> None:
    """Note every pair of this round whose two sides did not do the same."""
    for arm in tax.specs:
        sides = {s.side: s.timing for s in tax.samples if s.arm == arm and s.round == number}
        if len(sides) == len(SIDES) and (why := unlike(sides["ringside"], sides["by hand"])):
            tax.problems.append(f"{arm}, round {number + 1}: not the same work: {why}")


def table(tax: Tax) -> Table:
    """A row for each arm."""
    result = Table(title=f"Ringside's own cost, workload {tax.workload}", title_justify="left")
    for heading in ("arm", "Ringside, ms a step", "by hand", "ratio", "95 % interval", "launches"):
        result.add_column(heading, justify="left" if heading == "arm" else "right")
    result.add_column("beside the steps, ms an epoch", justify="right")
    result.add_column("loss, Ringside / by hand", justify="right")
    result.add_column(f"at most {AT_MOST}?")
    for arm in tax.specs:
        result.add_row(arm, *_cells(tax.pairs(arm)))
    return result


def _cells(pairs: list[tuple[Timing, Timing]]) -> list[str]:
    if not pairs:
        return ["–"] * 8
    found = ratio(pairs)
    sides: Any = zip(*pairs, strict=True)
    step_ms = [geometric_mean_with_interval([t.step_ms for t in side]).value for side in sides]
    here, there = pairs[-1]
    interval = found.interval
    beside = [of.beside_ms for of, _ in pairs if of.beside_ms is not None]
    return [
        *(f"{value:.3g}" for value in step_ms),
        f"{found.value:.3f}",
        found.reason if interval is None else f"{interval.low:.3f} – {interval.high:.3f}",
        str(found.n),
        f"{statistics.median(beside):.3g}" if beside else "–",
        f"{here.losses[-1]:.3g} / {there.losses[-1]:.3g}",
        holds(found),
    ]


if __name__ == "__main__":
    start(main)
