"""Predict four hosts from one and two, at several rates, and look how far off it was.

    python benchmarks/prediction.py                                  # about half an hour
    python benchmarks/prediction.py --models digits,large --rounds 1
    python benchmarks/prediction.py --rates 100mbit --rounds 1

Brings up a lab of its own (root), `bench1` … `bench4` with 0.4 of a core each, so that computing
does not depend on how many hosts are busy. For each model and rate: all-reduces between two hosts,
and runs of each stack at 1, 2 and 4 hosts (weak scaling; those at 1 do not depend on the rate and
are made once). The runs at 4 are for checking only. Prints a Markdown table; every run is kept, and
the folder of a model and rate can be given to `ringside predict`, with that of the rate as
`--communication`.
"""

import itertools
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.folders import new_folder
from collectives.link import measure_links
from collectives.place import Place
from collectives.run import measure_stacks
from compare.arms import arm_spec, parse_arms
from compare.experiment import Observer, launched, run_arm
from lab import Lab
from launch import Placement, Site
from launch.flags import spec_from_flags
from launch.preflight import check_hosts
from measure.machine import machine_facts
from measure.prediction import Asked, checks_of, predict
from measure.prediction_inputs import inputs_of, link_rate
from report.prediction import percent
from report.words import number
from specs import (
    Arm,
    Communication,
    Comparison,
    Host,
    RefusalError,
    Rounds,
    Run,
    RunSpec,
    Surroundings,
    unknown_name,
    write_whole,
)
from specs.prediction import Checked

LAB, HOSTS = "bench", 4
# Four hosts together leave a part of a machine of two cores to the kernel and to what starts them:
# else four would be slower than one, and not for the network.
CORES = 0.4
BACKENDS = (
    "horovod:controller=gloo,horovod:controller=mpi,multi_worker_mirrored:implementation=RING,"
    "parameter_server"
)
STACKS = ("mpi", "horovod gloo", "horovod mpi", "tf.distribute RING")
SIZES = tuple(2048 * 4**k for k in range(6))  # 2 KiB to 2 MiB: around both models' gradients
MOST, BUDGET_S = 20, 6.0
DEADLINE_S = 240.0
KNOWN, CHECKED = (1, 2), 4
# Workload, its options, examples of one replica in a step, epochs. The larger one has 1.2 MB of
# gradients and little to compute; steps of both are few, as one takes seconds at 10 Mbit/s.
MODELS: dict[str, tuple[str, list[str], int, int]] = {
    "digits": ("digits", [], 32, 4),
    "large": ("synthetic", ["width=128", "image_size=4", "examples=128"], 16, 4),
}


def command(
    rates: Annotated[str, typer.Option(help="Of each host's link.")] = "10mbit,100mbit,1gbit",
    models: Annotated[str, typer.Option(help="digits, large, or both.")] = "large",
    rounds: Annotated[int, typer.Option(min=1, help="Of every run.")] = 2,
    output: Annotated[Path, typer.Option(help="Folder in which its folder is made.")] = Path(
        "runs"
    ),
) -> None:
    """Bring up the lab, measure, predict, and print the table."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    chosen = [name.strip() for name in models.split(",")]
    for name in chosen:
        if name not in MODELS:
            raise unknown_name("model", name, MODELS)
    folder = new_folder(output, f"prediction-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    began = time.monotonic()
    lab = Lab.up(name=LAB, hosts=HOSTS, rate=rates.split(",")[0], cores=CORES)
    try:
        rows = measured(lab, chosen, rates.split(","), rounds, folder, console)
    finally:
        lab.down()
    text = markdown(rows)
    write_whole(folder / "table.md", text)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{(time.monotonic() - began) / 60:.0f} minutes; every run: {folder}")


Row = tuple[str, str, Checked]  # model, rate, and what came of it


def measured(
    lab: Lab, models: list[str], rates: list[str], rounds: int, folder: Path, console: Console
) -> list[Row]:
    """Everything at every rate."""
    hosts = tuple(Host(name=host.name, slots=1) for host in lab.hosts)
    placement = Placement(hosts=hosts, interface=lab.interface)
    check_hosts(placement, Site.here(), folder=folder)
    bases = {name: _base(name) for name in models}
    alone = {name: _runs(bases[name], (1,), rounds, placement, folder / name) for name in models}
    rows: list[Row] = []
    for rate in rates:
        for host in lab.hosts:
            lab.set_rate(host.name, rate)
        communication = _communication(placement, folder / rate)
        console.print(f"{rate}: all-reduces made", highlight=False)
        for name in models:
            place = folder / f"{name}-{rate}"
            runs = _runs(bases[name], (KNOWN[1], CHECKED), rounds, placement, place)
            comparison = _comparison(bases[name], (*alone[name], *runs), hosts, place)
            write_whole(place / "results.json", comparison.to_json())
            checks = predicted(comparison, communication)
            rows += [(name, rate, one) for one in checks]
            console.print(markdown([(name, rate, one) for one in checks]), markup=False)
    return rows


def predicted(comparison: Comparison, communication: Communication) -> tuple[Checked, ...]:
    """Four hosts from one and two, beside what four took."""
    known = tuple(arm.label for arm in comparison.arms if arm.replicas in KNOWN)
    rate = link_rate(communication)
    small = comparison.replace(
        arms=tuple(arm for arm in comparison.arms if arm.label in known),
        runs=tuple(run for run in comparison.runs if run.arm in known),
    )  # what is checked by is not among what is predicted from
    stacks, reasons = inputs_of(small, communication, rate)
    for label, reason in reasons.items():
        print(f"not predicted: {label}: {reason}", file=sys.stderr)
    asked = Asked(replicas=(CHECKED,), scaling="weak", measured_bits_per_s=rate)
    return checks_of(predict(list(stacks.values()), asked, small), comparison)


def markdown(rows: list[Row]) -> str:
    """Rate × stack: predicted, measured, error."""
    lines = [
        f"| Model | Rate | Stack | Predicted ×{CHECKED}, ms | 95 % interval | Measured, ms | Error "
        "| In it |",
        "|:---|---:|:---|---:|---:|---:|---:|:---|",
    ]
    for model, rate, one in rows:
        step = one.predicted
        ends = "–"
        if step.low_ms is not None and step.high_ms is not None:
            ends = f"{number(step.low_ms)} – {number(step.high_ms)}"
        held = {True: "yes", False: "no", None: "–"}[one.within]
        cells = (model, rate, one.label, number(step.step_ms), ends, number(one.measured_ms))
        lines.append(f"| {' | '.join(cells)} | {percent(one.error)} | {held} |")
    return "\n".join(lines) + "\n"


def _base(name: str) -> RunSpec:
    workload, options, batch, epochs = MODELS[name]
    spec = spec_from_flags(
        Surroundings(), backend="serial", workload=workload, workload_option=options,
        global_batch=batch, epochs=epochs, save="record",
    )  # fmt: skip
    return spec.replace(resources=spec.resources.replace(cores_per_replica=1, inter_op_threads=2))


def _arms(sizes: tuple[int, ...]) -> tuple[Arm, ...]:
    arms = parse_arms(BACKENDS, ",".join(map(str, sizes)))
    return tuple(arm for arm in arms if arm.backend != "serial")


def _runs(
    base: RunSpec, sizes: tuple[int, ...], rounds: int, placement: Placement, folder: Path
) -> tuple[Run, ...]:
    """Each stack at each size, round after round.

    Raises:
        RefusalError: a run did not complete.
    """
    executor = launched(DEADLINE_S, Observer(), placement)
    runs: list[Run] = []
    for number_of, arm in itertools.product(range(rounds), _arms(sizes)):
        run = run_arm(
            arm,
            arm_spec(base, arm, "weak", placement).replace(seed=1 + number_of),
            number=number_of,
            position=len(runs),
            folder=folder,
            executor=executor,
            placement=placement,
        )
        if not run.outcome.completed:
            raise RefusalError(
                "Every run must complete.", received=f"{arm.label}: {run.outcome}: {run.last_lines}"
            )
        runs.append(run)
    return tuple(runs)


def _communication(placement: Placement, folder: Path) -> Communication:
    """Between the first two hosts."""
    site = Site.here()
    pair = placement.replace(hosts=(placement.hosts or ())[:2])
    facts = check_hosts(pair, site, folder=folder.parent)
    place = Place.on_hosts(2, pair, facts)
    links = measure_links(pair, site, tools=("tcp",))
    communication = measure_stacks(
        STACKS,
        SIZES,
        place=Place(place.ranks, place.placement, place.cores, links),
        most=MOST,
        budget_s=BUDGET_S,
        folder=folder,
        command=shlex.join(["python", *sys.argv]),
    )
    write_whole(folder / "communication.json", communication.to_json())
    return communication


def _comparison(
    base: RunSpec, runs: tuple[Run, ...], hosts: tuple[Host, ...], folder: Path
) -> Comparison:
    rounds = 1 + max(run.round for run in runs)
    return Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=shlex.join(["python", *sys.argv]),
        machine=machine_facts(),
        seed=1,
        rounds=rounds,
        arms=_arms((*KNOWN, CHECKED)),
        runs=tuple(run.replace(position=place) for place, run in enumerate(runs)),
        base=base,
        scaling="weak",
        asked=Rounds(least=rounds, most=rounds),
        ended_because="All rounds that were asked for were made.",
        hosts=hosts,
        verify=False,
    )


if __name__ == "__main__":
    try:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(command)
        app(standalone_mode=True)
    except RefusalError as error:
        print(f"prediction.py: {error}", file=sys.stderr)
        sys.exit(2)
