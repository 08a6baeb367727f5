"""Predict four hosts from one and two at several rates, and compare with what four take.

    python benchmarks/prediction.py                  # about an hour and a half on a quiet machine
    python benchmarks/prediction.py --rounds 1       # about an hour
    python benchmarks/prediction.py --rates 100mbit --models small --backends horovod:controller=mpi

It brings up its own lab (as root), `bench1` … `bench4` with 0.4 of a core each, so that computing
does not depend on how many hosts are busy. For each model and rate it runs all-reduces between two
hosts, and each stack at 1, 2 and 4 hosts (weak scaling; the runs at 4 are only for the check, so
there is one of each). It prints each part of a Markdown table as soon as it is known, and the whole
table at the end or when it is interrupted. Every run is kept. The folder of a model and rate can be
given to `ringside predict`, with its `allreduce` as `--communication`.

Models: the gradients of `filling` take the link a second, but are at most 32 MB: 1.2 MB at
10 Mbit/s, 32 MB and a quarter of a second at 1 Gbit/s, because part of a core is slow to apply
more. Such hosts compute and wait in steps of the kernel's quota, 10 ms. So this model shows what
the network does, and that is what is predicted. `small` has 1.2 MB at every rate; at the faster
rates mostly the hosts decide.
"""

import itertools
import math
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console

from benchmarks.starting import start
from launch import Site
from launch.flags import spec_from_flags
from launch.remote.host_checks import check_hosts, machine_of
from ringside.cli.common import new_folder
from ringside.cli.stopping import ending_on_signals
from ringside.collectives.link import measure_links
from ringside.collectives.measurement import Place, measure_stacks
from ringside.compare.arms import parse_arms
from ringside.compare.experiment import launched, run_arm
from ringside.compare.observer import Observer
from ringside.lab import Lab, parse_rate
from ringside.predict.conditions import link_notes
from ringside.predict.inputs import inputs_of, link_rate
from ringside.predict.pages import error_percent
from ringside.predict.predict import Asked, checks_of, predict
from ringside.predict.prediction import Checked
from ringside_core.specs import (
    Arm,
    Communication,
    Comparison,
    Host,
    Placement,
    RefusalError,
    Rounds,
    Run,
    Shared,
    Surroundings,
    unknown_name,
    write_whole,
)
from ringside_core.text import number

LAB, HOSTS = "bench", 4
# Four hosts must leave part of a machine of two cores to the kernel and to what starts them.
# Otherwise four would be slower than one, and not because of the network.
CORES = 0.4
# Without options Open MPI fills one direction of a link at a time, and erratically
# (HorovodOptions). The limit is above n/4 at the slower rates. Larger messages that nobody awaits
# yet are copied once more; with part of a core that takes longer than an announcement at 1 Gbit/s.
BACKENDS = (
    "horovod:controller=gloo,"
    "horovod:controller=mpi:btl_tcp_flags=9:btl_tcp_eager_limit=4194304"
    ":coll_tuned_allreduce_algorithm=ring,"
    "multi_worker_mirrored:implementation=RING,parameter_server"
)
# All-reduces of 2 KiB, for the latency, and of these parts of the kernels' gradients. The largest
# is more than all gradients of a model, with its biases and last layer.
SMALLEST, PARTS = 2048, (1 / 16, 1 / 4, 1 / 2, 1.1)
BUDGET_S = 3.0
DEADLINE_S = 240.0
KNOWN, CHECKED = (1, 2), 4
# The workload `synthetic` has about 18·width² weights; images of 2 pixels keep computing small.
WEIGHTS, WEIGHT_BYTES, SMALL_WIDTH, MOST_BYTES = 18, 4, 128, 32e6
BATCH, STEPS, EPOCHS = 4, 6, 3  # of each replica; in an epoch at four; the first epoch is not used
MODELS = ("filling", "small")


def command(
    rates: Annotated[str, typer.Option(help="Rates of each host's link.")] = "10mbit,100mbit,1gbit",
    models: Annotated[str, typer.Option(help="filling, small, or both.")] = "filling",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the runs at 1 and 2 hosts.")] = 2,
    backends: Annotated[
        str, typer.Option(help="As for `ringside compare`, with settings.")
    ] = BACKENDS,
    output: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path("runs"),
) -> None:
    """Bring up the lab, measure, predict, and print the table."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    chosen = [name.strip() for name in models.split(",")]
    for name in chosen:
        if name not in MODELS:
            raise unknown_name("model", name, MODELS)
    for rate in rates.split(","):
        parse_rate(rate)
    folder = new_folder(output, f"prediction-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    began = time.monotonic()
    rows: list[Row] = []
    with ending_on_signals():
        lab = Lab.up(name=LAB, hosts=HOSTS, rate=rates.split(",")[0], cores=CORES)
        try:
            bench = Bench.of(lab, backends, rounds, folder)
            for found in measured(lab, bench, chosen, rates.split(",")):
                console.print(markdown(found), highlight=False, markup=False, soft_wrap=True)
                rows += found
        finally:
            lab.down()
            _print_all(rows, folder, console)
    console.print(f"{(time.monotonic() - began) / 60:.0f} minutes; every run: {folder}")


Row = tuple[str, str, Checked]  # model, rate, and what came of it


@dataclass(frozen=True)
class Bench:
    """What is the same for every model and rate.

    Attributes:
        backends: with their settings, as `ringside compare --backends` has them.
        rounds: of the runs at one and two replicas.
    """

    placement: Placement
    backends: str
    rounds: int
    folder: Path

    @classmethod
    def of(cls, lab: Lab, backends: str, rounds: int, folder: Path) -> Self:
        """One slot on each host of the lab."""
        hosts = tuple(Host(name=host.name, slots=1) for host in lab.hosts)
        placement = Placement(hosts=hosts, interface=lab.interface)
        check_hosts(placement, Site.here(), folder=folder)
        return cls(placement, backends, rounds, folder)

    def arms(self, *sizes: int) -> tuple[Arm, ...]:
        """Every stack at these sizes."""
        arms = parse_arms(self.backends, ",".join(map(str, sizes)))
        return tuple(arm for arm in arms if arm.backend != "serial")

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks whose all-reduces are needed; bare MPI is one of them, for its latency."""
        named = (arm.options.stack for arm in self.arms(1))
        return ("mpi", *(name for name in named if name and name != "parameter_server"))


def _print_all(rows: list[Row], folder: Path, console: Console) -> None:
    if rows:
        write_whole(folder / "table.md", markdown(rows))
        console.print(markdown(rows), highlight=False, markup=False, soft_wrap=True)


def measured(lab: Lab, bench: Bench, models: list[str], rates: list[str]) -> Iterator[list[Row]]:
    """Run everything, one rate and model after the other; a failure ends it."""
    for rate, name in itertools.product(rates, models):
        lab.set_rate(None, rate)
        place = bench.folder / f"{name}-{rate}"
        width = SMALL_WIDTH if name == "small" else filling_width(parse_rate(rate))
        shared = _shared(width)
        communication = _communication(bench, width, place / "allreduce")
        alone = _runs(bench, shared, KNOWN[0], bench.rounds, place / "alone")
        two = _runs(bench, shared, KNOWN[1], bench.rounds, place)
        four = _runs(bench, shared, CHECKED, 1, place / "check")
        comparison = _comparison(bench, shared, (*alone, *two, *four), communication, place)
        write_whole(place / "results.json", comparison.to_json())
        yield [(name, rate, one) for one in predicted(comparison, communication)]


def predicted(comparison: Comparison, communication: Communication) -> tuple[Checked, ...]:
    """Predict four hosts from one and two, and set what four took beside it."""
    known = tuple(arm.label for arm in comparison.arms if arm.replicas in KNOWN)
    rate = link_rate(communication, comparison)
    small = comparison.replace(
        arms=tuple(arm for arm in comparison.arms if arm.label in known),
        runs=tuple(run for run in comparison.runs if run.arm in known),
    )  # the runs of the check must not be used for the prediction
    link_notes(small, communication)
    stacks, reasons = inputs_of(small, communication, rate)
    for label, reason in reasons.items():
        print(f"not predicted: {label}: {reason}", file=sys.stderr)
    asked = Asked(replicas=(CHECKED,), scaling="weak", measured_bits_per_s=rate)
    found, _ = predict(list(stacks.values()), asked, small)
    return checks_of(found, comparison)


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
        lines.append(f"| {' | '.join(cells)} | {error_percent(one.error)} | {held} |")
    return "\n".join(lines) + "\n"


def filling_width(bits_per_s: int) -> int:
    """Width of the model whose gradients take the link one second, or are MOST_BYTES."""
    return round(math.sqrt(min(bits_per_s / 8, MOST_BYTES) / WEIGHT_BYTES / WEIGHTS))


def _shared(width: int) -> Shared:
    examples = CHECKED * BATCH * STEPS
    spec = spec_from_flags(
        Surroundings(), backend="serial", workload="synthetic", global_batch=BATCH, epochs=EPOCHS,
        workload_option=[f"width={width}", "image_size=2", f"examples={examples}"], save="record",
    )  # fmt: skip
    return Shared.from_run(spec, "weak").with_cores(1)


def _runs(bench: Bench, shared: Shared, size: int, rounds: int, folder: Path) -> tuple[Run, ...]:
    """Run each stack at one size, round after round.

    Raises:
        RefusalError: a run did not complete.
    """
    executor = launched(DEADLINE_S, Observer(), bench.placement)
    runs: list[Run] = []
    for number_of, arm in itertools.product(range(rounds), bench.arms(size)):
        run = run_arm(
            arm,
            shared.spec_of(arm, bench.placement).replace(seed=1 + number_of),
            number=number_of,
            position=len(runs),
            folder=folder,
            executor=executor,
            placement=bench.placement,
        )
        if not run.outcome.completed:
            raise RefusalError(
                "Every run must complete.", received=f"{arm.label}: {run.outcome}: {run.last_lines}"
            )
        runs.append(run)
    return tuple(runs)


def sizes_of(width: int) -> tuple[int, ...]:
    """Bytes of the all-reduces from which a model of this width is predicted."""
    return (SMALLEST, *(round(part * WEIGHTS * width**2) * WEIGHT_BYTES for part in PARTS))


def _communication(bench: Bench, width: int, folder: Path) -> Communication:
    """Time all-reduces between the first two hosts, of parts of a model's gradients."""
    site = Site.here()
    pair = bench.placement.replace(hosts=(bench.placement.hosts or ())[:2])
    facts = check_hosts(pair, site, folder=bench.folder)
    links = measure_links({name: facts[name].address for name in pair.names}, site)
    *_, communication = measure_stacks(
        bench.stacks,
        sizes_of(width),
        Place(2, pair, facts, links),
        BUDGET_S,
        folder=folder,
        command=shlex.join(["python", *sys.argv]),
    )
    write_whole(folder / "communication.json", communication.to_json())
    return communication


def _comparison(
    bench: Bench, shared: Shared, runs: tuple[Run, ...], communication: Communication, folder: Path
) -> Comparison:
    rounds = 1 + max(run.round for run in runs)
    return Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=shlex.join(["python", *sys.argv]),
        machine=machine_of(bench.placement),
        seed=1,
        rounds=rounds,
        arms=bench.arms(*KNOWN, CHECKED),
        runs=tuple(run.replace(position=place) for place, run in enumerate(runs)),
        shared=shared,
        asked=Rounds(least=rounds, most=rounds),
        ended_because="All rounds that were asked for were made.",
        hosts=bench.placement.hosts or (),
        interface=bench.placement.interface,
        links=communication.links,  # measured at this rate, before these runs
        verify=False,
    )


if __name__ == "__main__":
    start(command)
