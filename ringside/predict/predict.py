"""Predict the step at N replicas from runs at one and two, with an interval, and check it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.predict.allreduce_growth import BITS, PairCurve, algorithm_of, law_of, no_law
from ringside.predict.inputs import (
    StackInputs,
    measured_at,
    scatter_of,
    workers_beside_server,
)
from ringside.predict.prediction import Checked, PredictedStep, StackPrediction
from ringside.predict.step_growth import Served, between_laws, reduced_s, served_s
from ringside.stats.figure import CONFIDENCE
from ringside_core.specs import Comparison, RefusalError

Floats = NDArray[np.float64]

LARGEST = 4096  # replicas; beyond it nothing of what a network does is in the model
DRAWS = 4000
SEED = 20_240_229  # the same documents give the same interval
LEAST_CURVE_ERROR = 0.01


@dataclass(frozen=True)
class Asked:
    """For what is predicted.

    Attributes:
        replicas: each size.
        per_host: replicas on each host.
        scaling: `strong`: the global batch of the runs stays; `weak`: each replica's part does.
        bits_per_s: of the link; None: the one that was measured.
        measured_bits_per_s: what that one carried; None: nobody measured it.
    """

    replicas: tuple[int, ...]
    per_host: int = 1
    scaling: Literal["strong", "weak"] = "weak"
    bits_per_s: float | None = None
    measured_bits_per_s: float | None = None


def predict(
    stacks: Sequence[StackInputs], asked: Asked, comparison: Comparison
) -> tuple[tuple[StackPrediction, ...], dict[str, str]]:
    """Every stack at every size; and where nothing is predicted, by stack and size, why not.

    The interval holds 95 % of what the model says when its inputs are drawn again: T(1) and T(2)
    with the scatter between rounds (Student's t, pooled over all arms), A(N) with the error of the
    curve, once as a whole and once for each doubling of the ranks beyond two, and the growth of
    which theory leaves it open between the kindest and the unkindest law (uniform). So it widens
    with the distance from what was measured.

    Raises:
        RefusalError: a size, a batch or a link that cannot be predicted, or no stack at any size.
    """
    _check(asked, comparison)
    scatter, freedom = scatter_of(stacks)
    found: list[StackPrediction] = []
    reasons: dict[str, str] = {}
    for one in stacks:
        lawless = [count for count in asked.replicas if not _has_law(one, count)]
        for count in lawless:
            reasons[f"{one.label} ×{count}"] = no_law(count, one.gradient_bytes)
        sizes = tuple(count for count in asked.replicas if count not in lawless)
        if sizes:
            found.append(
                _predict(one, replace(asked, replicas=sizes), comparison, scatter, freedom)
            )
    if not found:
        raise RefusalError("At least one size must be predictable.", received=str(reasons))
    return tuple(found), reasons


def _has_law(inputs: StackInputs, count: int) -> bool:
    if inputs.curve is None:
        return True
    return law_of(algorithm_of(inputs.stack), count, inputs.gradient_bytes) is not None


def epoch_notes(stacks: Iterable[StackInputs], asked: Asked) -> tuple[str, ...]:
    """Sizes at which the data that were trained are one step: no user of that size has so few."""
    notes = []
    for one in stacks:
        single = [
            count
            for count in asked.replicas
            if one.served and one.two.epoch_rounds(_batch(one, asked, count)) == 1
        ]
        if single:
            notes.append(
                f"{one.label}: from ×{min(single):,} on an epoch of the same "
                f"{one.two.epoch_examples:,} examples is a single step, in which all workers pull "
                "at once and then push at once. With more data a step takes less, down to about "
                "half."
            )
    return tuple(notes)


def checks_of(stacks: Iterable[StackPrediction], measured: Comparison) -> tuple[Checked, ...]:
    """Each prediction of which the same stack was measured at the same size and batch."""
    found = []
    for stack in stacks:
        for step in stack.steps:
            there = measured_at(measured, stack.label, step.replicas)
            if there is not None and there.batch == step.global_batch:
                found.append(
                    Checked(
                        label=stack.label,
                        predicted=step,
                        measured_ms=1000 * there.mean_s,
                        rounds=len(there.seconds),
                    )
                )
    return tuple(found)


def _check(asked: Asked, comparison: Comparison) -> None:
    for count in asked.replicas:
        if comparison.hosts and 1 < count <= asked.per_host:
            raise RefusalError(
                "Replicas that share one host send nothing over a link: runs over one say nothing "
                "of them.",
                received=f"{count} replicas, {asked.per_host} on each host",
                advice=f"Ask for more than {asked.per_host}.",
            )
        if not 1 <= count <= LARGEST or count % min(asked.per_host, count):
            raise RefusalError(
                f"Sizes are whole hosts of 1 to {LARGEST:,} replicas.",
                received=f"{count} replicas, {asked.per_host} on each host",
            )
    if asked.bits_per_s is not None and asked.measured_bits_per_s is None:
        raise RefusalError(
            "Another link is predicted from a link that was measured.",
            received=f"{asked.bits_per_s:g} bit/s, and no measured link",
            advice="Measure on several hosts: ringside allreduce --hostfile ….",
        )


def _predict(
    inputs: StackInputs, asked: Asked, comparison: Comparison, scatter: float, freedom: int
) -> StackPrediction:
    draws = _Draws(inputs, scatter, freedom)
    steps = tuple(_step(inputs, asked, comparison, draws, count) for count in asked.replicas)
    alone, two = inputs.alone[0], inputs.two
    compute = float(draws.compute(two.batch // 2)[0])
    pair = inputs.curve.at(inputs.gradient_bytes) if inputs.curve else 0.0
    rest = two.mean_s - compute - pair
    return StackPrediction(
        label=inputs.label,
        stack=inputs.stack,
        algorithm="served" if inputs.served else algorithm_of(inputs.stack),
        gradient_bytes=inputs.gradient_bytes,
        alone_ms=1000 * alone.mean_s,
        alone_batch=alone.batch,
        two_ms=1000 * two.mean_s,
        two_batch=two.batch,
        compute_ms=1000 * compute,
        pair_ms=1000 * pair,
        rest_ms=1000 * rest,
        waiting_ms=1000 * max(0.0, min(rest, inputs.slower_share * compute))
        if inputs.curve
        else 0.0,
        steps=steps,
        reason="" if freedom else "no arm has two rounds, so nobody knows how far they scatter",
    )


def _step(
    inputs: StackInputs, asked: Asked, comparison: Comparison, draws: "_Draws", count: int
) -> PredictedStep:
    batch = _batch(inputs, asked, count)
    seconds = _seconds(inputs, asked, comparison, draws, count, batch // count)
    step_ms = 1000 * float(seconds[0])
    low = high = None
    if draws.freedom:
        tail = 100 * (1 - CONFIDENCE) / 2
        ends = np.percentile(1000 * seconds[1:], [tail, 100 - tail])
        low, high = min(float(ends[0]), step_ms), max(float(ends[1]), step_ms)
    return PredictedStep(
        replicas=count,
        hosts=math.ceil(count / asked.per_host),
        global_batch=batch,
        step_ms=step_ms,
        low_ms=low,
        high_ms=high,
    )


def _batch(inputs: StackInputs, asked: Asked, count: int) -> int:
    if asked.scaling == "weak":
        return inputs.alone[0].batch * count
    batch = inputs.alone[0].batch
    if batch % count:
        raise RefusalError(
            "global_batch must be a multiple of the number of replicas.",
            received=f"strong scaling of {inputs.label}: global_batch={batch}, {count} replicas",
            advice="Ask for sizes that divide it (--replicas), or for --scaling weak.",
        )
    return batch


def _seconds(
    inputs: StackInputs,
    asked: Asked,
    comparison: Comparison,
    draws: "_Draws",
    count: int,
    part: int,
) -> Floats:
    compute = draws.compute(part)
    if count == 1:
        return compute
    if inputs.curve is None:
        return _served(inputs, asked, comparison, draws, count, part)
    return reduced_s(
        ranks=count,
        compute=compute,
        compute_at_two=draws.compute(inputs.two.batch // 2),
        two=draws.two,
        pair=draws.curve * inputs.curve.at(inputs.gradient_bytes),
        among=_among(inputs, inputs.curve, asked, count, draws.form) * draws.curve
        * draws.further(count),
        slower_s=inputs.slower_share * draws.compute(inputs.two.batch // 2),
        form=draws.form,
    )  # fmt: skip


def _among(inputs: StackInputs, curve: PairCurve, asked: Asked, count: int, form: Floats) -> Floats:
    """A(N): two ranks cannot tell what a message costs from what an operation costs.

    Kindest: all of the latency is the operation's, once; unkindest: all of it is the messages'. And
    one link cannot tell whether what a stack takes beyond its bytes stays on another (the guess),
    or grows with them (`PairCurve.in_proportion`).
    """
    rate = asked.bits_per_s
    curves = [curve] if rate is None else [curve, curve.in_proportion(rate)]
    guess, *others = (
        replace(one, message_s=latency).among(
            count, inputs.gradient_bytes, algorithm=algorithm_of(inputs.stack), bits_per_s=rate
        )
        for one in curves
        for latency in (curve.message_s, 0.0, None)
    )
    laws = (min(guess, *others), guess, max(guess, *others))
    kindest, best, unkindest = (np.full_like(form, law) for law in laws)
    return between_laws(form, kindest, best, unkindest)


def _served(
    inputs: StackInputs,
    asked: Asked,
    comparison: Comparison,
    draws: "_Draws",
    count: int,
    part: int,
) -> Floats:
    on_link = inputs.link_s
    there = inputs.gradient_bytes * BITS / asked.bits_per_s if asked.bits_per_s else on_link
    beside = workers_beside_server(comparison, count, asked.per_host) if comparison.hosts else 0
    at_two = draws.compute(inputs.two.batch // 2)
    found = served_s(
        Served(
            far_at_one=inputs.far_at_one,
            far_at_two=inputs.far_at_two,
            alone=at_two,
            two=draws.two,
            rounds_at_two=inputs.two.epoch_rounds(inputs.two.batch),
            link_s=on_link,
        ),
        far=count - beside,
        rounds=inputs.two.epoch_rounds(part * count),
        computed=draws.compute(part) - at_two,
        moved=there - on_link if on_link else 0.0,
        times_longer=there / on_link if on_link else 1.0,
        least=there,
        form=draws.form,
    )
    return found * draws.further(count)


class _Draws:
    """What the inputs may be in truth; element 0 of every array is the best guess."""

    def __init__(self, inputs: StackInputs, scatter: float, freedom: int) -> None:
        self.freedom = freedom
        self._inputs = inputs
        self._generator = np.random.default_rng(SEED)
        self._scatter = scatter
        self._alone = {one.batch: self._times(one.mean_s, len(one.seconds)) for one in inputs.alone}
        self.two = self._times(inputs.two.mean_s, len(inputs.two.seconds))
        self.error = max(inputs.curve_error, LEAST_CURVE_ERROR)
        self.curve = self._factor(self.error)
        self.form = self._first(self._generator.uniform(-1, 1, DRAWS), 0.0)
        self._per_doubling = self._generator.standard_normal(DRAWS)

    def compute(self, batch: int) -> Floats:
        """C(b) in every draw."""
        return self._inputs.compute_s(batch, self._alone)

    def further(self, ranks: int) -> Floats:
        """The error of the curve once more for each doubling of the ranks beyond two."""
        doublings = max(0.0, math.log2(ranks / 2))
        spread = self.error * math.sqrt(doublings)
        return self._first(np.exp(spread * self._per_doubling), 1.0)

    def _times(self, mean_s: float, rounds: int) -> Floats:
        """A mean over so many rounds: log-normal, with Student's t for the scatter."""
        if not self.freedom:
            return np.full(DRAWS + 1, mean_s)
        error = self._scatter / math.sqrt(rounds)
        drawn = self._generator.standard_t(self.freedom, DRAWS)
        return self._first(mean_s * np.exp(error * drawn), mean_s)

    def _factor(self, error: float) -> Floats:
        return self._first(np.exp(error * self._generator.standard_normal(DRAWS)), 1.0)

    @staticmethod
    def _first(drawn: Floats, guess: float) -> Floats:
        return np.concatenate([[guess], drawn])
