"""Which arms a command is about: the flags that say so, and those of them that can run here."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch import Placement, Site
from launch.placement import THIS_MACHINE, cores_each
from launch.remote.host_checks import HostFacts, check_hosts
from ringside.compare.arms import (
    Scaling,
    arm_spec,
    default_backends,
    parse_arms,
    refuse_same_runs,
    shared_out,
)
from ringside.compare.available_arms import preflight
from ringside.compare.hosts import all_slots, fullest, used_hosts, with_room
from ringside.verify.certify import Subject
from ringside_core.specs import Arm, NotRun, RunSpec

BackendNames = Annotated[
    str | None,
    typer.Option(
        help="Names with commas between; options and settings after colons: a:b=1:c=2. Default: "
        "all; on several hosts those that reach over them.",
        show_default=False,
    ),
]
Sizes = Annotated[str | None, typer.Option(help="Numbers with commas between.")]
FolderName = Annotated[str | None, typer.Option(help="Of the folder. Default: workload, time.")]
OutputFolder = Annotated[Path, typer.Option(help="Folder in which it is made.")]

# Of a RunSpec's flags: what arms say themselves, and what one run alone has a use for.
NOT_OF_SEVERAL_ARMS = (
    "backend",
    "replicas",
    "option",
    "resume_from",
    "save",
    "ledger",
    "checkpoint_steps",
)


@dataclass(frozen=True)
class Chosen:
    """What was asked for, before anything was started or asked.

    Attributes:
        base: the run that all arms share.
        arms: those that have room.
        no_room: the others.
        placement: where they go.
        scaling: of the sizes.
    """

    base: RunSpec
    arms: tuple[Arm, ...]
    no_room: tuple[NotRun, ...] = ()
    placement: Placement = THIS_MACHINE
    scaling: Scaling = "strong"

    def spec_of(self, arm: Arm) -> RunSpec:
        """The run of an arm."""
        return arm_spec(self.base, arm, self.scaling, self.placement)


def choose_arms(
    spec: RunSpec,
    backends: str | None,
    replicas: str | None,
    scaling: Scaling = "strong",
    placement: Placement = THIS_MACHINE,
) -> Chosen:
    """The arms, and the run that they share.

    Raises:
        RefusalError: no such arm, a batch that does not divide among its replicas, the same run
            twice, or no room for it on the hosts.
    """
    named = backends or default_backends(on_hosts=bool(placement.names))
    # Between hosts one replica, from which scaling is told, and all that there is room for.
    sizes = f"1,{all_slots(placement)}" if placement.names else "1,2"
    arms, no_room = with_room(parse_arms(named, replicas or sizes), placement)
    base = spec.replace(resources=shared_out(spec.resources, arms))
    refuse_same_runs(base, arms, scaling, placement)  # and what cannot run, before any start
    if not placement.names:
        spec = base
    return Chosen(spec, arms, no_room, placement, scaling)


def on_hosts(chosen: Chosen, folder: Path) -> tuple[Chosen, dict[str, HostFacts]]:
    """Ask every host whether it is ready; each replica gets the cores that all of them have.

    Args:
        chosen: by its flags.
        folder: where the results will go.

    Returns:
        The choice with those cores and the interface that is used, and what the hosts said, by
        their names. Without a hostfile nobody is asked.

    Raises:
        RefusalError: some are not; all reasons at once.
    """
    placement = chosen.placement
    if not placement.names:
        return chosen, {}
    specs = [chosen.spec_of(arm) for arm in chosen.arms]
    found = ready_hosts(specs, placement, folder)
    cores = {name: one.cores for name, one in found.items()}
    each = cores_each(fullest(specs, placement), cores)
    interface = next((one.interface for one in found.values() if one.interface), None)
    ready = dataclasses.replace(
        chosen,
        base=chosen.base.replace(resources=shared_out(chosen.base.resources, chosen.arms, each)),
        placement=placement.replace(interface=interface),
    )
    return ready, found


def ready_hosts(
    specs: Sequence[RunSpec], placement: Placement, folder: Path
) -> dict[str, HostFacts]:
    """What each host says of itself that one of the runs uses.

    Raises:
        RefusalError: some are not ready; all reasons at once.
    """
    return check_hosts(used_hosts(specs, placement), Site.here(), folder=folder, specs=specs)


def able_here(console: Console, chosen: Chosen) -> tuple[list[Subject], tuple[NotRun, ...]]:
    """The arms that can run, with their runs; a line for each of the others.

    This machine is asked also where the runs go to others: those have the same versions
    (`check_hosts`), and what is ready is a matter of what is installed.
    """
    with console.status("looking at this machine…"):
        able, unable = preflight(chosen.arms, chosen.base)
    unable = (*chosen.no_room, *unable)
    for reason in unable:
        console.print(f"[yellow]not run[/] {reason.label}: {reason.reason}", highlight=False)
    return [Subject(arm, chosen.spec_of(arm)) for arm in able], unable
