"""Check that a planted slowdown is found: one arm sleeps for a share of each step.

    python benchmarks/planted.py                 # 5 %, one_device, at most 10 minutes of rounds
    python benchmarks/planted.py --slow 0.02 --backend horovod --replicas 2 --budget 1h

There are three arms, which differ in the sleep only: the arm, the arm with the sleep, and the arm
again (its twin). They run through the same functions as `ringside compare`. It prints the verdicts
and exits with 0 if the sleeping arm is `slower` and the twin `cannot tell`.

Under mirrored and central_storage with several replicas a sleep can cost nothing: the replicas
share threads, so one computes while the other sleeps.
"""

import math
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

from launch.flags import spec_from_flags
from ringside.compare.arms import parse_arms, twin
from ringside.compare.budget import MOST_ROUNDS, parse_duration, parse_width
from ringside.compare.experiment import Executor, launched, run_arm, run_rounds
from ringside.compare.progress import ComparisonProgress
from ringside.compare.stages import announcement
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.summary import summarize
from ringside.stats.verdicts import PairVerdict
from ringside.verify import store
from ringside.verify.certify import Subject
from ringside.verify.certify_arms import certify_arms
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Arm,
    Comparison,
    Execution,
    Load,
    Placement,
    RefusalError,
    Rounds,
    RunSpec,
    Shared,
    Surroundings,
)

SLEEP = "PLANTED_SLEEP_S"  # inherited by every process of the run
EXAMPLES, EPOCHS, BATCH = 960, 16, 48


def workload() -> Any:
    """A convolution net on random images, with a layer that sleeps in training.

    Every arm calls the sleep, the others with no time, so that the call costs the same everywhere.
    """
    from ringside_core.keras import tf
    from ringside_core.workloads.workload import Workload

    seconds = float(os.environ.get(SLEEP, "0"))

    def sleep() -> np.floating[Any]:
        if seconds:
            time.sleep(seconds)
        return np.float32(0)

    class Sleeps(tf.keras.layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            if not training:
                return x
            with tf.control_dependencies([tf.numpy_function(sleep, [], tf.float32)]):
                return tf.identity(x)

    def model() -> Any:
        return tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(24, 3, activation="relu", input_shape=(24, 24, 1)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"),
                Sleeps(),
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
    slow: Annotated[float, typer.Option(min=0, help="Sleep, as a share of a step.")] = 0.05,
    backend: Annotated[str, typer.Option(help="One backend, with options.")] = "one_device",
    replicas: Annotated[int, typer.Option(min=1)] = 1,
    interval_width: Annotated[str, typer.Option(help="As of ringside compare.")] = "2%",
    budget: Annotated[str, typer.Option(help="As of ringside compare.")] = "10m",
    output: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path("runs"),
) -> None:
    """Plant a slowdown and check whether it is found."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    folder = output.absolute() / f"planted-{datetime.now():%Y%m%d-%H%M%S}"
    own = f"{Path(__file__).resolve()}:workload"
    spec = spec_from_flags(
        Surroundings(), backend="serial", workload=own, epochs=EPOCHS, global_batch=BATCH,
        save="record",
    )  # fmt: skip
    arm = parse_arms(backend, str(replicas))[-1]
    planted = arm.replace(label=f"{arm.label} slowed down", group=f"{arm.group} slowed down")
    # One core for each replica: less noise, and nothing else can use the time of the sleep.
    shared = Shared.from_run(spec).with_cores(1)
    asked = Rounds(
        least=3,
        most=MOST_ROUNDS,
        interval_width=parse_width(interval_width),
        budget_s=parse_duration(budget),
    )
    (certificate,) = certify_arms(console, [Subject(arm, shared.spec_of(arm))], folder)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        machine=machine_facts(),
        seed=1,
        rounds=0,
        arms=(arm, planted, *twin((arm,))),
        shared=shared,
        asked=asked,
        certificates=(certificate, certificate.replace(arm=planted)),
        code_version=store.code_version(),
    )
    with ComparisonProgress(console, total_runs=None) as progress:
        plain = launched(comparison.deadline_s, progress)
        sleep_s = slow * _step_s(comparison, arm, folder, plain)
        console.print(f"{slow:.1%} of a step: {1000 * sleep_s:.2f} ms", highlight=False)
        for line in announcement(comparison):
            console.print(line, highlight=False, markup=False)
        ended = run_rounds(
            comparison,
            folder=folder,
            executor=_sleeping(plain, planted, sleep_s),
            observer=progress,
        )
    summary = summarize(ended)
    found = summary.verdict_of(planted.label, arm.label)
    (same,) = summary.noise_floor
    console.print(ended.ended_because, highlight=False)
    for verdict in (found, same):
        console.print(_told(verdict), highlight=False, markup=False)
    if (found.word, same.word) != ("slower" if slow else "cannot tell", "cannot tell"):
        raise typer.Exit(1)


def _step_s(comparison: Comparison, arm: Arm, folder: Path, executor: Executor) -> float:
    """Seconds that a step of the arm takes without the sleep, from one run before the rounds."""
    run = run_arm(
        arm,
        comparison.spec_of(arm),
        number=0,
        position=0,
        folder=folder,
        executor=executor,
        placement=Placement(),
        place="before",
    )
    found = throughput_examples_s(run)
    if found.value is None:
        raise RefusalError("The arm must run.", received=run.outcome)
    return BATCH / found.value


def _sleeping(executor: Executor, planted: Arm, sleep_s: float) -> Executor:
    """The same executor; in runs of the planted arm it tells every process to sleep."""

    def run(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        os.environ[SLEEP] = str(sleep_s if arm.label == planted.label else 0.0)
        try:
            return executor(arm, spec, run_dir)
        finally:
            del os.environ[SLEEP]

    return run


def _told(verdict: PairVerdict) -> str:
    ratio, interval = verdict.ratio.value, verdict.ratio.interval
    number = "no ratio" if ratio is None else f"{ratio:.4f}"
    if interval is not None:
        number += f" [{interval.low:.4f}, {interval.high:.4f}]"
    visible = verdict.smallest_visible
    much = "nothing" if visible is None or math.isinf(visible) else f"{visible:.1%}"
    seen = "" if visible is None else f"; could have seen {much}"
    return f"{verdict.first} ÷ {verdict.second}: {number}: {verdict.word}{seen} {verdict.reason}"


if __name__ == "__main__":
    typer.run(command)
