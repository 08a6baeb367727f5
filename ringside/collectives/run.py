"""Measure one stack after the other, each in fresh processes; write one document."""

import csv
import dataclasses
import io
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from launch import Site, execute, make_plan
from ringside.collectives.place import Place
from ringside.collectives.request import REQUEST, Answer, Request, answer_file
from ringside.collectives.stacks import obstacle, stack_of
from ringside.collectives.store import code_version
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Communication, Execution, Outcome, StackTimings, Timing, write_whole
from ringside_core.specs.communication import Operation
from ringside_core.text import file_name

# Ten transfers of 256 MiB between slow machines take long, but none takes this long.
DEADLINE_S = 300.0
PROGRAM = "allreduce_task.py"
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
ADDED_BYTES = 64 * 2**20
ADDITIONS = 9


def measure_stacks(
    stacks: Sequence[str],
    sizes: Sequence[int],
    *,
    place: Place,
    most: int,
    budget_s: float,
    folder: Path,
    command: str,
    operations: Sequence[Operation] = OPERATIONS,
    on_start: Callable[[str], None] = lambda stack: None,
    on_end: Callable[[Communication], None] = lambda communication: None,
) -> Communication:
    """Time the operations of each stack.

    Args:
        stacks: at least one name of ringside.collectives.stacks.STACKS, each with its settings.
        sizes: bytes of the array of each rank.
        place: where the ranks are.
        most: largest number of repetitions of each operation at each size.
        budget_s: seconds for one operation at one size; see ringside.collectives.request.
        folder: of the command; each stack gets a folder of its own in it.
        command: as it was typed.
        operations: the ones to time, if the stack has them.
        on_start: called with the name of a stack before its processes start.
        on_end: called after each stack with all results so far, this stack's last.
    """
    known: dict[str, Any] = {
        "created_unix_s": time.time(),
        "command": command,
        "machine": machine_facts(),
        "code_version": code_version(),
        "num_ranks": place.ranks,
        "hosts": place.hosts,
        "links": place.links,
        # Measured on this machine, which need not be one of the hosts.
        "add_seconds_per_byte": None if place.hosts else add_seconds_per_byte(),
    }
    timings: tuple[StackTimings, ...] = ()
    for stack in stacks:
        on_start(stack)
        request = Request(
            stack=stack,
            operations=tuple(op for op in stack_of(stack).operations if op in operations),
            sizes=tuple(sizes),
            most=most,
            budget_s=budget_s,
        )
        timings += (_measure(stack, request, place, folder / file_name(stack)),)
        communication = Communication(stacks=timings, **known)
        on_end(communication)
    return communication


def _measure(name: str, request: Request, place: Place, folder: Path) -> StackTimings:
    if reason := obstacle(name):
        return StackTimings(stack=name, outcome=Outcome(kind="refused", reason=reason))
    write_whole(folder / REQUEST, request.to_json())
    site = dataclasses.replace(Site.here(), program=PROGRAM)
    spec, placement = place.of_stack(name)
    execution = execute(
        make_plan(spec, run_dir=folder, placement=placement, site=site), deadline_s=DEADLINE_S
    )
    outcome = execution.outcome
    timings: tuple[Timing, ...] = ()
    if outcome.completed:
        answers = [
            Answer.from_json(path.read_text(encoding="utf-8"), origin=str(path))
            for path in (answer_file(folder, rank) for rank in range(spec.topology.num_processes))
        ]
        timings = joined(answers)
    return StackTimings(
        stack=name,
        outcome=outcome,
        cores=_cores(execution),
        timings=timings,
        wall_s=execution.wall_s,
    )


def joined(answers: Sequence[Answer]) -> tuple[Timing, ...]:
    """The times of all ranks side by side, and the sum of their wrong elements."""
    return tuple(
        Timing(
            operation=one[0].operation,
            size_bytes=one[0].size_bytes,
            seconds=tuple(zip(*(rank.seconds for rank in one), strict=True)),
            wrong=sum(rank.wrong for rank in one),
            warm_up=one[0].warm_up,
            cpu_s=_counted(tuple(rank.cpu_s for rank in one)),
        )
        for one in zip(*(answer.times for answer in answers), strict=True)
    )


def _counted(found: tuple[float | None, ...]) -> tuple[float, ...]:
    """CPU seconds of every rank; empty if one rank did not count them."""
    return tuple(one for one in found if one is not None) if None not in found else ()


def _cores(execution: Execution) -> tuple[tuple[int, ...], ...]:
    """Cores of each rank, in order; a coordinator and its servers are no ranks."""
    ranks = [r for r in execution.records if r.task.startswith(("rank-", "worker-"))]
    return tuple(r.cores for r in sorted(ranks, key=lambda r: int(r.task.rpartition("-")[2])))


def add_seconds_per_byte() -> float:
    """γ: seconds per byte in which one core adds one float32 array to another in memory."""
    here = np.zeros(ADDED_BYTES // 4, np.float32)
    there = np.ones_like(here)
    np.add(here, there, out=here)  # so that the pages are allocated
    times = []
    for _ in range(ADDITIONS):
        began = time.perf_counter()
        np.add(here, there, out=here)
        times.append(time.perf_counter() - began)
    return statistics.median(times) / ADDED_BYTES


COLUMNS = ("stack", "operation", "size_bytes", "count", "repetition", "rank", "seconds")


def samples_csv(communication: Communication) -> str:
    """Every sample: one line for each repetition and rank."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for stack in communication.stacks:
        for timing in stack.timings:
            for repetition, row in enumerate(timing.seconds):
                for rank, seconds in enumerate(row):
                    what = (stack.stack, timing.operation, timing.size_bytes, timing.count)
                    writer.writerow((*what, repetition, rank, repr(seconds)))
    return text.getvalue()
