"""Predict four replicas from one and two, and compare with what four take.

    ringside lab up --hosts 4 --rate 100mbit --cores 0.4
    python benchmarks/prediction.py --hostfile hostfiles/lab4

It runs `ringside allreduce` between two hosts and `ringside compare --fresh` at 1, 2 and 4
replicas. The runs of 4 are not used for the prediction. The gradients of the default workload take
a link of 100 Mbit/s a second, so it is mostly the network that is predicted.
"""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.starting import start
from ringside.cli.common import new_folder
from ringside.comparison.arms import parse_arms
from ringside.predict.prediction import predict, stack_inputs
from ringside.report.source import read_comparison
from ringside_core.specs import Communication, Comparison, write_whole
from ringside_core.text import number

CHECKED = 4
# `synthetic` has about 18·width² weights; images of 2 pixels keep computing small.
WORKLOAD = "--workload synthetic -w width=416 -w image_size=2 -w examples=384 --global-batch 4"


def command(
    hostfile: Annotated[
        Path | None, typer.Option(help="Four hosts with one slot each. Default: this machine.")
    ] = None,
    backends: Annotated[
        str, typer.Option(help="As for `ringside compare`, with settings.")
    ] = "horovod:controller=gloo,multi_worker_mirrored:implementation=RING",
    workload: Annotated[str, typer.Option(help="Flags of `ringside compare`.")] = WORKLOAD,
    launches: Annotated[int, typer.Option(min=1)] = 3,
    output: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path("runs"),
) -> None:
    """Measure, predict, and print a Markdown table."""
    folder = new_folder(output, f"prediction-{datetime.now():%Y%m%d-%H%M%S}")
    place = ["--output", str(folder), *(["--hostfile", str(hostfile)] if hostfile else [])]
    stacks = {arm.options.stack for arm in parse_arms(backends, "1") if arm.options.stack}
    ringside("allreduce", "--replicas", "2", "--stacks", ",".join(sorted(stacks | {"mpi"})),
             "--name", "pair", *place)  # fmt: skip
    ringside("compare", "--backends", backends, "--replicas", f"1,2,{CHECKED}", "--scaling", "weak",
             "--fresh", "--no-verify", "--all-arms", "--launches", str(launches), "--name", "runs",
             *workload.split(),
             *place)  # fmt: skip
    pair = folder / "pair" / "communication.json"
    table = markdown(
        read_comparison(folder / "runs"),
        Communication.from_json(pair.read_text(encoding="utf-8"), origin=str(pair)),
    )
    write_whole(folder / "table.md", table)
    print(f"\n{table}\nevery run: {folder}")


def ringside(*arguments: str) -> None:
    """Run a command of Ringside; its failure ends the benchmark."""
    subprocess.run([sys.executable, "-m", "ringside.cli.main", *arguments], check=True)


def markdown(comparison: Comparison, communication: Communication) -> str:
    """Predicted and measured steps at CHECKED replicas, a row for each stack."""
    small = tuple(arm for arm in comparison.arms if arm.replicas != CHECKED)
    known = comparison.replace(
        arms=small,
        finalists=tuple(arm.label for arm in small if arm.label in comparison.finalists),
        runs=tuple(run for run in comparison.runs if run.spec.topology.num_replicas != CHECKED),
    )
    stacks, reasons = predict(known, communication, [CHECKED])
    arms = {arm.group: arm for arm in comparison.arms if arm.replicas == CHECKED}
    lines = [
        f"| Stack | Predicted ×{CHECKED}, ms | 95 % interval | Measured, ms | Error | In it |",
        "|:---|---:|---:|---:|---:|:---|",
    ]
    for stack in stacks:
        seconds = stack_inputs(comparison, communication, arms[stack.label]).known
        measured, predicted = 1000 * float(seconds.mean()), stack.steps_ms[CHECKED]
        ends, within = "–", "–"
        if interval := predicted.interval:
            ends = f"{number(interval.low)} – {number(interval.high)}"
            within = "yes" if interval.low <= measured <= interval.high else "no"
        guess = predicted.value or 0.0
        cells = (stack.label, number(guess), ends, number(measured))
        lines.append(f"| {' | '.join(cells)} | {100 * (guess / measured - 1):+.1f} % | {within} |")
    lines += [f"\nNot predicted: {stack}: {reason}" for stack, reason in reasons.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    start(command)
