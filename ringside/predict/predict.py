"""Predict the step at N replicas from runs at one and two, with an interval, and check it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.predict.allreduce_growth import BITS, PairCurve, algorithm_of, law_of, no_law
from ringside.predict.inputs import StackInputs, measured_at, scatter_of, workers_beside_server
from ringside.predict.prediction import Checked, PredictedStep, StackPrediction
from ringside.predict.slowest import Waiting
from ringside.predict.step_growth import Served, between_laws, reduced_s, served_s
from ringside.stats.figure import CONFIDENCE
from ringside_core.specs import Comparison, RefusalError
from ringside_core.text import percent

Floats = NDArray[np.float64]

LARGEST = 4096  # replicas; the model knows nothing of what larger networks do
DRAWS = 4000
SEED = 20_240_229  # the same documents give the same interval
LEAST_CURVE_ERROR = 0.01


@dataclass(frozen=True)
class Asked:
    """What to predict.

    Attributes:
        replicas: each size.
        per_host: replicas on each host.
        scaling: `strong`: the global batch stays that of the runs; `weak`: each replica's part
            does.
        bits_per_s: of the link; None: the measured link.
        measured_bits_per_s: of the measured link; None: nobody measured it.
    """

    replicas: tuple[int, ...]
    per_host: int = 1
    scaling: Literal["strong", "weak"] = "weak"
    bits_per_s: float | None = None
    measured_bits_per_s: float | None = None


def predict(
    stacks: Sequence[StackInputs], asked: Asked, comparison: Comparison
) -> tuple[tuple[StackPrediction, ...], dict[str, str]]:
    """Every stack at every size; and the reasons where nothing is predicted, by stack and size.

    The interval holds 95 % of what the model says when its inputs are drawn again. T(1) and T(2)
    are drawn with the scatter between rounds (Student's t, pooled over all arms). A(N) is drawn
    with the error of the curve: once as a whole, and once more for each doubling of the ranks
    beyond two. Growth that theory leaves open is drawn uniformly between the kindest and the
    unkindest law. So the interval widens with the distance from what was measured.

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
            model = _Model(one, replace(asked, replicas=sizes), comparison, scatter, freedom)
            found.append(model.prediction())
    if not found:
        raise RefusalError("At least one size must be predictable.", received=str(reasons))
    return tuple(found), reasons


def _has_law(inputs: StackInputs, count: int) -> bool:
    if inputs.curve is None:
        return True
    return law_of(algorithm_of(inputs.stack), count, inputs.gradient_bytes) is not None


def epoch_notes(stacks: Iterable[StackInputs], asked: Asked) -> tuple[str, ...]:
    """Notes on sizes at which an epoch of these data is one step: real users have more data."""
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


def step_notes(stacks: Iterable[StackInputs], asked: Asked) -> tuple[str, ...]:
    """How many steps were seen for the slowest of how many replicas, one note for each stack."""
    most = max(asked.replicas)
    notes = []
    for one in stacks:
        if one.served or most <= 2:
            continue
        if one.seen is None:
            notes.append(
                f"{one.label}: single steps of one replica are not known, so waiting for the "
                "slowest grows as among normal deviates: rare stalls are not foretold."
            )
        else:
            notes.append(
                f"{one.label}: {one.seen.count:,} steps of one replica were seen. The slowest of "
                f"{most:,} takes longer than any of them in {percent(one.seen.unseen_share(most))} "
                "of the steps, whatever their distribution; how much longer is extrapolated."
            )
    return tuple(notes)


def checks_of(stacks: Iterable[StackPrediction], measured: Comparison) -> tuple[Checked, ...]:
    """Each predicted step that was also measured: the same stack, size and batch."""
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
                "Replicas that share one host send nothing over a link, so runs over a link say "
                "nothing about them.",
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
            "To predict another link, the link of the runs must have been measured.",
            received=f"{asked.bits_per_s:g} bit/s, and no measured link",
            advice="Measure on several hosts: ringside allreduce --hostfile ….",
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


class _Model:
    """One stack, with its inputs drawn again; element 0 of every array is the best guess."""

    def __init__(
        self,
        inputs: StackInputs,
        asked: Asked,
        comparison: Comparison,
        scatter: float,
        freedom: int,
    ) -> None:
        self._inputs, self._asked, self._comparison = inputs, asked, comparison
        self._scatter, self._freedom = scatter, freedom
        self._generator = np.random.default_rng(SEED)
        self._alone = {one.batch: self._times(one.mean_s, len(one.seconds)) for one in inputs.alone}
        self._two = self._times(inputs.two.mean_s, len(inputs.two.seconds))
        self._error = max(inputs.curve_error, LEAST_CURVE_ERROR)
        self._curve = _first(np.exp(self._error * self._generator.standard_normal(DRAWS)), 1.0)
        self._form = _first(self._generator.uniform(-1, 1, DRAWS), 0.0)
        self._per_doubling = self._generator.standard_normal(DRAWS)
        self._waiting = Waiting(inputs.seen, self._generator, self._form)

    def prediction(self) -> StackPrediction:
        """Every size that was asked for."""
        inputs, alone, two = self._inputs, self._inputs.alone[0], self._inputs.two
        compute = float(self._compute_at_two[0])
        pair = inputs.curve.at(inputs.gradient_bytes) if inputs.curve else 0.0
        rest = two.mean_s - compute - pair
        waiting = max(0.0, min(rest, inputs.slower_share * compute)) if inputs.curve else 0.0
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
            waiting_ms=1000 * waiting,
            steps=tuple(self._step(count) for count in self._asked.replicas),
            reason=""
            if self._freedom
            else "no arm has two rounds, so nobody knows how far they scatter",
        )

    def _step(self, count: int) -> PredictedStep:
        batch = _batch(self._inputs, self._asked, count)
        seconds = self._seconds(count, batch // count)
        step_ms = 1000 * float(seconds[0])
        low = high = None
        if self._freedom:
            tail = 100 * (1 - CONFIDENCE) / 2
            ends = np.percentile(1000 * seconds[1:], [tail, 100 - tail])
            low, high = min(float(ends[0]), step_ms), max(float(ends[1]), step_ms)
        return PredictedStep(
            replicas=count,
            hosts=math.ceil(count / self._asked.per_host),
            global_batch=batch,
            step_ms=step_ms,
            low_ms=low,
            high_ms=high,
        )

    def _seconds(self, count: int, part: int) -> Floats:
        """T(N) in every draw, with this part of the batch for each replica."""
        inputs = self._inputs
        if count == 1:
            return self._compute(part)
        if inputs.curve is None:
            return self._served(count, part)
        return reduced_s(
            compute=self._compute(part),
            compute_at_two=self._compute_at_two,
            two=self._two,
            pair=self._curve * inputs.curve.at(inputs.gradient_bytes),
            among=self._among(inputs.curve, count) * self._curve * self._further(count),
            slower_s=inputs.slower_share * self._waiting.of_two() * self._compute_at_two,
            growth=self._waiting.growth(count),
            form=self._form,
        )

    def _among(self, curve: PairCurve, count: int) -> Floats:
        """A(N). Two ranks cannot tell the cost of a message from the cost of an operation.

        Kindest: all of the latency is the operation's, once. Unkindest: all of it is the
        messages'. One link cannot tell either whether what a stack takes beyond its bytes stays
        the same on another link (the guess) or grows with the bytes (`PairCurve.in_proportion`).
        """
        rate = self._asked.bits_per_s
        algorithm = algorithm_of(self._inputs.stack)
        curves = [curve] if rate is None else [curve, curve.in_proportion(rate)]
        guess, *others = (
            replace(one, message_s=latency).among(
                count, self._inputs.gradient_bytes, algorithm=algorithm, bits_per_s=rate
            )
            for one in curves
            for latency in (curve.message_s, 0.0, None)
        )
        laws = (min(guess, *others), guess, max(guess, *others))
        kindest, best, unkindest = (np.full_like(self._form, law) for law in laws)
        return between_laws(self._form, kindest, best, unkindest)

    def _served(self, count: int, part: int) -> Floats:
        inputs, rate = self._inputs, self._asked.bits_per_s
        on_link = inputs.link_s
        there = inputs.gradient_bytes * BITS / rate if rate else on_link
        beside = 0
        if self._comparison.hosts:
            beside = workers_beside_server(self._comparison, count, self._asked.per_host)
        found = served_s(
            Served(
                far_at_one=inputs.far_at_one,
                far_at_two=inputs.far_at_two,
                alone=self._compute_at_two,
                two=self._two,
                rounds_at_two=inputs.two.epoch_rounds(inputs.two.batch),
                link_s=on_link,
            ),
            far=count - beside,
            rounds=inputs.two.epoch_rounds(part * count),
            computed=self._compute(part) - self._compute_at_two,
            moved=there - on_link if on_link else 0.0,
            times_longer=there / on_link if on_link else 1.0,
            least=there,
            form=self._form,
        )
        return found * self._further(count)

    # What the inputs may be in truth

    def _compute(self, batch: int) -> Floats:
        """C(b) in every draw."""
        return self._inputs.compute_s(batch, self._alone)

    @property
    def _compute_at_two(self) -> Floats:
        return self._compute(self._inputs.two.batch // 2)

    def _further(self, ranks: int) -> Floats:
        """The error of the curve once more for each doubling of the ranks beyond two."""
        doublings = max(0.0, math.log2(ranks / 2))
        spread = self._error * math.sqrt(doublings)
        return _first(np.exp(spread * self._per_doubling), 1.0)

    def _times(self, mean_s: float, rounds: int) -> Floats:
        """A mean over this many rounds: log-normal, with Student's t for the scatter."""
        if not self._freedom:
            return np.full(DRAWS + 1, mean_s)
        error = self._scatter / math.sqrt(rounds)
        drawn = self._generator.standard_t(self._freedom, DRAWS)
        return _first(mean_s * np.exp(error * drawn), mean_s)


def _first(drawn: Floats, guess: float) -> Floats:
    return np.concatenate([[guess], drawn])
