"""What will be compared: arms, hosts and circumstances, before anything is measured."""

import dataclasses
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from launch import LauncherName
from launch.placement import cores_each
from launch.remote.host_checks import HostFacts, machine_of
from ringside.certificates import store
from ringside.certificates.processes import Start
from ringside.certificates.subject import Subject
from ringside.collectives.stacks import obstacle
from ringside.comparison.arms import (
    cores_here,
    default_backends,
    of_default_comparison,
    parse_arms,
    refuse_same_runs,
    too_few_cores,
    twin,
)
from ringside.comparison.available_arms import available
from ringside.comparison.experiment import keep
from ringside.comparison.hosts import (
    all_slots,
    fullest,
    kept_communication,
    links_between,
    ready_hosts,
    with_room,
)
from ringside.comparison.live import refuse_without_memory
from ringside.stats.breakdown_arms import breakdown_arms
from ringside.stats.step_times import expected_processes
from ringside_core.specs import (
    REFERENCE,
    THIS_MACHINE,
    Arm,
    Circumstances,
    Comparison,
    NotRun,
    Placement,
    RunSpec,
    Shared,
)
from ringside_core.workloads.registry import fit_asked, own_file


@dataclass(frozen=True)
class Chosen:
    """What was asked for, before anything was started or asked.

    Attributes:
        shared: what all arms share.
        arms: those that the hosts have room for.
        no_room: the others.
        placement: where the arms run.
    """

    shared: Shared
    arms: tuple[Arm, ...]
    no_room: tuple[NotRun, ...] = ()
    placement: Placement = THIS_MACHINE

    def spec_of(self, arm: Arm) -> RunSpec:
        """The run of an arm."""
        return self.shared.spec_of(arm, self.placement)


def choose_arms(
    shared: Shared,
    backends: str | None,
    replicas: str | None,
    placement: Placement = THIS_MACHINE,
    *,
    few: bool = False,
) -> Chosen:
    """The arms that the flags name, and what they share.

    Args:
        shared: what all arms share.
        backends: as typed; None: the defaults.
        replicas: as typed; None: the defaults.
        placement: where the arms run.
        few: without any names, only the arms of the default comparison.

    Raises:
        RefusalError: an unknown arm, the same run twice,
            or no room on the hosts.
    """
    named = backends or default_backends(on_hosts=bool(placement.names))
    # Between hosts: one replica, which scaling is measured against, and all that have room.
    sizes = f"1,{all_slots(placement)}" if placement.names else "1,2"
    wanted = parse_arms(named, replicas or sizes)
    if few and backends is None and replicas is None:
        wanted = of_default_comparison(wanted)
    arms, no_room = with_room(wanted, placement)
    with_cores = shared.with_cores(cores_here(arms))
    refuse_same_runs(with_cores, arms, placement)  # also refuses specs that cannot run
    # Cores of hosts are known once the hosts are asked, see `on_hosts`.
    return Chosen(shared if placement.names else with_cores, arms, no_room, placement)


def only_named(chosen: Chosen, backends: str) -> Chosen:
    """The choice without serial, unless it is named: only certificates need it.

    Args:
        chosen: by `choose_arms`.
        backends: as typed.
    """
    if REFERENCE in [one.strip() for one in backends.split(",")]:
        return chosen
    arms = tuple(arm for arm in chosen.arms if arm.group != REFERENCE)
    return dataclasses.replace(chosen, arms=arms)


def on_hosts(chosen: Chosen, folder: Path) -> tuple[Chosen, dict[str, HostFacts]]:
    """Ask every host whether it is ready, and give each replica cores that every host has.

    Without a hostfile no host is asked.

    Returns:
        The choice with those cores and the network interface, and the facts of each host by name.

    Raises:
        RefusalError: some hosts are not ready; the message has all reasons.
    """
    placement = chosen.placement
    if not placement.names:
        return chosen, {}
    specs = [chosen.spec_of(arm) for arm in chosen.arms]
    found = ready_hosts(specs, placement, folder)
    each = cores_each(fullest(specs, placement), {name: one.cores for name, one in found.items()})
    interface = next((one.interface for one in found.values() if one.interface), None)
    ready = dataclasses.replace(
        chosen,
        shared=chosen.shared.with_cores(each),
        placement=placement.replace(interface=interface),
    )
    return ready, found


def startable(chosen: Chosen, launcher: LauncherName, folder: Path) -> tuple[Chosen, Start]:
    """The choice on hosts that are ready, and how its processes are started.

    Raises:
        RefusalError: an arm that the launcher cannot start, or a host that is not ready.
    """
    for arm in chosen.arms:
        Start(chosen.placement, launcher).plan(chosen.spec_of(arm), folder)
    ready, _ = on_hosts(chosen, folder)
    return ready, Start(ready.placement, launcher)


def able_here(console: Console, chosen: Chosen) -> tuple[list[Subject], tuple[NotRun, ...]]:
    """The arms that can run here, with their runs; prints a line for each of the others.

    This machine is asked even if the runs go to other hosts: `check_hosts` makes sure that those
    have the same versions, and what can run depends on what is installed.
    """
    with console.status("looking at this machine…"):
        elsewhere = bool(chosen.placement.names)
        able, unable = available(chosen.arms, chosen.shared, elsewhere=elsewhere)
    unable = (*chosen.no_room, *unable)
    for reason in unable:
        console.print(f"[yellow]not run[/] {reason.label}: {reason.reason}", highlight=False)
    return [Subject(arm, chosen.spec_of(arm)) for arm in able], unable


def begin(
    console: Console,
    chosen: Chosen,
    *,
    facts: dict[str, HostFacts],
    folder: Path,
    why: bool = False,
    live: bool = True,
    **asked: Any,
) -> Comparison:
    """Write a comparison to disk, with the arms that can run here and no runs yet.

    `asked`: fields of Comparison that the command line gives.
    """
    placement = chosen.placement
    subjects, unable = able_here(console, chosen)
    able = tuple(subject.arm for subject in subjects)
    machine = machine_of(placement)
    if live and machine.gpus:  # TensorFlow takes the whole memory of a GPU
        console.print("GPUs: each run has them alone, so the arms run one after the other")
        live = False
    if not live or asked["asked"].all_arms:  # else it would cost passes that the contenders need
        able += twin(able)
    each = chosen.shared.resources.cores_per_replica
    if able and each and not placement.names and (few := too_few_cores(able, each)):
        console.print(f"[yellow]too few cores[/]: {few}", highlight=False)
    if why:
        able += _for_breakdown(console, able, chosen.shared)
    if live and not placement.names:
        specs = [chosen.shared.spec_of(arm, placement) for arm in able]
        refuse_without_memory([expected_processes(spec)[1] for spec in specs])
    program = (chosen.shared.workload, chosen.shared.workload_options, chosen.shared.data_dir)
    with console.status("reading the data…"):
        speed = fit_asked(*program, about="speed")
    addresses = {name: one.address for name, one in facts.items()}
    links = links_between(console, placement, addresses)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        machine=machine,
        rounds=0,
        arms=able,
        not_run=unable,
        shared=chosen.shared,
        communication=kept_communication(placement, able, facts, links),
        live=live,
        code_version=store.code_version(),
        circumstances=circumstances(chosen.shared),
        **{**dict(placement), "hosts": placement.hosts or ()},
        addresses=addresses,
        links=links,
        input_examples_s=speed["input_examples_s"],
        **asked,
    )
    keep(comparison, folder)
    return comparison


def _for_breakdown(console: Console, arms: tuple[Arm, ...], shared: Shared) -> tuple[Arm, ...]:
    """The breakdown arms that can run here: independent replicas need MPI to begin together."""
    needed = breakdown_arms(arms, shared)
    if why_not := obstacle("mpi"):
        console.print(f"[yellow]no independent replicas[/]: {why_not}", highlight=False)
        return tuple(arm for arm in needed if arm.capabilities.one_model)
    return needed


def circumstances(shared: Shared) -> Circumstances:
    """What the runs of this process depend on besides the machine, see Circumstances."""
    orders = store.orders()
    text = "\n".join(f"{name}={digest}" for name, digest in orders.items())
    files = filter(None, (own_file(shared.workload), shared.data_dir))
    relative = not all(Path(file).is_absolute() for file in files)
    return Circumstances(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        variables=tuple(orders),
        variables_sha256=hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest(),
        folder=os.getcwd() if relative else "",
    )
