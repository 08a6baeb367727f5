"""Measure one stack after the other, each in fresh processes, all with the same ranks."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch import Site, execute, make_plan
from launch.placement import cores_each, place
from launch.remote.host_checks import HostFacts
from ringside.collectives.request import REQUEST, Answer, Request, answer_file
from ringside.collectives.stacks import obstacle, options_of, stack_of
from ringside.collectives.store import code_version
from ringside_core.readings.cores import whole_cores
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Communication,
    Link,
    Outcome,
    Resources,
    RunSpec,
    StackTimings,
    Timing,
    Topology,
    assign_slots,
    write_whole,
)
from ringside_core.specs.placement import THIS_MACHINE, Placement, spread
from ringside_core.text import file_name

DEADLINE_S = 300.0  # for one repetition
PROGRAM = "allreduce_task.py"


@dataclass(frozen=True)
class Place:
    """Where the ranks of every stack are; the links are from each host to the next."""

    ranks: int
    placement: Placement = THIS_MACHINE  # or only the hosts that the ranks use, see `filled`
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    links: tuple[Link, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank; empty: all on this machine."""
        return hosts_of_ranks(self.placement, self.ranks)

    @property
    def cores(self) -> int:
        """Usable cores of the host that has the fewest; 1 of hosts that were not asked."""
        unknown = 1 if self.placement.hosts else whole_cores()
        return min((host.cores for host in self.facts.values()), default=unknown)

    def spec_of(self, stack: str) -> RunSpec:
        """The run that places the processes of a stack. It trains nothing.

        Each rank is pinned to its share of its host's cores, by the same rule under every stack.
        """
        topology = Topology(processes_per_host=self.ranks)
        used = place(topology, self.placement)
        known = {name: facts.cores for name, facts in self.facts.items()}
        cores = {host.name: known.get(host.name, self.cores) for host in used}
        share = cores_each({host.name: host.slots for host in used}, cores)
        return RunSpec(
            backend=stack_of(stack).backend,
            options=options_of(stack),
            topology=spread(topology, self.placement),
            global_batch=self.ranks,
            epochs=1,
            save="record",
            resources=Resources(
                cores_per_replica=share, intra_op_threads=share, inter_op_threads=2
            ),
        )


def hosts_of_ranks(placement: Placement, ranks: int) -> tuple[str, ...]:
    """The host of each rank; empty: all on this machine."""
    hosts = filled(placement, ranks).hosts if placement.hosts else None
    return tuple(host.name for host in hosts or () for _ in range(host.slots))


def filled(placement: Placement, ranks: int) -> Placement:
    """The placement, with only the hosts and slots that this number of ranks uses."""
    return placement.replace(hosts=assign_slots(placement.hosts or (), ranks))


def measure_stacks(
    stacks: Sequence[str],
    sizes: Sequence[int],
    place: Place,
    budget_s: float,
    *,
    folder: Path,
    command: str,
) -> Iterator[Communication]:
    """Time the all-reduce of each stack; after each, yield all results so far, its own last.

    Args:
        stacks: names of `STACKS`, each with its settings.
        sizes: bytes of the array of each rank.
        place: where the ranks are.
        budget_s: seconds for one size.
        folder: each stack gets a folder in it.
        command: as it was typed.
    """
    began, timings = time.time(), []
    for stack in stacks:
        request = Request(stack=stack, sizes=tuple(sizes), budget_s=budget_s)
        timings.append(_timings(request, place, folder / file_name(stack)))
        yield Communication(
            created_unix_s=began,
            command=command,
            machine=machine_facts(),
            code_version=code_version(),
            num_ranks=place.ranks,
            stacks=tuple(timings),
            hosts=place.hosts,
            links=place.links,
        )


def _timings(request: Request, place: Place, folder: Path) -> StackTimings:
    name = request.stack
    if reason := obstacle(name):
        return StackTimings(stack=name, outcome=Outcome(kind="refused", reason=reason))
    write_whole(folder / REQUEST, request.to_json())
    site = dataclasses.replace(Site.here(), program=PROGRAM)
    plan = make_plan(place.spec_of(name), run_dir=folder, placement=place.placement, site=site)
    execution = execute(plan, deadline_s=DEADLINE_S)
    answers = []
    if execution.outcome.completed:
        for rank in range(place.ranks):
            path = answer_file(folder, rank)
            answers.append(Answer.from_json(path.read_text(encoding="utf-8"), origin=str(path)))
    records = sorted(execution.records, key=lambda record: (len(record.task), record.task))
    return StackTimings(
        stack=name,
        outcome=execution.outcome,
        cores=tuple(record.cores for record in records),
        timings=joined(answers),
        wall_s=execution.wall_s,
    )


def joined(answers: Sequence[Answer]) -> tuple[Timing, ...]:
    """The times of all ranks side by side, and the sum of their wrong elements."""
    return tuple(
        ranks[0].replace(
            seconds=tuple(sum(row, ()) for row in zip(*(t.seconds for t in ranks), strict=True)),
            wrong=sum(timing.wrong for timing in ranks),
        )
        for ranks in zip(*(answer.timings for answer in answers), strict=True)
    )
