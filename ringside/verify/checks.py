"""Checks other than parity of arms: examples fed and counted, convergence, plain Keras.

No TensorFlow.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside.verify.cases import COUNTED_EPOCHS
from ringside.verify.gate import TOLERANCE, parity, size_of, unfinished
from ringside.verify.trace import BY_TENSORFLOW, OTHER_DATA, Trace
from ringside_core.example_ids import digest_of_each_once
from ringside_core.specs import Check, Deviation, LedgerDigest
from ringside_core.text import plural

# By number of examples: traces of one counting case.
Counted = Mapping[int, Mapping[str, Trace]]
Place = tuple[int, int]
# An arm may miss this share of the fall in validation loss that the serial run reaches.
MARGIN = 0.1
# Probability that an arm passes although it misses MARGIN or more.
ERROR_PROBABILITY = 0.05


@dataclass(frozen=True)
class Misfed:
    """An id that was fed too often, or that belongs to no example.

    Attributes:
        places: (replica, step) of each feeding, both counted from 0, in the order of the steps.
    """

    id: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class LedgerVerdict:
    """How the ids fed in an epoch differ from 0…n-1, each once.

    Attributes:
        num_examples: n.
        missing: ids that were never fed, ascending.
        repeated: examples that were fed more than once, by id.
        foreign: ids that belong to no example, ascending.
        shown: how many of each kind the finding names.
    """

    num_examples: int
    missing: tuple[int, ...]
    repeated: tuple[Misfed, ...]
    foreign: tuple[Misfed, ...]
    shown: int

    @property
    def passed(self) -> bool:
        """Whether each example was fed once, and nothing else was."""
        return not (self.missing or self.repeated or self.foreign)

    @property
    def finding(self) -> str:
        """One sentence; replicas are counted from 0, as in records, and steps from 1."""
        if self.passed:
            one = self.num_examples == 1
            return f"{'the example' if one else f'each of {self.num_examples} examples'} once"
        found = []
        if self.missing:
            were = "was" if len(self.missing) == 1 else "were"
            noun = "example" if len(self.missing) == 1 else "examples"
            found.append(f"{noun} {_listed(self.missing, self.shown)} {were} never fed")
        for one_fed in self.repeated[: self.shown]:
            times = f"was fed {len(one_fed.places)} times"
            found.append(f"example {one_fed.id} {times}: {self._places(one_fed)}")
        if (more := len(self.repeated) - self.shown) > 0:
            found.append(f"{more} more {'was' if more == 1 else 'were'} fed more than once")
        for one_fed in self.foreign[: self.shown]:
            found.append(f"id {one_fed.id} is no example's, yet fed: {self._places(one_fed)}")
        if (more := len(self.foreign) - self.shown) > 0:
            found.append(f"{more} more {'id was' if more == 1 else 'ids were'} no example's")
        return "; ".join(found)

    def _places(self, fed: Misfed) -> str:
        return _listed(
            [f"replica {replica} in step {step + 1}" for replica, step in fed.places],
            self.shown,
            last=", ",
        )


def ledger_verdict(fed: NDArray[Any], num_examples: int, *, shown: int = 5) -> LedgerVerdict:
    """Compare, as multisets, the ids fed in an epoch with 0…num_examples-1, each once.

    Args:
        fed: ids [steps, replicas, per_replica_batch]; below 0: padding, or nothing.
        num_examples: number of examples.
        shown: how many examples of each kind the finding names.
    """
    true = fed >= 0
    steps, replicas, _ = np.nonzero(true)
    ids = fed[true]
    known = ids < num_examples
    times = np.bincount(ids[known], minlength=num_examples)
    order = np.argsort(ids, kind="stable")  # the places of an id stay in the order of the steps

    def misfed(numbers: NDArray[Any]) -> tuple[Misfed, ...]:
        begin, end = (np.searchsorted(ids[order], numbers, side) for side in ("left", "right"))
        return tuple(
            Misfed(int(number), tuple(zip(replicas[at].tolist(), steps[at].tolist(), strict=True)))
            for number, b, e in zip(numbers, begin, end, strict=True)
            for at in [order[b:e]]
        )

    return LedgerVerdict(
        num_examples=num_examples,
        missing=tuple(np.flatnonzero(times == 0).tolist()),
        repeated=misfed(np.flatnonzero(times > 1)),
        foreign=misfed(np.unique(ids[~known])),
        shown=shown,
    )


def _listed(items: Sequence[object], shown: int, last: str = " and ") -> str:
    """Items 1, 2 and 3; or 1, 2 and 4 more."""
    names = [str(item) for item in items[:shown]]
    if len(items) > shown:
        return f"{', '.join(names)} and {len(items) - shown} more"
    return last.join(filter(None, [", ".join(names[:-1]), names[-1]]))


def training_ledger(arm: Mapping[str, Trace], reference: Trace, *, synchronous: bool) -> Check:
    """Whether each epoch was fed each example once, and each update the reference's examples."""
    name = "training ledger"
    expected = int(reference.meta["train_examples"])
    for task, trace in arm.items():
        if not len(trace.fed):
            reason = trace.error or "it kept no list of what it was fed"
            return Check(name=name, passed=False, finding=f"{task}: {reason}")
        for where, verdict in _verdicts(trace, expected):
            if not verdict.passed:
                return Check(name=name, passed=False, finding=f"{where}: {verdict.finding}")
        if len(trace.fed) != len(reference.fed):
            finding = f"{task} saw {len(trace.fed)} epochs, the reference {len(reference.fed)}"
            return Check(name=name, passed=False, finding=finding)
        idle = ~(trace.fed >= 0).any(axis=(0, 1, 3))
        if idle.any():
            finding = (
                f"replica {int(np.argmax(idle)) + 1} was fed nothing in all {reference.steps} "
                "updates, so that nothing is known of it: watch more, or use a smaller global batch"
            )
            return Check(name=name, passed=False, finding=finding)
        if synchronous and (step := _other_batch(trace.fed, reference.fed)):
            finding = f"update {step} was fed other examples than the reference's"
            return Check(name=name, passed=False, finding=finding)
    epochs = len(reference.fed)
    if not arm:
        return Check(name=name, passed=False, finding="no process kept a list")
    often = "in each pass over them, in all" if reference.meta.get("goes_on") else "in each of"
    return Check(
        name=name,
        passed=True,
        finding=f"each of {expected} examples once {often} {epochs} epochs",
    )


def _verdicts(trace: Trace, examples: int) -> Iterator[tuple[str, LedgerVerdict]]:
    """The verdict of each epoch; where epochs go on, of each pass over so many examples."""
    if not trace.meta.get("goes_on"):
        for epoch, fed in enumerate(trace.fed, start=1):
            yield f"epoch {epoch}", ledger_verdict(fed, examples)
        return
    fed = trace.fed.reshape(-1, *trace.fed.shape[2:])  # the places of all epochs, in order
    before = trace.meta.get("epochs_before", 0) * trace.fed[0].size
    passes = (before + np.arange(fed.size).reshape(fed.shape)) // examples
    for number in range(passes.min(), passes.max() + 1):
        here = passes == number
        verdict = ledger_verdict(np.where(here, fed, -1), examples)
        whole = here.sum() == examples  # the training may begin or end within a pass
        yield f"pass {number + 1}", verdict if whole else replace(verdict, missing=())


def _other_batch(fed: NDArray[Any], reference: NDArray[Any]) -> int | None:
    """The first update, from 1, with other examples than in the reference."""
    if fed.shape[:2] != reference.shape[:2]:
        return 1
    steps = fed.shape[0] * fed.shape[1]
    pairs = zip(fed.reshape(steps, -1), reference.reshape(steps, -1), strict=True)
    for step, (mine, theirs) in enumerate(pairs, start=1):
        if not np.array_equal(np.sort(mine[mine >= 0]), np.sort(theirs[theirs >= 0])):
            return step
    return None


def validation_ledger(arm: Mapping[str, Trace], reference: Trace) -> Check:
    """Whether each evaluation counted each held-out example once."""
    name = "validation ledger"
    if not any(reference.meta["validation_examples"]):
        return Check(name=name, passed=True, covered=False, finding="nothing is evaluated")
    expected = digest_of_each_once(int(reference.meta["validation_examples"][0]))
    for task, trace in arm.items():
        ledgers = trace.meta.get("validation_ledgers") or []
        if not ledgers or len(ledgers) != len(reference.meta["validation_examples"]):
            finding = f"{task}: {trace.error or 'nothing was evaluated'}"
            return Check(name=name, passed=False, finding=finding)
        for epoch, ledger in enumerate(ledgers, start=1):
            if ledger is None or LedgerDigest(**ledger) != expected:
                counted = "unknown" if ledger is None else ledger["count"]
                finding = (
                    f"{task} counted {counted} examples after epoch {epoch}, and not each of the "
                    f"{expected.count} once"
                )
                return Check(name=name, passed=False, finding=finding)
    if not arm:
        return Check(name=name, passed=False, finding="no process counted")
    return Check(name=name, passed=True, finding=f"each of {expected.count} examples once")


def each_applied_once(counted: Counted, *, synchronous: bool) -> Check:
    """`applied_once` of several counting cases, whose epochs end with other short batches."""
    found = [
        applied_once(traces, synchronous=synchronous, num_examples=examples)
        for examples, traces in counted.items()
    ]
    sizes = [size_of(check.worst) if check.worst else math.inf for check in found]
    return found[int(np.argmax(sizes))]  # a check without a worst place has failed


def applied_once(
    arm: Mapping[str, Trace],
    *,
    synchronous: bool,
    num_examples: int,
    epochs: int = COUNTED_EPOCHS,
) -> Check:
    """Whether the gradient of each fed example was applied once, with its weight (workloads.py).

    An update of n examples moves the weight of each example by 1 ÷ n. In synchronous arms n counts
    the examples of all replicas; in asynchronous arms, those of one replica. NumPy adds this up.
    """
    name, tolerance = "each gradient once", TOLERANCE["float64"]
    if obstacle := unfinished(arm):
        return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
    for task, trace in arm.items():
        verdicts = [ledger_verdict(fed, num_examples) for fed in trace.fed]
        wrong = next((v.finding for v in verdicts if not v.passed), "")
        if wrong or len(trace.fed) != epochs:
            wrong = wrong or f"it kept a list of {len(trace.fed)} epochs, not of {epochs}"
            return Check(name=name, passed=False, finding=f"{task}: {wrong}", tolerance=tolerance)
    found = [_applied(task, trace, synchronous=synchronous) for task, trace in arm.items()]
    worst = max(found, key=size_of)
    passed = not worst.exceeds(tolerance)
    finding = "each example's gradient was applied once, at its weight"
    return Check(
        name=name,
        passed=passed,
        finding=finding if passed else f"gradients were lost, doubled or rescaled: {worst}",
        tolerance=tolerance,
        worst=worst,
    )


def _applied(task: str, trace: Trace, *, synchronous: bool) -> Deviation:
    """The final weight of one process that is furthest from the sum in NumPy."""
    (found,) = trace.final.values()
    expected = np.zeros(found.size)
    for epoch in trace.fed:
        rows = len(epoch) if synchronous else -1
        for fed in epoch.reshape(rows, -1 if synchronous else epoch.shape[-1]):
            ids = fed[fed >= 0]
            np.add.at(expected, ids, 1.0 / max(1, len(ids)))
    difference = np.abs(found.reshape(-1) - expected)
    at = int(np.argmax(difference))  # the first NaN, if there is one
    value = float(difference[at] / expected.max()) if expected.any() else math.inf
    return Deviation(
        value=value if math.isfinite(value) else None,
        kind="weights",
        name=f"example {at}",
        step=sum(trace.meta["updates"]),
        task=task,
    )


def independent_randomness(
    arm: Mapping[str, Trace] | None, *, replicas: int, synchronous: bool
) -> Check:
    """Whether the replicas draw different random numbers, as a timed run seeds them.

    In the other cases a draw belongs to the example (example_random.py). Asynchronous workers run
    one function with one seed, each with a stream of its own: their draws are the
    same from turn to turn, which is told and does not fail the arm.

    Args:
        arm: trace of each process, of the case that draws; None: no layer draws.
        replicas: of the arm.
        synchronous: whether they make updates together.
    """
    name = "independent randomness"
    if arm is None:
        return Check(name=name, passed=True, finding="no layer draws random numbers")
    if not arm:
        return Check(name=name, passed=False, finding="no process wrote what it draws")
    for task, trace in arm.items():
        if trace.error or not trace.drawn:
            finding = f"{task}: {trace.error or 'it drew nothing'}"
            return Check(name=name, passed=False, finding=finding)
        for layer, rows in trace.drawn.items():
            if same := _same_rows(rows):
                one, other = same
                finding = (
                    f"replicas {one + 1} and {other + 1} draw the same random numbers in layer "
                    f"{layer}: a mask depends on the position in the batch, not on the replica"
                )
                if synchronous:
                    return Check(name=name, passed=False, finding=finding)
                finding = f"not covered, because TensorFlow seeds all workers alike: {finding}"
                return Check(name=name, passed=True, covered=False, finding=finding)
    layers = [name for name in next(iter(arm.values())).drawn if name != BY_TENSORFLOW]
    where = f"in {plural(len(layers), 'layer')} and by" if layers else "by"
    finding = f"{replicas} replicas draw different numbers {where} {BY_TENSORFLOW}, untied"
    return Check(name=name, passed=True, finding=finding)


def _same_rows(rows: NDArray[Any]) -> tuple[int, int] | None:
    """The first two rows that are equal, from 0."""
    for one, other in itertools.combinations(range(len(rows)), 2):
        if np.array_equal(rows[one], rows[other]):
            return one, other
    return None


def convergence(arm: Sequence[Trace], reference: Sequence[Trace], finer: Sequence[Trace]) -> Check:
    """Whether the validation loss falls as far as in the serial run, and not much further.

    Two one-sided paired t-tests over the same seeds. An arm that misses a share of MARGIN or more
    of the serial run's fall passes with a probability of at most ERROR_PROBABILITY. So does an arm
    that falls further than both serial runs by that share: staleness betters nothing, so such an
    arm trains something else. This assumes that the shares are normally distributed over seeds.

    Args:
        arm: one trace for each seed.
        reference: traces of the serial run, in the same order.
        finer: of a serial run that makes as many updates as the arm, each from a worker's slice.
    """
    name = "convergence"
    for trace in (*arm, *reference, *finer):
        if trace.error:
            return Check(name=name, passed=False, finding=f"a seed ended with {trace.error}")
    for one, other in zip(arm, reference, strict=True):
        found, expected = (
            sum(ledger["count"] for ledger in trace.meta["ledgers"]) for trace in (one, other)
        )
        if found != expected:
            finding = f"a seed trained on {found} examples, the serial run on {expected}"
            return Check(name=name, passed=False, finding=finding)
    if not all("loss" in trace.evaluation for trace in reference):
        finding = "not covered, because the workload has no validation data, or no loss of them"
        return Check(name=name, passed=True, covered=False, finding=finding)
    first = np.array([float(trace.meta["initial_loss"]) for trace in reference])
    end, serial, more = (
        np.array([t.evaluation["loss"][-1] for t in traces]) for traces in (arm, reference, finer)
    )
    best = np.minimum(serial, more)
    if not np.all(first > serial):
        finding = "the serial run itself does not learn, so that nothing can be said"
        return Check(name=name, passed=False, finding=finding)
    missed, most_missed = _bound((end - serial) / (first - serial))
    gained, most_gained = _bound((best - end) / (first - best))
    return Check(
        name=name,
        passed=most_missed < MARGIN and most_gained < MARGIN,
        finding=(
            f"over {len(first)} seeds the validation loss falls {1 - missed:.1%} as far as in the "
            f"serial run, at least {1 - most_missed:.1%} with {1 - ERROR_PROBABILITY:.0%} "
            f"confidence; more than {1 - MARGIN:.0%} is asked. It falls {1 + gained:.1%} as far as "
            f"in the better of that and a serial run with as many updates, at most "
            f"{1 + most_gained:.1%}; {1 + MARGIN:.0%} is too good to be the same training"
        ),
    )


def _bound(shares: NDArray[Any]) -> tuple[float, float]:
    """The mean, and its one-sided upper confidence bound by Student's t."""
    n = len(shares)
    mean, error = float(np.mean(shares)), float(np.std(shares, ddof=1)) / math.sqrt(n)
    return mean, mean + float(stats.t.ppf(1 - ERROR_PROBABILITY, n - 1)) * error


def reference_is_plain_keras(
    plain: Trace, reference: Trace, rounded: Trace | None = None, precision: str = "float64"
) -> Check:
    """Whether plain Keras trains and evaluates as the serial reference does (plain_keras.py).

    Args:
        plain: what plain Keras did; its meta names what it has not compared.
        reference: the serial run.
        rounded: see `ringside.verify.gate.parity`.
        precision: of all runs.
    """
    name = "reference is plain Keras"
    if plain.error:
        ended = "" if plain.error == OTHER_DATA else "plain Keras ended with "
        return Check(name=name, passed=False, finding=f"{ended}{plain.error}")
    without = set(plain.meta["without"])
    final = {metric: values[-1:] for metric, values in reference.evaluation.items()}
    expected, found = replace(reference, evaluation=final), replace(plain)
    for group in without - {"loss"}:
        setattr(expected, group, {})
        setattr(found, group, {})
    if "loss" in without:
        expected.loss = found.loss = np.zeros(reference.steps)
    check = parity({"plain Keras": found}, expected, precision=precision, rounded=rounded)
    if rounded and not (evaluated := _evaluated_alike(found, expected, precision)).passed:
        check = evaluated
    alike = (
        "plain Keras trains and evaluates alike"
        if check.passed
        else ("the reference, with which all arms are compared, differs from plain Keras")
    )
    finding = "; ".join([f"{alike}: {check.finding}", *plain.meta["limits"]])
    trained = "weights" not in without
    return check.replace(name=name, finding=finding, covered=trained, by_step=())


def _evaluated_alike(plain: Trace, reference: Trace, precision: str) -> Check:
    """Whether plain Keras evaluates the reference's weights alike: there rounding is small."""
    untrained: dict[str, Any] = {"weights": {}, "slots": {}, "metrics": {}, "final": {}}
    one, other = (replace(t, **untrained, loss=np.zeros(t.steps)) for t in (plain, reference))
    return parity({"plain Keras": one}, other, precision=precision)
