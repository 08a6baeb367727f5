"""Measure what Ringside itself costs: each backend against a script that is written by hand.

    python benchmarks/tax.py
    python benchmarks/tax.py --programs conv --backends serial,horovod --rounds 5
    python benchmarks/tax.py --programs arrays,tf.image,layers,TFRecord,generator

Each program of benchmarks/programs.py runs by `ringside launch` (benchmarks/through_ringside.py)
and by hand (benchmarks/by_hand.py). In each round both sides of every arm start, an arm at a time,
and train in turns: short blocks, each side frozen (SIGSTOP) while the other one trains, as the live
rounds of `ringside compare`. A launch of both gives one ratio of examples/s. Printed are the
geometric mean of the launches and its 95 % interval. benchmarks/README.md says what is the same on
both sides, and what is not.
"""

import json
import math
import os
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.programs import INPUTS, PROGRAMS
from benchmarks.starting import start
from launch import Plan, execute, make_plan
from launch.children import Children
from launch.flags import spec_from_flags
from launch.interrupts import Interrupts
from launch.logs import last_lines
from launch.site import Site
from launch.turns import Turns
from launch.watch import WAITING, Progress
from ringside.cli.common import new_folder
from ringside.comparison.arms import cores_here, parse_arms
from ringside.comparison.live import QUIET
from ringside.stats.figure import Figure, geometric_mean_with_interval
from ringside_core.memory import KEPT
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    RefusalError,
    Resources,
    RunSpec,
    Shared,
    Surroundings,
    capabilities_of,
    write_whole,
)
from ringside_core.text import file_name

BACKENDS = (
    "serial,one_device,mirrored,central_storage,multi_worker_mirrored,parameter_server,"
    "horovod,horovod:controller=mpi"
)
# Under central_storage metrics of Keras 3 are wrong: nothing shows that both sides do the same.
KERAS_3 = "serial,one_device,mirrored,horovod,horovod:controller=mpi"
AS_SHIPPED = "horovod,multi_worker_mirrored"
READERS = "serial,horovod"  # of what is read
WARM_UP_EPOCHS = 2
POLL_S = 0.1
DEADLINE_S = 600.0  # of a script, its pauses left out
LOSS_FACTOR = 1.5
AT_LEAST = 0.98
RESULT = "result.json"
SCRIPT = Path(__file__).parent / "through_ringside.py"
Side = Literal["ringside", "by hand"]
SIDES: tuple[Side, ...] = ("ringside", "by hand")


class RunFailedError(RuntimeError):
    """A run of one side did not complete."""


@dataclass(frozen=True)
class Blocks:
    """How a run is cut into turns: two epochs of warm-up, then blocks of equal length.

    Attributes:
        number: of blocks.
        timed: epochs of a block that count: not its first, which comes after a pause, and not its
            last, which is before one.
    """

    number: int = 24
    timed: int = 2

    def until(self, block: int) -> int:
        """Epochs until the end of a block; 0: of the warm-up."""
        return WARM_UP_EPOCHS + block * (self.timed + 2)

    @property
    def epochs(self) -> int:
        """Of a run."""
        return self.until(self.number)


@dataclass(frozen=True)
class Timing:
    """What one run of one side took.

    Attributes:
        epoch_s: of each epoch, from its first step to the end of its last, by the clock of the
            chief.
        steps_per_epoch: updates in each.
        losses: mean training loss of each epoch.
        cores: processors that the chief could use.
        beside_s: of each epoch, what it took before its first and after its last step; by hand
            there is no such thing.
    """

    epoch_s: tuple[float, ...]
    steps_per_epoch: int
    losses: tuple[float, ...]
    cores: tuple[int, ...]
    beside_s: tuple[float, ...] = ()

    def block_s(self, blocks: Blocks) -> np.ndarray:
        """Mean seconds of an epoch in each block, [blocks.number]."""
        epoch_s = np.array(self.epoch_s[WARM_UP_EPOCHS:]).reshape(blocks.number, -1)
        means: np.ndarray = epoch_s[:, 1:-1].mean(axis=1)
        return means


@dataclass(frozen=True)
class Pair:
    """One launch of both sides of an arm; they train equally many examples in an epoch."""

    arm: str
    round: int
    examples: int  # of an epoch
    blocks: Blocks
    ringside: Timing
    by_hand: Timing

    @property
    def ratio(self) -> float:
        """Examples/s of Ringside ÷ those by hand: the median of the blocks."""
        here, there = self.ringside.block_s(self.blocks), self.by_hand.block_s(self.blocks)
        return float(np.exp(np.median(np.log(there / here))))

    @property
    def rates(self) -> tuple[float, float]:
        """Examples/s of both sides, each the median of its blocks."""
        here, there = (
            self.examples / float(np.median(side.block_s(self.blocks)))
            for side in (self.ringside, self.by_hand)
        )
        return here, there

    @property
    def difference(self) -> str:
        """Why the two sides did not do the same work on the same processors; empty if they did.

        The order of the examples is not the same on both sides, so only the losses of the first
        epoch are compared, and loosely: this shows another batch, rate, model or data set.
        """
        for name in ("steps_per_epoch", "cores"):
            here, there = getattr(self.ringside, name), getattr(self.by_hand, name)
            if here != there:
                return f"{name} {here} through Ringside, {there} by hand"
        here, there = len(self.ringside.epoch_s), len(self.by_hand.epoch_s)
        if here != there:
            return f"{here} epochs through Ringside, {there} by hand"
        here, there = self.ringside.losses[0], self.by_hand.losses[0]
        if not 1 / LOSS_FACTOR < here / there < LOSS_FACTOR:
            return f"loss {here:.3g} through Ringside, {there:.3g} by hand in the first epoch"
        return ""


@dataclass
class Tax:
    """Everything that one call has measured; written to disk after each launch."""

    seed: int
    specs: dict[str, RunSpec]  # of each arm
    pairs: list[Pair] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of_arm(self, arm: str) -> list[Pair]:
        """Its launches that have both sides."""
        return [pair for pair in self.pairs if pair.arm == arm]

    def to_json(self) -> str:
        """All raw times, and the ratios."""
        body = {
            "command": shlex.join(["python", *sys.argv]),
            "created_unix_s": time.time(),
            "order_seed": self.seed,
            "machine": machine_facts().model_dump(mode="json"),
            "ratios": {arm: asdict(ratio(self.of_arm(arm))) for arm in self.specs},
            "problems": self.problems,
            "pairs": [asdict(pair) for pair in self.pairs],
            "specs": {arm: spec.model_dump(mode="json") for arm, spec in self.specs.items()},
        }
        return json.dumps(body, indent=1)


def ratio(pairs: list[Pair]) -> Figure:
    """Examples/s of Ringside ÷ those by hand: geometric mean over launches."""
    return geometric_mean_with_interval([pair.ratio for pair in pairs])


def holds(figure: Figure) -> str:
    """Whether a ratio is at least AT_LEAST, if its interval can tell."""
    if figure.interval is None:
        return "cannot tell"
    if figure.interval.low >= AT_LEAST:
        return "yes"
    return "no" if figure.interval.high < AT_LEAST else "cannot tell"


def main(
    *,
    programs: Annotated[str, typer.Option(help=f"Of {', '.join(PROGRAMS)}.")] = "digits,mobilenet",
    backends: Annotated[
        str, typer.Option(help="Names with commas between. Default: all that can be compared.")
    ] = "",
    replicas: Annotated[
        str, typer.Option(help="Replicas of each backend that can have several.")
    ] = "2",
    keras: Annotated[int, typer.Option(min=2, max=3, help="2: legacy Keras, or 3.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Launches of both sides of each arm.")] = 8,
    order_seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the runs.")] = 1,
    output: Annotated[Path, typer.Option(help="Where the folder of the results is made.")] = Path(
        "runs"
    ),
    smoke: Annotated[
        bool, typer.Option(help="One launch of one short block; its times say nothing.")
    ] = False,
) -> None:
    """Time each backend through Ringside against a hand-written script that does the same."""
    blocks = Blocks(1, 1) if smoke else Blocks()
    specs: dict[str, RunSpec] = {}
    for name in [text.strip() for text in programs.split(",")]:
        specs |= specs_of(name, backends, replicas, keras, blocks)
    measure(specs, blocks, 1 if smoke else rounds, order_seed, output)


def specs_of(
    name: str, backends: str, replicas: str, keras: int, blocks: Blocks
) -> dict[str, RunSpec]:
    """The run of each arm of a program, as `ringside launch` makes it by default.

    It has its share of the cores, if the program is not run as it is shipped.

    Raises:
        RefusalError: an unknown program or arm.
    """
    if name not in PROGRAMS:
        raise RefusalError(
            "A program must be known.", received=name, advice=f"Choose of {', '.join(PROGRAMS)}."
        )
    program = PROGRAMS[name]
    run = spec_from_flags(
        Surroundings(),
        backend="serial",
        workload=shlex.join([str(SCRIPT), name]),
        global_batch=program.batch,
        epochs=blocks.epochs,
        save="record",
    )
    if keras == 3:
        run = run.replace(keras=3)
    usual = KERAS_3 if keras == 3 else BACKENDS
    backends = backends or (
        AS_SHIPPED if program.as_shipped else READERS if name in INPUTS else usual
    )
    named = [text.strip() for text in backends.split(",")]
    arms = [arm for arm in parse_arms(backends, replicas) if arm.group in named]
    shared = Shared.from_run(run).with_cores(cores_here(arms))
    specs = {f"{name}, {arm.label}": _checked(arm.label, shared.spec_of(arm)) for arm in arms}
    if program.as_shipped:
        specs = {label: spec.replace(resources=Resources()) for label, spec in specs.items()}
    return specs


def _checked(label: str, spec: RunSpec) -> RunSpec:
    """The spec, if there is a hand-written script that does the same."""
    if set(spec.options.model_dump(exclude_defaults=True)) - {"controller"}:
        raise RefusalError(
            "The hand-written scripts run each backend as it is by default.",
            received=label,
            advice="Of the options only horovod:controller=mpi can be asked for.",
        )
    known = spec.backend in BACKENDS.split(",")
    if not known or (spec.keras == 3 and spec.backend not in KERAS_3.split(",")):
        raise RefusalError(
            "There must be a hand-written script of the backend, and `fit` of its Keras must be "
            "right there (docs/upstream.md).",
            received=label,
            advice=f"Choose of {KERAS_3 if spec.keras == 3 else BACKENDS}.",
        )
    return spec


def measure(
    specs: dict[str, RunSpec], blocks: Blocks, rounds: int, seed: int, output: Path
) -> None:
    """Launch both sides of each arm so many times, and print the ratios.

    Raises:
        typer.Exit: 130: it was interrupted; 1: a side failed, or did other work.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    folder = new_folder(output, f"tax-{time.strftime('%Y%m%d-%H%M%S')}")
    tax, generator, stopped = Tax(seed, specs), random.Random(seed), False
    try:
        for number in range(rounds):
            for arm in generator.sample(list(specs), len(specs)):
                place = folder / "runs" / f"{number:03d}-{file_name(arm)}"
                with console.status(f"round {number + 1} of {rounds}: {arm}"):
                    _launch(tax, arm, number, blocks, place, generator)
                write_whole(folder / "tax.json", tax.to_json())
            so_far = {arm: ratio(tax.of_arm(arm)).value for arm in specs}
            ratios = ", ".join(f"{arm}: {value:.3f}" for arm, value in so_far.items() if value)
            console.print(f"after round {number + 1}: {ratios}", highlight=False)
    except KeyboardInterrupt:
        stopped = True
    console.print(table(tax))
    for problem in tax.problems:
        console.print(f"[red]problem[/] {problem}", highlight=False)
    console.print(f"every time: {folder / 'tax.json'}", highlight=False)
    if stopped or tax.problems:
        raise typer.Exit(130 if stopped else 1)


def _launch(
    tax: Tax, arm: str, number: int, blocks: Blocks, folder: Path, generator: random.Random
) -> None:
    """Add one launch of an arm, or why there is none."""
    name = arm.partition(",")[0]
    program, spec = PROGRAMS[name], tax.specs[arm]
    asynchronous = not capabilities_of(spec.backend).synchronous
    steps = program.steps * (spec.topology.num_replicas if asynchronous else 1)
    try:
        sides = launched_pair(spec, name, steps, blocks, folder, generator)
    except RunFailedError as error:
        tax.problems.append(f"{arm}, round {number + 1}: {error}")
        return
    examples = program.steps * program.batch
    pair = Pair(arm, number, examples, blocks, sides["ringside"], sides["by hand"])
    if pair.difference:
        tax.problems.append(f"{arm}, round {number + 1}: not the same work: {pair.difference}")
    tax.pairs.append(pair)


def table(tax: Tax) -> Table:
    """A row for each arm."""
    result = Table(title="Examples/s, Ringside ÷ by hand", title_justify="left")
    headings = ("Ringside", "by hand", "ratio", "95 % interval", "launches", "beside, ms an epoch")
    for heading in ("program, arm", *headings, f"at least {AT_LEAST}?"):
        result.add_column(heading, justify="right" if heading in headings else "left")
    for arm in tax.specs:
        result.add_row(arm, *(_cells(pairs) if (pairs := tax.of_arm(arm)) else ["–"] * 7))
    return result


def _cells(pairs: list[Pair]) -> list[str]:
    found = ratio(pairs)
    rates = zip(*(pair.rates for pair in pairs), strict=True)
    beside = [s for pair in pairs for s in pair.ringside.beside_s[WARM_UP_EPOCHS:]]
    within = found.interval
    return [
        *(f"{statistics.geometric_mean(side):,.0f}" for side in rates),
        f"{found.value:.3f}",
        found.reason if within is None else f"{within.low:.3f} – {within.high:.3f}",
        str(found.n),
        f"{1e3 * statistics.mean(beside):.3g}" if beside else "–",
        holds(found),
    ]


# One launch: both sides are live, and train in turns


def launched_pair(
    spec: RunSpec, program: str, steps: int, blocks: Blocks, folder: Path, generator: random.Random
) -> dict[Side, Timing]:
    """Start both sides of an arm, let them train in turns, and read their times.

    Which side is started first, and which begins a pass, is drawn.

    Raises:
        RunFailedError: a side did not complete.
    """
    by_hand = plan_by_hand(spec, program, folder / "by-hand")
    sides: dict[Side, _Live] = {
        "ringside": _Live(Turns(make_plan(spec, run_dir=folder / "ringside")), steps, _through),
        "by hand": _Live(TurnsByHand(by_hand), steps, run_script),
    }
    with Interrupts() as interrupts, ThreadPoolExecutor(len(SIDES)) as pool:
        try:
            for side in generator.sample(SIDES, len(SIDES)):
                sides[side].start(pool, interrupts)
                sides[side].turn(WARM_UP_EPOCHS, interrupts)
            for block in range(1, blocks.number + 1):
                for side in generator.sample(SIDES, len(SIDES)):
                    epochs = blocks.until(block) if block < blocks.number else math.inf
                    sides[side].turn(epochs, interrupts)
        except BaseException:
            interrupts.stop()  # each ends its own processes
            raise
    return {name: side.timing() for name, side in sides.items()}


class _Live:
    """A side whose processes run in a thread, and which is frozen out of its turn."""

    def __init__(
        self, turns: Turns, steps: int, run: Callable[[Turns, Interrupts], Timing]
    ) -> None:
        self.turns, self._steps, self._run = turns, steps, run
        self._shortest_s = 0.0  # of a block
        self._result: Future[Timing] | None = None

    def start(self, pool: ThreadPoolExecutor, interrupts: Interrupts) -> None:
        """Start its processes; they wait after the warm-up."""

        def whole() -> Timing:
            try:
                return self._run(self.turns, interrupts)
            finally:
                self.turns.over = True

        self.turns.allow(WARM_UP_EPOCHS * self._steps)
        self._result = pool.submit(whole)

    def turn(self, epochs: float, interrupts: Interrupts) -> None:
        """Let it train until so many epochs are done; infinity: until it is over."""
        if self.turns.over:
            return
        began, expected_s = time.monotonic(), QUIET * self._shortest_s
        self.turns.run_until(epochs * self._steps, interrupts.raise_noted, expected_s=expected_s)
        took_s = time.monotonic() - began
        if epochs > WARM_UP_EPOCHS:
            self._shortest_s = min(self._shortest_s or took_s, took_s)

    def timing(self) -> Timing:
        """What it took, once it is over."""
        assert self._result is not None
        return self._result.result()


def _through(turns: Turns, interrupts: Interrupts) -> Timing:
    """Run the side of Ringside to its end."""
    execution = execute(turns.plan, interrupts=interrupts, turns=turns)
    if not execution.outcome.completed:
        raise RunFailedError(str(execution.outcome))
    (chief,) = [record for record in execution.records if record.is_chief]
    return Timing(
        epoch_s=tuple(epoch.train_s for epoch in chief.epochs),
        beside_s=tuple(epoch.beside_s or 0.0 for epoch in chief.epochs),
        steps_per_epoch=chief.epochs[0].steps,
        losses=tuple(epoch.train["loss"] for epoch in chief.epochs),
        cores=chief.cores,
    )


@dataclass(frozen=True)
class ByHand(Site):
    """This machine; each task runs a hand-written script."""

    command: tuple[str, ...] = ()

    def task_command(self, run_dir: Path) -> tuple[str, ...]:
        """The script, for any folder."""
        return self.command


class TurnsByHand(Turns):
    """The turns of a script: its chief alone says that it waits."""

    def progress(self) -> list[Progress]:
        """Where the chief is."""
        return [self._progress("chief")]

    def waits(self, after: int) -> bool:
        """Whether it waits after at least so many updates."""
        (chief,) = self.progress()
        return chief.phase == WAITING and chief.step >= after


def plan_by_hand(spec: RunSpec, program: str, folder: Path) -> Plan:
    """The processes of the script of a spec's backend: same launcher and environment."""
    folder, each = folder.absolute(), spec.topology.replicas_per_process
    flags: dict[str, Any] = {
        "backend": spec.backend,
        "program": program,
        "epochs": spec.epochs,
        "replicas": spec.topology.num_replicas,
        "cores-per-replica": spec.resources.cores_per_replica or 0,
        "intra": (spec.resources.intra_op_threads or 0) // each,
        "inter": (spec.resources.inter_op_threads or 0) // each,
        "keras": spec.keras,
        "out": folder / RESULT,
    }
    words = (part for flag, value in flags.items() for part in (f"--{flag}", str(value)))
    here = Site.here()
    command = (here.python, "-u", "-m", "benchmarks.by_hand", *words)
    return make_plan(spec, run_dir=folder, site=ByHand(**vars(here), command=command))


def run_script(turns: Turns, interrupts: Interrupts) -> Timing:
    """Run a script to its end.

    Raises:
        RunFailedError: it left no result.
    """
    plan, folder = turns.plan, Path(turns.plan.run_dir)
    (folder / "logs").mkdir(parents=True)
    env = dict(os.environ)
    if plan.spec.resources.cores_per_replica is not None:  # else it runs as it is shipped
        env = {**{name: str(value) for name, (_, value) in KEPT.items()}, **env}
    give_up_at = time.monotonic() + DEADLINE_S
    with Children(plan, env) as children:
        try:
            while any(not child.process.serves for child in children.alive()):
                children.wait(POLL_S)
                interrupts.raise_noted()
                if turns.resting:
                    give_up_at += POLL_S
                if any(child.returncode for child in children.started.values()):
                    break  # the other processes would wait for it
                if time.monotonic() > give_up_at:
                    raise RunFailedError(f"it took longer than {DEADLINE_S:.0f} s")
        finally:
            turns.thaw()  # a frozen process cannot end in good order
    try:
        found = json.loads((folder / RESULT).read_text())
    except (OSError, json.JSONDecodeError):
        logs = [line for p in plan.processes for line in last_lines(folder, p.name, 3)]
        raise RunFailedError(f"no result; logs in {folder}: {' | '.join(logs)}") from None
    steps = len(found["epoch_s"]) * found["steps_per_epoch"]
    if found["updates"] != steps:
        raise RunFailedError(f"{found['updates']} updates in {steps} steps")
    return Timing(
        epoch_s=tuple(found["epoch_s"]),
        steps_per_epoch=found["steps_per_epoch"],
        losses=tuple(found["losses"]),
        cores=tuple(found["cores"]),
    )


if __name__ == "__main__":
    start(main)
