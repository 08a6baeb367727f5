"""What a comparison can tell apart on this machine: a planted slowdown, and an equal pair.

    python benchmarks/power.py                                # 5 % planted, 5 minutes, five times
    python benchmarks/power.py --backends serial,horovod,multi_worker_mirrored

Among the arms are the last one with more work in each step (*slowed down*), and the last one again
(*again*, an equal pair). They run through the same functions as `ringside compare`, all of them in
the final. Printed are, for each comparison, the two pairs, and the part of its time that was
measured steps.

It exits with 0 if each comparison finds the arm with more work slower, and no difference of more
than 10 % in the equal pair.

The work is computing, not sleeping: where a core waits, the input pipeline computes instead, and a
sleep of 2 ms in a step of 10 ms costs nothing. Under mirrored and central_storage replicas share
one Python, so their work adds up.
"""

import os
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.starting import start
from launch import Plan
from launch.flags import spec_from_flags
from ringside.certificates import store
from ringside.certificates.certify_arms import certify_arms
from ringside.certificates.subject import Subject
from ringside.comparison.arms import parse_arms
from ringside.comparison.experiment import Change, Executor, launched, run_arm, run_launches
from ringside.comparison.progress import ComparisonProgress
from ringside.stats.contest import MOST_SAME
from ringside.stats.division import measured_share
from ringside.stats.figure import Figure
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.summary import summarize
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Arm,
    Asked,
    Comparison,
    RefusalError,
    Shared,
    Surroundings,
)

PLANTED = "PLANTED_WORK_S"  # inherited by every process of the run
EXAMPLES, EPOCHS, BATCH = 960, 16, 48


def workload() -> Any:
    """A convolution net on random images, with a layer that computes for nothing in training.

    Every arm calls it, the others with no time, so that the call costs the same everywhere.
    """
    from ringside_core.keras import tf
    from ringside_core.workloads.workload import Workload

    seconds = float(os.environ.get(PLANTED, "0"))

    def work() -> np.floating[Any]:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return np.float32(0)

    class Works(tf.keras.layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            if not training:
                return x
            with tf.control_dependencies([tf.numpy_function(work, [], tf.float32)]):
                return tf.identity(x)

    def model() -> Any:
        return tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(24, 3, activation="relu", input_shape=(24, 24, 1)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"),
                Works(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10),
            ]
        )

    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, 24, 24, 1)).astype(np.float32)
    y = generator.integers(0, 10, EXAMPLES)
    return Workload(
        name="planted",
        model=model,
        train=(x, y),
        validation=(x[:BATCH], y[:BATCH]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.SGD(0.01),
    )


def command(
    slow: Annotated[float, typer.Option(min=0, help="More work, as a share of a step.")] = 0.05,
    backends: Annotated[str, typer.Option(help="As of ringside compare.")] = "one_device",
    replicas: Annotated[str, typer.Option(help="As of ringside compare.")] = "1",
    fresh: Annotated[bool, typer.Option("--fresh", help="As of ringside compare.")] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Of each comparison.")] = 5.0,
    times: Annotated[int, typer.Option(min=1, help="Comparisons.")] = 5,
    output: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path("runs"),
    smoke: Annotated[bool, typer.Option(help="One screening, which finds nothing.")] = False,
) -> None:
    """Plant a slowdown and check whether it is found."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    folder = output.absolute() / f"power-{datetime.now():%Y%m%d-%H%M%S}"
    own = f"{Path(__file__).resolve()}:workload"
    spec = spec_from_flags(
        Surroundings(), backend="serial", workload=own, epochs=EPOCHS, global_batch=BATCH,
        save="record",
    )  # fmt: skip
    arms = parse_arms(backends, replicas)
    arm = arms[-1]
    planted = arm.replace(label=f"{arm.label} slowed down", group=f"{arm.group} slowed down")
    again = arm.replace(label=f"{arm.label} again", group=f"{arm.group} again", twin_of=arm.label)
    # One core for each replica: less noise.
    shared = Shared.from_run(spec).with_cores(1)
    # Only an arm with a certificate is ranked.
    subjects = [Subject(one, shared.spec_of(one)) for one in arms]
    certificates = certify_arms(console, subjects, folder)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        machine=machine_facts(),
        seed=1,
        rounds=0,
        arms=(*arms, planted, again),
        shared=shared,
        certificates=(*certificates, certificates[-1].replace(arm=planted)),
        code_version=store.code_version(),
        live=not fresh,
        asked=Asked(budget_s=60 * minutes, launches=0 if smoke else None, all_arms=True),
    )
    plain = launched(comparison.deadline_s, ComparisonProgress(Console(quiet=True)))
    work_s = slow * _step_s(comparison, arm, folder, plain)
    console.print(f"{slow:.1%} of a step: {1000 * work_s:.2f} ms", highlight=False)
    slowed, right = _slowed(planted, work_s), []
    for number in range(1 if smoke else times):
        place = folder / str(number)
        with ComparisonProgress(console) as progress:
            ended = run_launches(
                comparison.replace(seed=number + 1),
                folder=place,
                executor=launched(comparison.deadline_s, progress, change=slowed),
                observer=progress,
                change=slowed,
            )
        right.append(_printed(console, ended, planted, arm, slow) or smoke)
    if not all(right):
        raise typer.Exit(1)


def _step_s(comparison: Comparison, arm: Arm, folder: Path, executor: Executor) -> float:
    """Seconds that a step of the arm takes without more work, from one run before the rounds."""
    run = run_arm(
        comparison, arm, number=0, position=0, folder=folder, executor=executor, place="before"
    )
    found = throughput_examples_s(run)
    if found.value is None:
        raise RefusalError("The arm must run.", received=run.outcome)
    return BATCH / found.value


def _slowed(planted: Arm, work_s: float) -> Change:
    """The processes of the planted arm do more."""

    def slowed(arm: Arm, plan: Plan) -> Plan:
        env = {PLANTED: str(work_s if arm.label == planted.label else 0.0)}
        processes = [one.replace(env={**one.env, **env}) for one in plan.processes]
        return plan.replace(processes=tuple(processes))

    return slowed


def _printed(console: Console, comparison: Comparison, planted: Arm, arm: Arm, slow: float) -> bool:
    """Print what a comparison has found; returns whether it is what was planted."""
    summary, share = summarize(comparison), measured_share(comparison)
    found, same = summary.pair_of(planted.label, arm.label).ratio, summary.noise_floor
    measured = "" if share is None else f"; {share:.0%} of the time were measured steps"
    made, minutes = len(summary.launches.final), comparison.spent_s / 60
    console.print(f"\n{made} launches in {minutes:.1f} minutes{measured}", highlight=False)
    console.print(f"{planted.label} ÷ {arm.label}: {_number(found)}", highlight=False)
    console.print(f"{arm.label} ÷ itself: {_number(same.ratio if same else None)}", highlight=False)
    if found.interval is None or same is None or same.ratio.interval is None:
        return False
    within = same.ratio.interval
    equal = within.low <= 1 <= within.high and within.high / within.low < (1 + MOST_SAME) ** 2
    return equal and (found.interval.high < 1 or not slow)


def _number(ratio: Figure | None) -> str:
    if ratio is None or ratio.value is None:
        return "no ratio"
    within = ratio.interval
    return f"{ratio.value:.4f} " + (
        ratio.reason if within is None else f"[{within.low:.4f}, {within.high:.4f}]"
    )


if __name__ == "__main__":
    start(command)
