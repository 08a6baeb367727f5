"""What a comparison can tell apart: live blocks against fresh runs, in turns, on this machine.

    python benchmarks/power.py                                   # 5 % planted, 5 minutes each way
    python benchmarks/power.py --way live --backends serial,horovod,multi_worker_mirrored --busy 1

Among the arms are the last one with more work in each step (*slowed down*), and the last one again
(*again*, an equal pair). All run through the same functions as `ringside compare`. Each way gets
the same time; the way that has had less of it makes the next round. Printed are, for each way, the
two pairs, the widest interval of two arms of one size, and whether the ways agree.

It exits with 0 if live rounds call the arm with more work `slower`, no way calls it faster or the
equal pair different, and the ways agree.

The work is computing, not sleeping: where a core waits, the input pipeline computes instead, and a
sleep of 2 ms in a step of 10 ms costs nothing. Under mirrored and central_storage replicas share
one Python, so their work adds up.
"""

import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console

from benchmarks.starting import start
from launch import Plan, make_plan
from launch.flags import spec_from_flags
from ringside.compare.arms import parse_arms, twin
from ringside.compare.experiment import (
    Executor,
    PlanOf,
    launched,
    run_arm,
    run_rounds,
)
from ringside.compare.progress import ComparisonProgress, Observer
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.summary import relative_width, summarize
from ringside.stats.verdicts import PairVerdict
from ringside.verify import store
from ringside.verify.certify_arms import certify_arms
from ringside.verify.subject import Subject
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Arm,
    Comparison,
    Placement,
    RefusalError,
    Rounds,
    RunSpec,
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


@dataclass
class Way:
    """One way to make rounds, and what it has found."""

    name: str
    comparison: Comparison
    folder: Path
    spent_s: float = 0.0

    def another_round(self, console: Console, plan_of: PlanOf) -> None:
        """Make one more round."""
        began, rounds = time.monotonic(), self.comparison.rounds + 1
        asked = Rounds(least=rounds, most=rounds)
        with ComparisonProgress(console, total_runs=None) as progress:
            self.comparison = run_rounds(
                self.comparison.replace(asked=asked, ended_because=""),
                folder=self.folder,
                executor=launched(self.comparison.deadline_s, progress, plan_of=plan_of),
                observer=progress,
                plan_of=plan_of,
            )
        self.spent_s += time.monotonic() - began


def command(
    slow: Annotated[float, typer.Option(min=0, help="More work, as a share of a step.")] = 0.05,
    backends: Annotated[str, typer.Option(help="As of ringside compare.")] = "one_device",
    replicas: Annotated[str, typer.Option(help="As of ringside compare.")] = "1",
    way: Annotated[
        Literal["live", "fresh", "both"], typer.Option(help="How rounds are made.")
    ] = "both",
    minutes: Annotated[float, typer.Option(min=0, help="Of rounds, for each way.")] = 5.0,
    busy: Annotated[int, typer.Option(min=0, help="Cores kept busy by other processes.")] = 0,
    output: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path("runs"),
    smoke: Annotated[bool, typer.Option(help="One live round, which finds nothing.")] = False,
) -> None:
    """Plant a slowdown and check whether it is found, both ways."""
    if smoke:
        way, minutes = "live", 0.0
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
    # One core for each replica: less noise.
    shared = Shared.from_run(spec).with_cores(1)
    # Only an arm with a certificate has a verdict.
    subjects = [Subject(one, shared.spec_of(one)) for one in arms]
    certificates = certify_arms(console, subjects, folder)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        machine=machine_facts(),
        seed=1,
        rounds=0,
        arms=(*arms, planted, *twin((arm,))),
        shared=shared,
        certificates=(*certificates, certificates[-1].replace(arm=planted)),
        code_version=store.code_version(),
    )
    plain = launched(comparison.deadline_s, Observer())
    work_s = slow * _step_s(comparison, arm, folder, plain)
    console.print(f"{slow:.1%} of a step: {1000 * work_s:.2f} ms", highlight=False)
    ways = [
        Way(name, comparison.replace(live=name == "live"), folder / name)
        for name in (("live", "fresh") if way == "both" else (way,))
    ]
    with _kept_busy(busy):
        while (behind := min(ways, key=lambda each: each.spent_s)).spent_s <= 60 * minutes:
            behind.another_round(console, _slowed(planted, work_s))
    found = [_printed(console, each, planted, arm, slow) for each in ways]
    if not (all([*found, _agree(console, ways)]) or smoke):
        raise typer.Exit(1)


@contextmanager
def _kept_busy(cores: int) -> Iterator[None]:
    """So many other processes that only compute."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _step_s(comparison: Comparison, arm: Arm, folder: Path, executor: Executor) -> float:
    """Seconds that a step of the arm takes without more work, from one run before the rounds."""
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


def _slowed(planted: Arm, work_s: float) -> PlanOf:
    """The processes of an arm; those of the planted arm are told to do more."""

    def plan(arm: Arm, spec: RunSpec, run_dir: Path) -> Plan:
        made = make_plan(spec, run_dir=run_dir)
        env = {PLANTED: str(work_s if arm.label == planted.label else 0.0)}
        processes = [one.replace(env={**one.env, **env}) for one in made.processes]
        return made.replace(processes=tuple(processes))

    return plan


def _printed(console: Console, way: Way, planted: Arm, arm: Arm, slow: float) -> bool:
    """Print what a way has found; returns whether it is what was planted."""
    summary = summarize(way.comparison)
    found = summary.verdict_of(planted.label, arm.label)
    (same,) = summary.noise_floor
    sizes = {one.label: one.replicas for one in way.comparison.arms}
    widths = [
        (relative_width(one.ratio) / 2, f"{one.first} ÷ {one.second}")
        for one in summary.verdicts
        if sizes[one.first] == sizes[one.second]
    ]
    width, pair = max(widths)
    console.print(
        f"\n{way.name}: {way.comparison.rounds} rounds in {way.spent_s / 60:.1f} minutes; "
        f"every pair of one size within ±{width:.1%} ({pair})",
        highlight=False,
    )
    for verdict in (found, same):
        console.print(_line(verdict), highlight=False, markup=False)
    right = {"slower"} if slow and way.name == "live" else {"slower", "cannot tell"}
    return found.word in right and same.word == "cannot tell"


def _line(verdict: PairVerdict) -> str:
    ratio, interval = verdict.ratio.value, verdict.ratio.interval
    number = "no ratio" if ratio is None else f"{ratio:.4f}"
    if interval is not None:
        number += f" [{interval.low:.4f}, {interval.high:.4f}]"
    visible = verdict.smallest_visible
    much = "nothing" if visible is None or math.isinf(visible) else f"{visible:.1%}"
    seen = "" if visible is None else f"; could have seen {much}"
    return f"{verdict.first} ÷ {verdict.second}: {number}: {verdict.word}{seen} {verdict.reason}"


def _agree(console: Console, ways: list[Way]) -> bool:
    """Whether each pair's ratio is the same both ways, as far as the intervals tell.

    The difference of the logarithms must be below the root of the sum of the squares of both
    half-widths: two independent 95 % intervals.
    """
    if len(ways) < 2:
        return True
    first, second = (summarize(way.comparison) for way in ways)
    agree, judged = 0, 0
    for one in (*first.verdicts, *first.noise_floor):
        other = second.verdict_of(one.first, one.second)
        if not (one.ratio.interval and other.ratio.interval):
            continue
        apart = abs(math.log((one.ratio.value or 1) / (other.ratio.value or 1)))
        halves = [
            math.log(ratio.high / ratio.low) / 2
            for ratio in (one.ratio.interval, other.ratio.interval)
        ]
        judged += 1
        agree += apart <= math.hypot(*halves)
    console.print(f"\nthe ways agree in {agree} of {judged} pairs", highlight=False)
    return judged > 0 and agree >= math.floor(0.9 * judged)


if __name__ == "__main__":
    start(command)
