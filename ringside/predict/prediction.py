"""A prediction: the step of each stack at N replicas, from a comparison and its all-reduces."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from ringside.predict.step_model import Floats, StackInputs, StepModel
from ringside.stats.collectives import fit_cost_model, wire_bytes
from ringside.stats.figure import CONFIDENCE, Figure, Interval
from ringside.stats.links import link_words, links_by_pair, same_link
from ringside.stats.rounds import launches_of, why_untrusted
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.step_times import counted_epochs, durations_s, steps_of_times, timeline
from ringside_core.specs import Arm, Communication, Comparison, RefusalError, Run, assign_slots
from ringside_core.specs.noun import Document, Noun, UnixSeconds

LEAST_STEPS = 20  # of one replica; fewer say nothing about the slowest of several
LARGEST = 4096  # replicas; what larger networks do cannot be seen from a few hosts
LEAST_SCATTER = 0.005  # between rounds, in case two of them agree by chance
ONE_ROUND = "no arm has two rounds, so their scatter is not known"


class StackPrediction(Noun):
    """One stack at every size.

    Attributes:
        label: of its arms, without size.
        batch: of each replica, examples.
        gradient_bytes: of one gradient as it is sent.
        alone_ms: the measured step of one replica.
        known_replicas, known_ms: the largest size that was measured, and its step.
        steps_seen: of one replica.
        steps_ms: the predicted step at each number of replicas, weak scaling: with a 95 % interval,
            or the reason why there is none.
    """

    label: str
    batch: PositiveInt
    gradient_bytes: PositiveInt
    alone_ms: PositiveFloat
    known_replicas: PositiveInt
    known_ms: PositiveFloat
    steps_seen: PositiveInt
    steps_ms: dict[PositiveInt, Figure]

    def efficiency(self, step_ms: float) -> float:
        """T(1) ÷ T(N), weak scaling."""
        return self.alone_ms / step_ms

    def unseen_share(self, replicas: int) -> float:
        """How often the slowest of N replicas takes longer than any of the n steps that were seen.

        N ÷ (N + n) for any distribution: each of N + n equal, independent steps may be the longest.
        """
        return replicas / (replicas + self.steps_seen)


class Prediction(Document):
    """Every stack of a comparison at other sizes.

    Attributes:
        comparison: SHA-256 of its results.json.
        communication: content hash of the all-reduces.
        not_predicted: stacks that are left out, and why.
    """

    SCHEMA_VERSION: ClassVar[int] = 4

    created_unix_s: UnixSeconds
    command: str
    comparison: str
    communication: str
    stacks: tuple[StackPrediction, ...] = Field(min_length=1)
    not_predicted: dict[str, str] = Field(default_factory=dict)


def predict(
    comparison: Comparison, communication: Communication, sizes: Sequence[int]
) -> tuple[tuple[StackPrediction, ...], dict[str, str]]:
    """Every stack at every size, and the reason for each stack that is left out.

    Args:
        comparison: with runs at one replica and at more, of the same batch for each.
        communication: all-reduces of the same stacks between the same hosts.
        sizes: numbers of replicas, at most LARGEST.

    Raises:
        RefusalError: no stack can be predicted.

    Example:
        >>> stacks, reasons = predict(comparison, communication, [4, 64])
        >>> stacks[0].steps_ms[4].value
        163.2
    """
    if untrusted := why_untrusted(comparison):
        raise RefusalError(
            "A prediction needs runs on a quiet machine.",
            received=untrusted,
            advice="Stop the other programs, and compare again.",
        )
    inputs: list[StackInputs] = []
    refused: dict[str, RefusalError] = {}
    groups = {arm.group: arm for arm in comparison.arms if not (arm.twin_of or arm.for_breakdown)}
    for group, arm in groups.items():
        if arm.capabilities.family == "none":
            continue  # the reference trains alone
        try:
            inputs.append(stack_inputs(comparison, communication, arm))
        except RefusalError as error:
            refused[group] = error
    if not inputs:
        raise next(iter(refused.values()), RefusalError("A prediction needs arms that distribute."))
    scatter = _scatter(inputs)
    predicted = tuple(predict_stack(stack, sizes, scatter) for stack in inputs)
    return predicted, {group: str(error) for group, error in refused.items()}


def predict_stack(
    inputs: StackInputs, sizes: Sequence[int], scatter: tuple[float, int]
) -> StackPrediction:
    """One stack at every size; `scatter` as in `StepModel`."""
    model = StepModel(inputs, scatter)
    tail = 100 * (1 - CONFIDENCE) / 2
    steps_ms = {}
    for ranks in sizes:
        draws = 1000 * model.step_s(ranks)
        guess = float(draws[0])
        low, high = (float(end) for end in np.percentile(draws, [tail, 100 - tail]))
        interval = Interval(min(low, guess), max(high, guess)) if scatter[1] else None
        steps_ms[ranks] = Figure(guess, "" if interval else ONE_ROUND, interval=interval)
    return StackPrediction(
        label=inputs.label,
        batch=inputs.batch,
        gradient_bytes=inputs.gradient_bytes,
        alone_ms=1000 * float(model.alone[0]),
        known_replicas=inputs.replicas,
        known_ms=1000 * float(model.known[0]),
        steps_seen=len(inputs.steps),
        steps_ms=steps_ms,
    )


def _scatter(stacks: Sequence[StackInputs]) -> tuple[float, int]:
    """Pooled over all stacks and sizes, because two rounds of one arm alone say too little."""
    logs = [np.log(seconds) for stack in stacks for seconds in (stack.alone, stack.known)]
    freedom = sum(len(times) - 1 for times in logs)
    if not freedom:
        return 0.0, 0
    squares = sum(float(((times - times.mean()) ** 2).sum()) for times in logs)
    return max(math.sqrt(squares / freedom), LEAST_SCATTER), freedom


# What was measured


def stack_inputs(comparison: Comparison, communication: Communication, arm: Arm) -> StackInputs:
    """What the documents say of the stack of an arm.

    Raises:
        RefusalError: it is not a stack of all-reduces, its runs or all-reduces are missing or were
            not in the same place, or it failed its certificate.
    """
    if arm.capabilities.process_model != "per_replica":
        raise RefusalError(
            "Only stacks whose replicas reduce their gradients between processes are predicted.",
            received=arm.group,
        )
    if comparison.machine.gpus:
        raise RefusalError(
            "Only steps on processors are predicted; on accelerators the clock stops when a step "
            "is launched.",
            received=f"runs on {', '.join(comparison.machine.gpus)}",
        )
    for certificate in comparison.certificates:
        if certificate.arm.group == arm.group and not certificate.passed:
            raise RefusalError(
                "Only stacks that compute the same as the reference are predicted.",
                received=f"{certificate.arm.label}: {certificate.reason}",
            )
    size = max((run.spec.topology.num_replicas for run in _runs(comparison, arm)), default=0)
    several = _runs(comparison, arm, replicas=size)
    batch = several[0].spec.global_batch // size if several else 0
    alone = _runs(comparison, arm, replicas=1, batch=batch)
    if size < 2 or not alone:
        raise RefusalError(
            "A prediction needs runs of one replica and of several, with the same batch for each.",
            received=f"{arm.group}: runs of " + (f"{size}" if several else "no") + " replicas, "
            f"{len(alone)} runs of one replica at batch {batch}",
            advice="Make them: ringside compare --scaling weak --replicas 1,2.",
        )
    _refuse_another_place(comparison, communication, size)
    stack = arm.options.stack
    timings = [
        timing for found in communication.stacks if found.stack == stack for timing in found.timings
    ]
    if not timings:
        raise RefusalError(
            "A prediction needs all-reduces of the same stack.",
            received=f"none of {stack!r}",
            advice=f'Make them: ringside allreduce --replicas 2 --stacks "{stack}".',
        )
    sent = [
        wire_bytes(record.gradient_bytes, run.spec)
        for run in several
        for record in run.records
        if record.gradient_bytes
    ]
    if not sent:
        raise RefusalError("A prediction needs the size of the gradients.", received="not recorded")
    steps = np.concatenate([relative_steps(run) for run in alone])
    if len(steps) < LEAST_STEPS:
        raise RefusalError(
            f"The slowest of several replicas follows from {LEAST_STEPS} steps or more.",
            received=f"{len(steps)} steps of one replica",
            advice="Train more steps or epochs; the first epoch does not count, nor does the "
            "first time of each epoch.",
        )
    return StackInputs(
        label=arm.group,
        replicas=size,
        batch=batch,
        alone=np.array([step_seconds(run) for run in alone]),
        known=np.array([step_seconds(run) for run in several]),
        gradient_bytes=sent[0],
        steps=steps,
        cost=fit_cost_model(timings),
        message_s=message_bound_s(communication),
    )


def _runs(comparison: Comparison, arm: Arm, *, replicas: int = 0, batch: int = 0) -> list[Run]:
    """Timed runs that differ from the arm's only in size and batch; 0: any."""
    left_out = launches_of(comparison).left_out
    labels = {
        other.label
        for other in comparison.arms
        if (other.backend, other.options, other.settings)
        == (arm.backend, arm.options, arm.settings)
        and other.ablation == "none"
        and not other.twin_of
    }
    return [
        run
        for run in comparison.runs
        if run.arm in labels
        and run.round not in left_out
        and run.outcome.completed
        and throughput_examples_s(run).value
        and replicas in (0, run.spec.topology.num_replicas)
        and batch in (0, run.spec.global_batch)
    ]


def _refuse_another_place(
    comparison: Comparison, communication: Communication, replicas: int
) -> None:
    hosts = assign_slots(comparison.hosts, replicas) if comparison.hosts else ()
    ours = {host.name for host in hosts}
    theirs = set(communication.hosts)
    if not theirs <= ours or communication.several_hosts != (len(ours) > 1):
        names = [", ".join(sorted(hosts)) or "this machine" for hosts in (ours, theirs)]
        raise RefusalError(
            "Runs and all-reduces must be between the same hosts.",
            received=f"{replicas} replicas on {names[0]}, all-reduces on {names[1]}",
            advice="Give each host one slot, and measure there: ringside allreduce --hostfile ….",
        )
    then, now = links_by_pair(comparison.links), links_by_pair(communication.links)
    for pair in then.keys() & now.keys():
        if not same_link(then[pair], now[pair]):
            raise RefusalError(
                "Runs and all-reduces must be over the same link.",
                received=f"{' to '.join(pair)}: {link_words(then[pair])} before the runs, "
                f"{link_words(now[pair])} before the all-reduces",
                advice="Repeat one of the two.",
            )


def step_seconds(run: Run) -> float:
    """Seconds of a step: epoch ÷ steps; a padded last step takes as long as the others."""
    batch, rate = run.spec.global_batch, throughput_examples_s(run).value
    assert rate is not None  # `_runs` leaves out the others
    examples = max(epoch.examples for record in run.records for epoch in record.epochs)
    return examples / math.ceil(examples / batch) / rate


def relative_steps(run: Run) -> Floats:
    """Each step of a run of one replica, relative to the mean, [steps].

    The first time of an epoch does not count, because the input starts there. If k steps have one
    time, only their mean is known, which scatters √k times less, so it is taken √k times as far
    from 1. On accelerators the clock stops when a step is launched: no step is known, [0].
    """
    if run.blocks:
        line = timeline(run)
        counts = line.block >= 0
        times, steps = (line.seconds[0] / line.steps)[counts], line.steps[counts]
    else:
        epochs = [records[0] for records in counted_epochs(run)]
        times = np.concatenate([[], *(durations_s(epoch)[1:] for epoch in epochs)])
        steps = np.concatenate([[], *(steps_of_times(epoch)[1:] for epoch in epochs)])
    if not len(times) or any(record.machine.gpus for record in run.records):
        return np.zeros(0)
    each = float(steps.max())  # the last time of an epoch may be of fewer steps
    times = times[steps == each]
    relative: Floats = 1 + math.sqrt(each) * (times / times.mean() - 1)
    return relative


def message_bound_s(communication: Communication) -> float:
    """The most that one message can take, seconds: no stack can reduce in fewer than log₂ p rounds.

    The quickest repetition counts, because what waits in a busy loop on part of a core pauses.
    """
    quickest = min(
        max(ranks)
        for stack in communication.stacks
        for timing in stack.timings
        for ranks in timing.seconds
    )
    return quickest / math.ceil(math.log2(communication.num_ranks))
