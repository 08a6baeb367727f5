"""One run of each side: through Ringside, and by a hand-written script."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from launch import execute, make_plan
from launch.children import Children
from launch.interrupts import Interrupts
from launch.logs import last_lines
from launch.site import Site
from ringside_core.specs import RefusalError, RunSpec

WARM_UP_EPOCHS = 2
POLL_S = 0.1
DEADLINE_S = 600.0
RESULT = "result.json"
# The workloads that the scripts know, as flags of Ringside.
WORKLOADS = {
    "digits": ("digits", []),
    "conv": ("synthetic", ["model=cnn", "image_size=32", "width=32", "examples=768"]),
}


class RunFailedError(RuntimeError):
    """A run of one side did not complete."""


@dataclass(frozen=True)
class Timing:
    """What one run of one side took.

    Attributes:
        epoch_s: of each epoch, from its first step to the end of its last.
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
    def step_ms(self) -> float:
        """Mean time of a step over all epochs but the first WARM_UP_EPOCHS, milliseconds."""
        timed = self.epoch_s[WARM_UP_EPOCHS:]
        return 1e3 * sum(timed) / (len(timed) * self.steps_per_epoch)


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


LOSS_FACTOR = 1.5


def through_ringside(spec: RunSpec, folder: Path) -> Timing:
    """Run a spec as `ringside launch` does.

    Raises:
        RunFailedError: it did not complete.
    """
    execution = execute(make_plan(spec, run_dir=folder))
    if not execution.outcome.completed:
        raise RunFailedError(str(execution.outcome))
    (chief,) = [record for record in execution.records if record.is_chief]
    # Every process that trains has its own clock; in each epoch the slowest counts.
    by_epoch = list(
        zip(*(record.epochs for record in execution.records if record.epochs), strict=True)
    )
    return Timing(
        epoch_s=tuple(max(epoch.train_s for epoch in epochs) for epochs in by_epoch),
        beside_s=tuple(max(epoch.beside_s or 0.0 for epoch in epochs) for epochs in by_epoch),
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
        del run_dir
        return self.command


def by_hand(spec: RunSpec, workload: str, folder: Path) -> Timing:
    """Run the script of the spec's backend: same launcher and environment, other processes.

    Args:
        spec: the run through Ringside that it is compared with.
        workload: as the scripts know it.
        folder: of this run.

    Raises:
        RunFailedError: it left no result.
    """
    folder = folder.absolute()
    site = ByHand(**vars(Site.here()), command=_command(spec, workload, folder / RESULT))
    plan = make_plan(spec, run_dir=folder, site=site)
    (folder / "logs").mkdir(parents=True)
    give_up_at = time.monotonic() + DEADLINE_S
    with Interrupts() as interrupts, Children(plan, dict(os.environ)) as children:
        while any(not child.process.serves for child in children.alive()):
            children.wait(POLL_S)
            interrupts.raise_noted()
            if any(child.returncode for child in children.started.values()):
                break  # the other processes would wait for it
            if time.monotonic() > give_up_at:
                break
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
        "out": out,
    }
    module = f"benchmarks.reference.{spec.backend}"
    pairs = (part for name, value in flags.items() for part in (f"--{name}", str(value)))
    return (Site.here().python, "-u", "-m", module, *pairs)


def check_options(label: str, spec: RunSpec) -> None:
    """Refuse an arm for which there is no hand-written script.

    Raises:
        RefusalError: another backend, or an option that the scripts do not know.
    """
    if not (Path(__file__).parent / "reference" / f"{spec.backend}.py").exists():
        raise RefusalError("There must be a hand-written script of the backend.", received=label)
    given = spec.options.model_dump(exclude_defaults=True)
    if set(given) - {"controller"}:
        raise RefusalError(
            "The hand-written scripts run each backend as it is by default.",
            received=label,
            advice="Of the options only horovod:controller=mpi can be asked for.",
        )
