"""The model of a synchronous step at N replicas: compute, reduce, wait for the slowest.

Arrays are [draws]: each draw is one way in which the truth can differ from what was measured, and
element 0 is the best guess. Two replicas leave open how some times grow. `form` chooses among the
laws that they allow: 0 is the best guess, −1 the kindest law and 1 the unkindest law.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1

from ringside.stats.collectives import CostModel, predicted_seconds

Floats = NDArray[np.float64]

DRAWS = 4000
SEED = 20_240_229  # the same documents give the same interval
LEAST_ERROR = 0.01  # of the cost model
SINGLE, GROUPED = 100, 100  # the longest steps are kept as they are, the others as group means


@dataclass(frozen=True)
class StackInputs:
    """What was measured of one stack.

    Attributes:
        label: of its arms, without size.
        replicas: R, the largest size that was measured.
        alone: seconds of a step of one replica, [rounds].
        known: the same of `replicas` replicas, [rounds].
        batch: of each replica, in both.
        steps: of one replica, each relative to the mean step of its run, [steps].
        cost: fitted to the all-reduces of the stack by themselves.
        message_s: the most that one message can take.
    """

    label: str
    replicas: int
    batch: int
    alone: Floats
    known: Floats
    gradient_bytes: int
    steps: Floats
    cost: CostModel
    message_s: float


class StepModel:
    """The step of one stack, with its inputs drawn again: 95 % of the draws are the interval.

    T(1) and T(R) are log-normal with the scatter between rounds (Student's t). The all-reduce is
    wrong by the median error of its model: once as a whole, and once more for each doubling of the
    ranks beyond those of the table. Steps are drawn by the Bayesian bootstrap. What the
    measurements leave open is uniform between the kindest and the unkindest law.

    Args:
        inputs: of the stack.
        scatter: standard deviation of log(step time) between rounds, and its degrees of freedom;
            0 degrees: the rounds say nothing of it.

    Attributes:
        alone, known: T(1) and T(R), seconds, [draws].
    """

    def __init__(self, inputs: StackInputs, scatter: tuple[float, int]) -> None:
        self._inputs = inputs
        random = np.random.default_rng(SEED)
        self._form = np.append(0.0, random.uniform(-1, 1, DRAWS))
        error = max(inputs.cost.relative_error, LEAST_ERROR)
        self._wrong = error * np.insert(random.standard_normal((2, DRAWS)), 0, 0.0, axis=1)
        self._slowest = Slowest(inputs.steps, random, self._form)
        deviation, freedom = scatter

        def times(seconds: Floats) -> Floats:
            error = random.standard_t(max(freedom, 1), DRAWS) * deviation / math.sqrt(len(seconds))
            drawn: Floats = np.exp(np.log(seconds).mean() + np.append(0.0, error))
            return drawn

        self.alone, self.known = times(inputs.alone), times(inputs.known)

    def all_reduce_s(self, ranks: int) -> Floats:
        """Seconds of an all-reduce of the gradients by itself, [draws]."""
        inputs = self._inputs
        seconds = all_reduce_s(
            inputs.cost,
            inputs.gradient_bytes,
            ranks=ranks,
            message_s=inputs.message_s,
            form=self._form,
        )
        doublings = max(0.0, math.log2(ranks / inputs.cost.num_ranks))
        wrong: Floats = np.exp(self._wrong[0] + math.sqrt(doublings) * self._wrong[1])
        return seconds * wrong

    def step_s(self, ranks: int) -> Floats:
        """Seconds of a step, [draws]."""
        if ranks == 1:
            return self.alone
        return step_s(
            alone=self.alone,
            known=self.known,
            reduce_known=self.all_reduce_s(self._inputs.replicas),
            reduce_asked=self.all_reduce_s(ranks),
            beyond_known=self._slowest.beyond_mean(self._inputs.replicas),
            beyond_asked=self._slowest.beyond_mean(ranks),
            form=self._form,
        )


class Slowest:
    """How long the slowest of N replicas takes, from the steps that one replica made.

    The expected longest of N independent steps is Σ vᵢ (Wᵢᴺ − Wᵢ₋₁ᴺ), where vᵢ are the steps in
    rising order and Wᵢ the share of steps up to vᵢ. The shares are drawn by the Bayesian bootstrap
    (Rubin 1981). Steps longer than all that were seen have the weight of one step (Hill 1968); how
    much longer they are is not known. They are exponential beyond the longest step. As a share of
    the distance from the mean to the longest of n steps, the mean of that exponential is
    1/(2·ln n) as a guess (the tail of a normal distribution), 0 at the kindest and 1 at the
    unkindest, where the longest moves as far again whenever e times as many steps are made.

    Args:
        steps: of one replica, each relative to the mean step of its run, [steps].
        random: draws the weights.
        form: of each draw, [draws]; see the module.

    Example:
        >>> guess = np.zeros(1)
        >>> Slowest(np.linspace(0.9, 1.1, 100), np.random.default_rng(1), guess).beyond_mean(2)
        array([0.0340903])
    """

    def __init__(self, steps: Floats, random: np.random.Generator, form: Floats) -> None:
        ordered = np.sort(steps)
        usual, longest = ordered[:-SINGLE], ordered[-SINGLE:]
        groups = [group for group in np.array_split(usual, GROUPED) if len(group)]
        self._values = np.array([*(group.mean() for group in groups), *longest])
        counts = np.array([*map(len, groups), *(1 for _ in longest), 1.0])  # the last: unseen
        drawn = random.standard_gamma(counts, (len(form) - 1, len(counts)))
        weights = np.vstack([counts, drawn])
        total = np.cumsum(weights, axis=1)
        self._log_share = np.log(total[:, :-1] / total[:, -1:])  # of Wᵢ, [draws, values]
        self._unseen = weights[:, -1] / total[:, -1]
        furthest = ordered[-1] - ordered.mean()
        laws = (0.0, furthest / (2 * math.log(len(steps))), furthest)
        self._tail = np.interp(form, (-1, 0, 1), laws)
        self._mean = self._longest(1)

    def beyond_mean(self, ranks: int) -> Floats:
        """The expected slowest of so many replicas less the mean, in mean steps, [draws]."""
        return self._longest(ranks) - self._mean

    def _longest(self, ranks: int) -> Floats:
        share = np.exp(ranks * self._log_share)
        seen = share @ self._values - share[:, :-1] @ self._values[1:]
        # About N·g replicas are beyond all that was seen; the longest of so many exponentials is
        # γ + ln(N·g) + E₁(N·g) of their means.
        beyond = ranks * self._unseen
        further = np.euler_gamma + np.log(beyond) + exp1(beyond)
        longest: Floats = seen + (1 - share[:, -1]) * self._values[-1] + self._tail * further
        return longest


def all_reduce_s(
    cost: CostModel, size_bytes: float, *, ranks: int, message_s: float, form: Floats
) -> Floats:
    """Seconds of one all-reduce among N ranks, a ring: c + 2(N−1)·l + 2(N−1)/N·n·β.

    The model was fitted among p ranks, where its latency is 2(p−1)·α. That holds both l, what each
    message takes, and c, what an operation takes among any number of ranks (to agree on it, call
    it, wake up): c = 2(p−1)·(α − l). One number of ranks cannot tell the two apart. So l is
    `message_s` as a guess, 0 at the kindest and α at the unkindest.

    Args:
        cost: fitted to the all-reduces of a stack.
        size_bytes: of the array of each rank.
        ranks: N; one rank reduces nothing.
        message_s: latency of one message, no more than α counts.
        form: see the module, [draws].
    """
    if ranks == 1:
        return np.zeros_like(form)
    alpha = cost.alpha_s
    message = np.interp(form, (-1, 0, 1), (0.0, min(message_s, alpha), alpha))
    bytes_s = predicted_seconds(cost, size_bytes, num_ranks=ranks) - 2 * (ranks - 1) * alpha
    once = 2 * (cost.num_ranks - 1) * (alpha - message)
    return once + 2 * (ranks - 1) * message + bytes_s


def step_s(
    *,
    alone: Floats,
    known: Floats,
    reduce_known: Floats,
    reduce_asked: Floats,
    beyond_known: Floats,
    beyond_asked: Floats,
    form: Floats,
) -> Floats:
    """Seconds of a step: T(N) = T(R) + A(N) − A(R) + C·(m(N) − m(R)), [draws].

    Beyond what R replicas took, the all-reduce takes longer, and so does the slowest replica. What
    neither explains, r = T(R) − C·(1 + m(R)) − A(R), stays as it is: above 0 it is what
    distribution costs each replica, below 0 communication that is hidden behind computing. A step
    takes no less than its slowest replica computes.

    Kindest: replicas are slow at the same time, so m does not grow; of the communication the same
    share stays hidden. Unkindest: what is above 0 grows as m or as A, whichever grows more.

    Args:
        alone: C, of one replica with the same batch.
        known: T(R), as measured.
        reduce_known: A(R).
        reduce_asked: A(N).
        beyond_known: m(R), the slowest of R replicas less the mean, in mean steps.
        beyond_asked: m(N).
        form: see the module.
    """
    kinder, unkinder = np.maximum(-form, 0.0), np.maximum(form, 0.0)
    rest = known - alone * (1 + beyond_known) - reduce_known
    longer = np.maximum(reduce_asked / reduce_known, 1.0)
    growth = np.where(beyond_known > 0, beyond_asked / np.maximum(beyond_known, 1e-12), 1.0)
    hidden = np.minimum(rest, 0.0) * (1 + kinder * (longer - 1))
    stays = np.maximum(rest, 0.0) * (1 + unkinder * (np.maximum(longer, growth) - 1))
    beyond = beyond_asked - kinder * (beyond_asked - beyond_known)
    step: Floats = alone * (1 + beyond) + np.maximum(reduce_asked + hidden + stays, 0.0)
    return step
