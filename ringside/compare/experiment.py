"""An experiment: choose its arms, begin it, and run every arm in fresh processes, in rounds."""

import dataclasses
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from launch import Plan, execute, make_plan
from launch.placement import cores_each
from launch.remote.host_checks import HostFacts, machine_of
from ringside.compare import durations
from ringside.compare.arms import (
    cores_here,
    default_backends,
    parse_arms,
    refuse_same_runs,
    too_few_cores,
    twin,
)
from ringside.compare.available_arms import available
from ringside.compare.budget import State, round_order, spent_s, state_of, why_end
from ringside.compare.hosts import (
    all_slots,
    fullest,
    kept_communication,
    links_between,
    ready_hosts,
    used_hosts,
    with_room,
)
from ringside.compare.hosts_load import HostsWatch
from ringside.compare.live import LiveObserver, LiveRun, live_round, refuse_without_memory
from ringside.stats.breakdown import breakdown_arms
from ringside.stats.rounds import disturbance
from ringside.verify import store
from ringside.verify.certify import Subject
from ringside_core.readings.cores import usable_cores
from ringside_core.readings.load import LoadWatch, cores_of
from ringside_core.specs import (
    LOAD_FILE,
    THIS_MACHINE,
    Arm,
    Circumstances,
    Comparison,
    Execution,
    Load,
    MachineFacts,
    NotRun,
    Placement,
    RefusalError,
    Rounds,
    Run,
    RunSpec,
    Shared,
    write_whole,
)
from ringside_core.text import file_name

RESULTS = "results.json"
LONGEST_NAME = 80  # characters of a label in the name of a folder
# The processes that run an arm in its own folder.
PlanOf = Callable[[Arm, RunSpec, Path], Plan]
# Runs one arm in its own folder; returns what became of it and what else the machine did.
Executor = Callable[[Arm, RunSpec, Path], tuple[Execution, Load | None]]


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
) -> Chosen:
    """The arms that the flags name, and what they share.

    Raises:
        RefusalError: an unknown arm, a batch that the replicas cannot divide, the same run twice,
            or no room on the hosts.
    """
    named = backends or default_backends(on_hosts=bool(placement.names))
    # Between hosts: one replica, which scaling is measured against, and all that have room.
    sizes = f"1,{all_slots(placement)}" if placement.names else "1,2"
    arms, no_room = with_room(parse_arms(named, replicas or sizes), placement)
    with_cores = shared.with_cores(cores_here(arms))
    refuse_same_runs(with_cores, arms, placement)  # also refuses specs that cannot run
    # Cores of hosts are known once the hosts are asked, see `on_hosts`.
    return Chosen(shared if placement.names else with_cores, arms, no_room, placement)


def on_hosts(chosen: Chosen, folder: Path) -> tuple[Chosen, dict[str, HostFacts]]:
    """Ask every host whether it is ready, and give each replica cores that every host has.

    Without a hostfile no host is asked.

    Args:
        chosen: what the flags ask for.
        folder: where the results will go.

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


def able_here(console: Console, chosen: Chosen) -> tuple[list[Subject], tuple[NotRun, ...]]:
    """The arms that can run here, with their runs; prints a line for each of the others.

    This machine is asked even if the runs go to other hosts: `check_hosts` makes sure that those
    have the same versions, and what can run depends on what is installed.
    """
    with console.status("looking at this machine…"):
        able, unable = available(chosen.arms, chosen.shared)
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
    command: str,
    asked: Rounds,
    order_seed: int,
    deadline_s: float,
    verify: bool,
    why: bool,
    live: bool,
    trials_each: int,
) -> Comparison:
    """Write a comparison to disk, with the arms that can run here and no runs yet."""
    placement = chosen.placement
    subjects, unable = able_here(console, chosen)
    able = tuple(subject.arm for subject in subjects)
    able += twin(able)
    each = chosen.shared.cores_per_replica
    if able and each and not placement.names and (few := too_few_cores(able, each)):
        console.print(f"[yellow]too few cores[/]: {few}", highlight=False)
    if why:
        able += breakdown_arms(able, chosen.shared)
    machine = machine_of(placement)
    live = live and not _needs_whole_devices(console, machine)
    if live and not placement.names:
        plans = planned(placement)
        specs = [(arm, chosen.shared.spec_of(arm, placement)) for arm in able]
        refuse_without_memory([len(plans(arm, spec, folder).expects) for arm, spec in specs])
    addresses = {name: one.address for name, one in facts.items()}
    links = links_between(console, placement, addresses)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=command,
        machine=machine,
        seed=order_seed,
        rounds=0,
        arms=able,
        not_run=unable,
        detection=store.find_matrix(placement),
        shared=chosen.shared,
        asked=asked,
        communication=kept_communication(placement, able, facts, links),
        verify=verify,
        trials_each=trials_each,
        deadline_s=deadline_s,
        live=live,
        code_version=store.code_version(),
        circumstances=circumstances(chosen.shared),
        hosts=placement.hosts or (),
        interface=placement.interface,
        servers_on=placement.servers_on,
        oversubscribe=placement.oversubscribe,
        addresses=addresses,
        links=links,
    )
    keep(comparison, folder)
    return comparison


def _needs_whole_devices(console: Console, machine: MachineFacts) -> bool:
    """Whether arms cannot be live side by side: TensorFlow takes the whole memory of a GPU."""
    if machine.gpus:
        console.print("GPUs: each run has them alone, so the arms run one after the other")
    return bool(machine.gpus)


def circumstances(shared: Shared) -> Circumstances:
    """What the runs of this process depend on besides the machine, see Circumstances."""
    orders = store.orders()
    told = "\n".join(f"{name}={digest}" for name, digest in orders.items())
    return Circumstances(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        variables=tuple(orders),
        variables_sha256=hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest(),
        folder=os.getcwd() if _names_relative_files(shared) else "",
    )


def _names_relative_files(shared: Shared) -> bool:
    """Whether a file name is relative to the working directory."""
    code = [shared.workload, shared.pipeline.filter or ""]
    if any(".py:" in name and not Path(name).is_absolute() for name in code):
        return True
    return shared.data_dir is not None and not Path(shared.data_dir).is_absolute()


class Observer(LiveObserver):
    """Is told what happens. This one ignores it."""

    def end(self, run: Run, disturbed: str) -> None:
        """A run is over; `disturbed` says what disturbed it, and is empty if nothing did."""

    def round_end(self, comparison: Comparison, state: State) -> None:
        """A whole round is made."""


def planned(placement: Placement = THIS_MACHINE) -> PlanOf:
    """Arms are started by the launchers of their backends."""
    return lambda arm, spec, run_dir: make_plan(spec, run_dir=run_dir, placement=placement)


def launched(
    deadline_s: float,
    observer: Observer,
    placement: Placement = THIS_MACHINE,
    plan_of: PlanOf | None = None,
) -> Executor:
    """An executor that starts arms by their launchers and watches what else their hosts do."""
    plan_of = plan_of or planned(placement)

    def executed(arm: Arm, spec: RunSpec, run_dir: Path) -> Execution:
        return execute(
            plan_of(arm, spec, run_dir), deadline_s=deadline_s, on_progress=observer.step
        )

    def here(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        with LoadWatch(cores_of(spec, usable_cores())) as watch:
            execution = executed(arm, spec, run_dir)
        return execution, watch.load

    def on_hosts(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        # Only hosts that the run uses: another host of the hostfile may be down.
        watch = HostsWatch(used_hosts([spec], placement).names)
        execution = executed(arm, spec, run_dir)
        return execution, watch.load(execution)

    return on_hosts if placement.names else here


def run_rounds(
    comparison: Comparison,
    *,
    folder: Path,
    executor: Executor,
    observer: Observer,
    plan_of: PlanOf | None = None,
) -> Comparison:
    """Make rounds until `why_end` finds a reason to stop. Each run is on disk when it ends.

    A round that an interrupted call left half made is completed first.

    Args:
        comparison: with its arms, and with the runs of an earlier call that was interrupted.
        folder: of the comparison.
        executor: runs an arm alone.
        observer: is told what happens.
        plan_of: the processes of an arm in a live round; None: as its launcher starts it.

    Raises:
        RefusalError: the code changed while rounds were made. A run that may have used other code
            than was certified is not kept.
    """
    began, before_s = time.monotonic(), spent_s(comparison)
    keep(comparison, folder)
    _refuse_changes(comparison)
    if comparison.runs and len(still_to_run(comparison)[1]) == len(comparison.arms):
        comparison = _after_round(comparison, before_s, folder, observer)  # it may be the last
    while not comparison.ended_because:
        number, due = still_to_run(comparison)
        if comparison.live:
            plans = plan_of or planned(comparison.placement)
            comparison = _live_round(comparison, number, due, folder, plans, observer)
        else:
            comparison = _fresh_round(comparison, number, due, folder, executor, observer)
        clock_s = before_s + time.monotonic() - began  # includes the time between the runs
        comparison = _after_round(comparison, clock_s, folder, observer)
    return comparison


def _fresh_round(
    comparison: Comparison,
    number: int,
    due: Sequence[Arm],
    folder: Path,
    executor: Executor,
    observer: Observer,
) -> Comparison:
    """Run each arm alone, one after the other."""
    for arm in due:
        observer.start(arm.label)
        run = run_arm(
            arm,
            comparison.spec_of(arm, number),
            number=number,
            position=len(comparison.runs),
            folder=folder,
            executor=executor,
            placement=comparison.placement,
        )
        comparison = _with_run(comparison, run, folder, observer)
    return comparison


def _live_round(
    comparison: Comparison,
    number: int,
    due: Sequence[Arm],
    folder: Path,
    plan_of: PlanOf,
    observer: Observer,
) -> Comparison:
    """Run all arms beside each other, in turns. In the first round each is started alone."""
    begun = len(comparison.runs)
    live = []
    for position, arm in enumerate(due, begun):
        run_dir = _new_run_dir(folder, "runs", position, arm)
        plan = plan_of(arm, comparison.spec_of(arm, number), run_dir)
        live.append(LiveRun(arm.label, plan))
    at_once = 1 if number == 0 else len(os.sched_getaffinity(0))
    live_round(
        live,
        at_once=at_once,
        seed=f"{comparison.seed}/{number}",
        deadline_s=comparison.deadline_s,
        observer=observer,
    )
    for position, one in enumerate(live, begun):
        run = Run(
            **dict(one.execution),
            arm=one.label,
            round=number,
            position=position,
            spec=one.plan.spec,
            log_dir=os.fspath((Path(one.plan.run_dir) / "logs").relative_to(folder)),
            load=one.load,
            started_alone=at_once == 1,
            blocks=tuple(one.blocks),
        )
        if run.load is not None:
            write_whole(Path(one.plan.run_dir) / LOAD_FILE, run.load.to_json())
        if run.outcome.completed:
            durations.remember(run.spec, run.wall_s, comparison.placement)
        comparison = _with_run(comparison, run, folder, observer)
    return comparison


def _with_run(comparison: Comparison, run: Run, folder: Path, observer: Observer) -> Comparison:
    """The comparison with one more run, on disk."""
    _refuse_changes(comparison)  # before it is kept
    comparison = comparison.with_run(run)
    keep(comparison, folder)
    observer.end(run, disturbance(run))
    return comparison


def _after_round(
    comparison: Comparison, clock_s: float, folder: Path, observer: Observer
) -> Comparison:
    """Decide after a whole round whether it was the last one, and why."""
    state = state_of(comparison, spent_s=max(clock_s, spent_s(comparison)))
    comparison = comparison.replace(ended_because=why_end(comparison.asked, state))
    keep(comparison, folder)
    observer.round_end(comparison, state)
    return comparison


def _refuse_changes(comparison: Comparison) -> None:
    """Refuse to go on with other code than the code that it began with and that was certified."""
    if why := store.changed_since(comparison.certificates, comparison.code_version):
        raise RefusalError(
            "Nothing may change while rounds are made.",
            received=why,
            advice="Start a new comparison.",
        )


def run_arm(
    arm: Arm,
    spec: RunSpec,
    *,
    number: int,
    position: int,
    folder: Path,
    executor: Executor,
    placement: Placement,
    place: str = "runs",
) -> Run:
    """Run an arm once, in its own folder.

    Args:
        arm: to run.
        spec: of the run.
        number: of the round.
        position: of the run among all runs.
        folder: of the comparison.
        executor: runs it.
        placement: where it runs.
        place: folder for the runs, within the folder of the comparison.
    """
    run_dir = _new_run_dir(folder, place, position, arm)
    execution, load = executor(arm, spec, run_dir)
    if load is not None:
        write_whole(run_dir / LOAD_FILE, load.to_json())
    if execution.outcome.completed:
        durations.remember(spec, execution.wall_s, placement)
    return Run(
        **dict(execution),
        arm=arm.label,
        round=number,
        position=position,
        spec=spec,
        log_dir=os.fspath((run_dir / "logs").relative_to(folder)),
        load=load,
    )


def _new_run_dir(folder: Path, place: str, position: int, arm: Arm) -> Path:
    """The folder of a run; what an interrupted run left there is not in the results."""
    run_dir = folder / place / f"{position:03d}-{file_name(arm.label, longest=LONGEST_NAME)}"
    if run_dir.exists():
        shutil.rmtree(run_dir)
    return run_dir


def keep(comparison: Comparison, folder: Path) -> None:
    """Write everything seen so far to disk, completely or not at all."""
    write_whole(folder / RESULTS, comparison.to_json())


def still_to_run(comparison: Comparison) -> tuple[int, list[Arm]]:
    """The round to make or to complete, and the arms that it still needs, in order."""
    last = max((run.round for run in comparison.runs), default=0)
    for number in (last, last + 1):
        done = {run.arm for run in comparison.runs if run.round == number}
        order = round_order(comparison.arms, number, comparison.seed)
        due = [arm for arm in order if arm.label not in done]
        if due:
            break
    return number, due
