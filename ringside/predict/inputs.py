"""The inputs of a prediction: runs at one and two replicas, and all-reduces among two ranks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.predict.allreduce_growth import (
    BITS,
    PairCurve,
    algorithm_of,
    message_seconds,
    pair_curve,
)
from ringside.predict.conditions import (
    refuse_failed,
    refuse_no_model,
    refuse_one_host,
    refuse_unknown_link,
)
from ringside.predict.slowest import SeenSteps, seen_steps, slower_share
from ringside.stats.collectives import fit_cost_model, wire_bytes
from ringside.stats.links import slowest_bits_per_s
from ringside.stats.rounds import rounds_used
from ringside.stats.run_figures import throughput_examples_s
from ringside_core.specs import Arm, Communication, Comparison, Link, RefusalError, Run, Timing

Floats = NDArray[np.float64]

LEAST_SCATTER = 0.005  # of step times between rounds, in case two rounds agree by chance


@dataclass(frozen=True)
class Measured:
    """Seconds of a step of one arm, one for each round that counts, at one global batch.

    Attributes:
        batch: of all replicas.
        seconds: of an epoch ÷ its steps; a padded last step takes as long as the others.
        epoch_examples: over all replicas; 0: not needed.
    """

    batch: int
    replicas: int
    seconds: tuple[float, ...]
    epoch_examples: int = 0

    @property
    def mean_s(self) -> float:
        """Geometric mean over the rounds."""
        return math.exp(float(np.mean(np.log(self.seconds))))

    def epoch_rounds(self, batch: int) -> int:
        """Steps over all workers in an epoch of the same data, at this global batch."""
        return max(1, math.ceil(self.epoch_examples / batch))


@dataclass(frozen=True)
class StackInputs:
    """One stack of a comparison.

    Attributes:
        label: the group of its arms.
        alone: runs at one replica, by batch; the first is that of the comparison's own arm.
        two: runs at two replicas.
        gradient_bytes: as they are sent.
        curve: of all-reduces among two; None: parameter servers, which make none.
        curve_error: median error against that curve of a model of latency and bandwidth alone.
        slower_share: how much longer than the mean step the slower of two replicas takes, as a
            share of the mean; see `slower_share`. Infinite: it is not known.
        seen: steps of one replica, from which the slowest of many follows; None: not known.
        far_at_one, far_at_two: workers on other hosts than the server; -1: no parameter servers.
        link_s: the time of a gradient on the fastest link between hosts, in one direction; a
            server's link is no faster. 0: no link was measured, or there are no parameter servers.
    """

    label: str
    stack: str
    alone: tuple[Measured, ...]
    two: Measured
    gradient_bytes: int
    curve: PairCurve | None
    curve_error: float = 0.0
    slower_share: float = math.inf
    seen: SeenSteps | None = None
    far_at_one: int = -1
    far_at_two: int = -1
    link_s: float = 0.0

    @property
    def served(self) -> bool:
        """Whether parameter servers combine the gradients."""
        return self.curve is None

    def compute_s(self, batch: int, seconds: Mapping[int, Floats]) -> Floats:
        """Seconds in which one replica trains this many examples, C(b).

        The measured value at that batch. If there is none, the straight line a + c·b (least
        squares) through the measured batches, at least two, because a step has costs beside those
        of its examples. It is never less than the smallest measured batch, in proportion.

        Args:
            batch: of one replica.
            seconds: of each batch that was measured, arrays of one shape.

        Raises:
            RefusalError: this batch was not measured, and fewer than two others were.
        """
        if batch in seconds:
            return seconds[batch]
        if len(seconds) < 2:
            raise RefusalError(
                "To know how long a replica computes at other batches, it must be known at two.",
                received=f"{self.label} ×1 at batch {next(iter(seconds))}; asked: batch {batch}",
                advice="Compare with --why, which adds runs at other batches; or use the scaling "
                "under which the comparison was made.",
            )
        slope, start = np.polyfit(list(seconds), np.stack(list(seconds.values())), 1)
        smallest = min(seconds)
        least: Floats = seconds[smallest] * min(1.0, batch / smallest)
        return np.maximum(start + slope * batch, least)


def inputs_of(
    comparison: Comparison, communication: Communication | None, bits_per_s: float | None
) -> tuple[dict[str, StackInputs], dict[str, str]]:
    """Every stack of a comparison that can be predicted, and why the others cannot; by group.

    Args:
        comparison: with runs at one and two replicas of each stack.
        communication: all-reduces among two, between the same hosts.
        bits_per_s: what the link between them carried.

    Raises:
        RefusalError: no stack can be predicted; the message is the first reason.
    """
    found: dict[str, StackInputs] = {}
    reasons: dict[str, str] = {}
    first: RefusalError | None = None
    groups = {
        arm.group: arm for arm in comparison.arms if not arm.twin_of and not arm.for_breakdown
    }
    for group, arm in groups.items():
        if arm.capabilities.family == "none":
            continue  # the reference trains alone: there is nothing to predict
        try:
            found[group] = _inputs(comparison, communication, arm, bits_per_s)
        except RefusalError as error:
            reasons[group] = str(error)
            first = first or error
    if not found:
        raise first or RefusalError(
            "A prediction needs arms that distribute.", received=", ".join(groups) or "no arm"
        )
    return found, reasons


def measured_at(comparison: Comparison, group: str, replicas: int) -> Measured | None:
    """The runs of one stack at one size; None: no run was timed."""
    for arm in comparison.arms:
        own = arm.group == group and not arm.twin_of and not arm.for_breakdown
        if own and arm.replicas == replicas:
            return _measured(comparison, arm)
    return None


def link_rate(communication: Communication | None, comparison: Comparison) -> float | None:
    """What the slowest link between the hosts carried by TCP, bit/s; None: nobody measured it.

    The all-reduces tell it, or else the comparison, which is enough for parameter servers.
    """
    return slowest_bits_per_s(_links(communication, comparison))


def _links(communication: Communication | None, comparison: Comparison) -> tuple[Link, ...]:
    return (communication.links if communication else ()) or comparison.links


def scatter_of(stacks: Sequence[StackInputs]) -> tuple[float, int]:
    """Standard deviation of log(step time) between rounds, and its degrees of freedom.

    It is pooled over all stacks and sizes, as if all runs had the same relative scatter: two rounds
    of one arm alone say too little. 0 degrees: no arm has two rounds.
    """
    logs = [np.log(m.seconds) for one in stacks for m in (*one.alone, one.two)]
    freedom = sum(len(each) - 1 for each in logs)
    if not freedom:
        return 0.0, 0
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    return max(math.sqrt(squares / freedom), LEAST_SCATTER), freedom


def _inputs(
    comparison: Comparison,
    communication: Communication | None,
    arm: Arm,
    bits_per_s: float | None,
) -> StackInputs:
    coordinated = refuse_no_model(arm)
    alone = _alone(comparison, arm)
    two = measured_at(comparison, arm.group, 2)
    for replicas, there in ((1, alone), (2, two)):
        if not there:
            raise RefusalError(
                "A prediction needs runs of a stack at one and at two replicas.",
                received=f"no completed run of {arm.group} ×{replicas}",
                advice="Make them: ringside compare --replicas 1,2.",
            )
    assert two is not None
    refuse_failed(comparison, arm.group)
    gradient_bytes = _gradient_bytes(comparison, arm)
    stack = arm.options.stack or ""
    if coordinated:
        far = _far(comparison, 1), _far(comparison, 2)
        if comparison.hosts:
            refuse_unknown_link(arm.group, far[1], bits_per_s)
        links = _links(communication, comparison)
        fastest = max((link.bits_per_s for link in links), default=None)
        return StackInputs(
            label=arm.group,
            stack=stack,
            alone=alone,
            two=two,
            gradient_bytes=gradient_bytes,
            curve=None,
            far_at_one=far[0],
            far_at_two=far[1],
            link_s=gradient_bytes * BITS / fastest if fastest else 0.0,
        )
    algorithm_of(stack)
    if comparison.hosts:
        refuse_one_host(comparison, arm.group)
    curve, error = _curve(communication, stack, arm.group, bits_per_s)
    runs = _steps_of(comparison, arm, two.batch // 2, alone[0].batch)
    share, seen = slower_share(runs), seen_steps(runs)
    return StackInputs(arm.group, stack, alone, two, gradient_bytes, curve, error, share, seen)


def _alone(comparison: Comparison, arm: Arm) -> tuple[Measured, ...]:
    """One replica of the same backend with the same options, at every batch that was run."""
    found: dict[int, Measured] = {}
    for other in _arms_alone(comparison, arm):
        if (measured := _measured(comparison, other)) is not None:
            found.setdefault(measured.batch, measured)
    return tuple(found.values())


def _steps_of(comparison: Comparison, arm: Arm, wanted: int, instead: int) -> list[Run]:
    """Runs of one replica, at the wanted batch if there are any."""
    runs = [run for one in _arms_alone(comparison, arm) for run in _runs(comparison, one)]
    batch = wanted if any(run.spec.global_batch == wanted for run in runs) else instead
    return [run for run in runs if run.spec.global_batch == batch]


def _arms_alone(comparison: Comparison, arm: Arm) -> list[Arm]:
    same = [
        other
        for other in comparison.arms
        if (other.backend, other.options, other.settings)
        == (arm.backend, arm.options, arm.settings)
        and other.replicas == 1
        and other.ablation == "none"
        and not other.twin_of
    ]
    return sorted(same, key=lambda one: one.for_breakdown)  # the arm itself comes first


def _runs(comparison: Comparison, arm: Arm) -> list[Run]:
    used = rounds_used(comparison).used
    return [
        run
        for run in comparison.runs
        if run.arm == arm.label and run.round in used and run.outcome.completed
    ]


def _measured(comparison: Comparison, arm: Arm) -> Measured | None:
    """Epoch ÷ steps = batch ÷ throughput ÷ padding; a step is over all workers of the arm."""
    runs = _runs(comparison, arm)
    rates = [rate for run in runs if (rate := throughput_examples_s(run).value)]
    if not rates:
        return None
    batch = runs[0].spec.global_batch
    examples = max(one.examples for run in runs for record in run.records for one in record.epochs)
    padded = math.ceil(examples / batch) * batch / examples
    seconds = tuple(batch / rate / padded for rate in rates)
    return Measured(batch, arm.replicas, seconds, examples)


def _gradient_bytes(comparison: Comparison, arm: Arm) -> int:
    runs: list[Run] = [run for run in comparison.runs if run.outcome.completed]
    labels = {other.label for other in comparison.arms if other.group == arm.group}
    for run in runs:
        for record in run.records:
            if run.arm in labels and record.gradient_bytes:
                return wire_bytes(record.gradient_bytes, run.spec)
    raise RefusalError(
        "A prediction needs the size of the gradients.",
        received=f"no run of {arm.group} recorded it",
        advice="Compare again with this version of Ringside.",
    )


def _far(comparison: Comparison, workers: int) -> int:
    """Workers on other hosts than the server; on one machine all share the way to it."""
    hosts = comparison.hosts
    if not hosts:
        return workers
    return workers - workers_beside_server(comparison, workers)


def workers_beside_server(comparison: Comparison, workers: int, per_host: int = 0) -> int:
    """How many workers are on the server's host; hosts are filled in hostfile order.

    Args:
        comparison: whose hostfile it is.
        workers: of the run.
        per_host: workers on each host; 0: as many as the host has slots.
    """
    left = workers
    named = comparison.servers_on[:1]
    for index, host in enumerate(comparison.hosts):
        here = min(left, per_host or host.slots)
        if host.name in named or (not named and index == 0):
            return here
        left -= here
    return 0


def _curve(
    communication: Communication | None, stack: str, group: str, bits_per_s: float | None
) -> tuple[PairCurve, float]:
    timings = _allreduces(communication, stack)
    if communication is None or not timings:
        raise RefusalError(
            "A prediction needs all-reduces of the same stack among two ranks.",
            received=f"none of {stack!r}, for {group}",
            advice=f'Make them: ringside allreduce --replicas 2 --stacks "mpi,{stack}".',
        )
    message_s = message_seconds(_allreduces(communication, "mpi"), bits_per_s)
    curve = pair_curve(timings, bits_per_s, message_s)
    return curve, fit_cost_model(timings).relative_error


def _allreduces(communication: Communication | None, stack: str) -> list[Timing]:
    stacks = communication.stacks if communication else ()
    timings = (timing for one in stacks if one.stack == stack for timing in one.timings)
    return [timing for timing in timings if timing.operation == "allreduce"]
