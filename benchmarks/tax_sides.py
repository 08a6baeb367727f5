"""One launch of an arm through Ringside and one by hand, which train in turns, block by block."""

import json
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from launch import Plan, execute, make_plan
from launch.children import Children
from launch.interrupts import Interrupts
from launch.logs import last_lines
from launch.site import Site
from launch.turns import Turns
from launch.watch import WAITING, Progress
from ringside.compare.live import QUIET
from ringside.stats.pairs import middle_mean
from ringside_core.specs import RefusalError, RunSpec, capabilities_of

WARM_UP_EPOCHS = 2
BLOCKS = 12
POLL_S = 0.1
DEADLINE_S = 600.0  # of a script, its pauses left out
LOSS_FACTOR = 1.5
RESULT = "result.json"
# The workloads that the scripts know, as flags of Ringside.
WORKLOADS = {
    "digits": ("digits", []),
    "conv": ("synthetic", ["model=cnn", "image_size=32", "width=32", "examples=768"]),
}
Side = Literal["ringside", "by hand"]
SIDES: tuple[Side, ...] = ("ringside", "by hand")


class RunFailedError(RuntimeError):
    """A run of one side did not complete."""


@dataclass(frozen=True)
class Timing:
    """What one run of one side took.

    Attributes:
        epoch_s: of each epoch, from its first step to the end of its last, by the clock of the
            chief. Two epochs of warm-up, then BLOCKS blocks of equal length.
        steps_per_epoch: updates in each.
        losses: mean training loss of each epoch.
        cores: processors that the chief could use.
        beside_s: of each epoch, what it took before its first and after its last step, resets too;
            by hand there is no such thing.
    """

    epoch_s: tuple[float, ...]
    steps_per_epoch: int
    losses: tuple[float, ...]
    cores: tuple[int, ...]
    beside_s: tuple[float, ...] = ()

    @property
    def beside_ms(self) -> float | None:
        """Mean of beside_s over all epochs but the first WARM_UP_EPOCHS, milliseconds."""
        timed = self.beside_s[WARM_UP_EPOCHS:]
        return 1e3 * sum(timed) / len(timed) if timed else None

    @property
    def blocks_ms(self) -> np.ndarray:
        """Mean time of a step in each block, milliseconds, [BLOCKS].

        Without its first epoch, which comes after a pause, and its last, which is before one.
        """
        blocks = np.array(self.epoch_s[WARM_UP_EPOCHS:]).reshape(BLOCKS, -1)
        each: np.ndarray = 1e3 * blocks[:, 1:-1].mean(axis=1) / self.steps_per_epoch
        return each

    @property
    def step_ms(self) -> float:
        """The median of the blocks, milliseconds."""
        return float(np.median(self.blocks_ms))


def log_ratio(ringside: Timing, by_hand: Timing) -> float:
    """Logarithm of step time through Ringside ÷ by hand: mean of the middle half of the blocks."""
    return float(middle_mean(np.log(ringside.blocks_ms / by_hand.blocks_ms)))


def unlike(ringside: Timing, by_hand: Timing) -> str:
    """Why two timings are not of the same work on the same processors; empty if they are.

    The order of the examples is not the same on both sides, so the losses are compared at the end
    of the warm-up only, and loosely: what is caught is another batch, rate, model or data set.
    """
    for name in ("steps_per_epoch", "cores"):
        here, there = getattr(ringside, name), getattr(by_hand, name)
        if here != there:
            return f"{name} {here} through Ringside, {there} by hand"
    if len(ringside.epoch_s) != len(by_hand.epoch_s):
        return f"{len(ringside.epoch_s)} epochs through Ringside, {len(by_hand.epoch_s)} by hand"
    here, there = ringside.losses[WARM_UP_EPOCHS - 1], by_hand.losses[WARM_UP_EPOCHS - 1]
    if not 1 / LOSS_FACTOR < here / there < LOSS_FACTOR:
        return (
            f"loss {here:.3g} through Ringside, {there:.3g} by hand after {WARM_UP_EPOCHS} epochs"
        )
    return ""


def epochs_of(epochs_in_block: int) -> int:
    """Epochs of a run whose blocks are so long."""
    return WARM_UP_EPOCHS + BLOCKS * epochs_in_block


def launched_pair(
    spec: RunSpec, workload: str, steps: int, folder: Path, generator: random.Random
) -> dict[Side, Timing]:
    """Start both sides of an arm, let them train in turns, and read their times.

    Which side is started first, and which begins a pass, is drawn.

    Args:
        spec: the run; its epochs are those of `epochs_of`.
        workload: as the scripts know it.
        steps: of an epoch.
        folder: of both runs.
        generator: for the draws.

    Raises:
        RunFailedError: a side did not complete.
    """
    each = (spec.epochs - WARM_UP_EPOCHS) // BLOCKS
    sides: dict[Side, _Live] = {
        "ringside": _through_ringside(spec, steps, folder / "ringside"),
        "by hand": _by_hand(spec, workload, steps, folder / "by-hand"),
    }
    with Interrupts() as interrupts, ThreadPoolExecutor(len(SIDES)) as pool:
        try:
            for side in generator.sample(SIDES, len(SIDES)):
                sides[side].start(pool, interrupts)
                sides[side].turn(WARM_UP_EPOCHS, interrupts)
            for number in range(1, BLOCKS + 1):
                for side in generator.sample(SIDES, len(SIDES)):
                    epochs = WARM_UP_EPOCHS + number * each if number < BLOCKS else np.inf
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


def _through_ringside(spec: RunSpec, steps: int, folder: Path) -> _Live:
    def run(turns: Turns, interrupts: Interrupts) -> Timing:
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

    return _Live(Turns(make_plan(spec, run_dir=folder)), steps, run)


# By hand


@dataclass(frozen=True)
class ByHand(Site):
    """This machine; each task runs a hand-written script."""

    command: tuple[str, ...] = ()

    def task_command(self, run_dir: Path) -> tuple[str, ...]:
        """The script, for any folder."""
        del run_dir
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


def _by_hand(spec: RunSpec, workload: str, steps: int, folder: Path) -> _Live:
    plan = plan_by_hand(spec, workload, folder)
    return _Live(TurnsByHand(plan), steps, lambda turns, held: run_script(plan, held, turns))


def plan_by_hand(spec: RunSpec, workload: str, folder: Path) -> Plan:
    """The processes of the script of a spec's backend: same launcher and environment.

    Args:
        spec: the run through Ringside that it is compared with.
        workload: as the scripts know it.
        folder: of this run.
    """
    folder = folder.absolute()
    site = ByHand(**vars(Site.here()), command=_command(spec, workload, folder / RESULT))
    return make_plan(spec, run_dir=folder, site=site)


def run_script(plan: Plan, interrupts: Interrupts, turns: Turns | None = None) -> Timing:
    """Run a script to its end.

    Raises:
        RunFailedError: it left no result.
    """
    folder = Path(plan.run_dir)
    (folder / "logs").mkdir(parents=True)
    give_up_at = time.monotonic() + DEADLINE_S
    with Children(plan, dict(os.environ)) as children:
        try:
            while any(not child.process.serves for child in children.alive()):
                children.wait(POLL_S)
                interrupts.raise_noted()
                if turns is not None and turns.resting:
                    give_up_at += POLL_S
                if any(child.returncode for child in children.started.values()):
                    break  # the other processes would wait for it
                if time.monotonic() > give_up_at:
                    raise RunFailedError(f"it took longer than {DEADLINE_S:.0f} s")
        finally:
            if turns is not None:
                turns.thaw()  # a frozen process cannot end in good order
    try:
        found = json.loads((folder / RESULT).read_text())
    except (OSError, json.JSONDecodeError):
        said = [line for p in plan.processes for line in last_lines(folder, p.name, 3)]
        raise RunFailedError(f"no result; logs in {folder}: {' | '.join(said)}") from None
    epochs, steps = len(found["seconds"]), found["steps_per_epoch"]
    if found["updates"] != epochs * steps:
        raise RunFailedError(f"{found['updates']} updates in {epochs} epochs of {steps} steps")
    return Timing(
        epoch_s=tuple(found["seconds"]),
        steps_per_epoch=steps,
        losses=tuple(found["loss"]),
        cores=tuple(found["cores"]),
    )


def _command(spec: RunSpec, workload: str, out: Path) -> tuple[str, ...]:
    of_process, share = spec.resources, spec.topology.replicas_per_process
    flags = {
        "workload": workload,
        "epochs": spec.epochs,
        "replicas": spec.topology.num_replicas,
        "global-batch": spec.global_batch,
        "seed": spec.seed,
        "cores-per-replica": of_process.cores_per_replica,
        "intra": (of_process.intra_op_threads or 0) // share,
        "inter": (of_process.inter_op_threads or 0) // share,
        "keras": spec.keras,
        "out": out,
    }
    module = f"benchmarks.reference.{spec.backend}"
    pairs = (part for name, value in flags.items() for part in (f"--{name}", str(value)))
    return (Site.here().python, "-u", "-m", module, *pairs)


def trains_keras_3(arm: str) -> bool:
    """Whether the script of an arm's backend is right under Keras 3: `fit` of Keras is there.

    Under central_storage its metrics are wrong, so both sides cannot be seen to do the same work.
    """
    backend = arm.partition(":")[0]
    return capabilities_of(backend).keras3_fit and backend != "central_storage"


def check_options(label: str, spec: RunSpec) -> None:
    """Refuse an arm for which there is no hand-written script.

    Raises:
        RefusalError: another backend, or an option that the scripts do not know.
    """
    if not (Path(__file__).parent / "reference" / f"{spec.backend}.py").exists():
        raise RefusalError("There must be a hand-written script of the backend.", received=label)
    if spec.keras == 3 and not trains_keras_3(spec.backend):
        raise RefusalError(
            "`fit` of Keras 3 must be right there: it is wrong, or fails (docs/upstream.md).",
            received=label,
            advice=f"Leave out {spec.backend}.",
        )
    given = spec.options.model_dump(exclude_defaults=True)
    if set(given) - {"controller"}:
        raise RefusalError(
            "The hand-written scripts run each backend as it is by default.",
            received=label,
            advice="Of the options only horovod:controller=mpi can be asked for.",
        )
