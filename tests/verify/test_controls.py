"""Every deliberate mistake is caught wherever it can be made, and does what its sentence says.

`detect` makes each mistake in each arm, in one start of processes for an arm. What the gate says of
it is in the matrix; what the processes saw is read again from their traces, and compared with
NumPy's training that makes the same mistake by hand (mistaken.py). Asynchronous updates have no one
right order: there a workload whose weights count examples is trained (by_hand.counting).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ringside.verify.cases import watched_spec
from ringside.verify.detect import detect
from ringside.verify.mistakes import (
    EPOCHS,
    GLOBAL_BATCH,
    MISTAKES,
    TRAIN_EXAMPLES,
    VALIDATION_EXAMPLES,
    obstacle,
)
from ringside.verify.processes import run_request
from ringside.verify.request import Case, Request
from ringside.verify.trace import Trace
from ringside_core.specs import ControlResult, DetectionMatrix
from ringside_core.text import file_name
from tests.independent import order
from tests.verify import by_hand
from tests.verify.arms import MPI, SYNCHRONOUS, subject
from tests.verify.by_hand import Weights
from tests.verify.mistaken import REPLICAS, SEED, SIZE, control_data, trained_by_hand

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("warm"),
]
RELATIVE = 1e-10
"""Agreement asked of float64; a mistake must be far beyond it."""
FAR = 1e-6
NAMES = [mistake.name for mistake in MISTAKES]
CLEAN = {
    "batch_norm_not_synchronised": "clean-batch-norm",
    "state_not_restored_everywhere": "clean-resumed",
}
"""The case without a mistake that a case is compared with, where it is not `clean`."""

EXACT = {
    one.arm.label: one
    for one in (subject(name, 2, options) for name, options in SYNCHRONOUS if options != MPI)
}
OWN_LOSS = "clean-own-loss"
ASYNCHRONOUS = subject("parameter_server", 2)
ARMS = {**EXACT, ASYNCHRONOUS.arm.label: ASYNCHRONOUS}
arms = pytest.mark.parametrize("arm", EXACT)

# Of an arm, by case: the traces of its processes in order of rank.
Seen = Mapping[str, Sequence[Trace]]
Counted = Mapping[str, Trace]


@dataclass(frozen=True)
class Detected:
    """The matrix, and by arm what it was made from."""

    matrix: DetectionMatrix
    seen: Mapping[str, Seen]


@pytest.fixture(scope="module", name="detected")
def detected_(tmp_path_factory: pytest.TempPathFactory) -> Detected:
    """All mistakes in all arms: one start of processes for each arm."""
    folder = tmp_path_factory.mktemp("detect")
    matrix = detect([*ARMS.values()], folder=folder)
    seen: dict[str, dict[str, list[Trace]]] = {arm: {} for arm in ARMS}
    for arm, cases in seen.items():
        for path in sorted(folder.glob(f"{file_name(arm)}/start-*/traces/*/*.npz")):
            cases.setdefault(path.parent.name, []).append(Trace.read(path))
    return Detected(matrix, seen)


@pytest.fixture(scope="module", name="counted")
def counted_(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """What the coordinator of asynchronous workers saw of each training, by its name."""
    spec = watched_spec(ASYNCHRONOUS.spec).replace(
        workload="tests.verify.by_hand:counting",
        global_batch=GLOBAL_BATCH,
        epochs=EPOCHS,
        precision="float64",
        seed=SEED,
    )
    mistakes = [name for name in NAMES if obstacle(name, spec) is None]
    cases = [Case(name=name, spec=spec, steps=None, mistake=name) for name in mistakes]
    own_loss = spec.replace(workload_options={"own_loss": True})
    clean = [Case(name=n, spec=s, steps=None) for n, s in (("clean", spec), (OWN_LOSS, own_loss))]
    request = Request(cases=(*clean, *cases))
    watched = run_request(request, spec, tmp_path_factory.mktemp("counted"))
    assert not watched.obstacle, watched.execution.last_lines
    return {name: traces["chief-0"] for name, traces in watched.traces.items()}


def result_of(detected: Detected, mistake: str, arm: str) -> ControlResult:
    """The one cell of the matrix."""
    results = detected.matrix.results
    (found,) = [r for r in results if (r.control, r.arm) == (mistake, arm)]
    return found


# What the gate says


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("mistake", NAMES)
def test_a_mistake_is_caught(mistake: str, arm: str, detected: Detected) -> None:
    """Or cannot be made in that arm, for a reason that is told."""
    found = result_of(detected, mistake, arm)

    assert found.caught is not False, found.by
    assert found.by


def test_no_clean_run_is_failed(detected: Detected) -> None:
    """At least 20 runs without a mistake."""
    assert detected.matrix.clean_runs >= 20
    assert detected.matrix.false_alarms == ()
    assert detected.matrix.passed


def test_most_mistakes_can_be_made_everywhere(detected: Detected) -> None:
    """What cannot be made does not count: no arm may hide behind that."""
    for label, one in ARMS.items():
        made = [r for r in detected.matrix.results if r.arm == label and r.caught is not None]
        least = 12 if one.exact else 8

        assert len(made) >= least, label


def test_an_arm_of_one_replica_is_left_out(tmp_path: Path) -> None:
    """It has nobody to disagree with; nothing is started."""
    matrix = detect([subject("one_device", 1)], folder=tmp_path)

    assert matrix.arms == ()
    assert not matrix.passed
    assert list(tmp_path.iterdir()) == []


# What the processes saw


@arms
@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_shows(detected: Detected, arm: str, name: str) -> None:
    """Weights or evaluations are far from those of the run without it."""
    seen = detected.seen[arm]
    if obstacle(name, EXACT[arm].spec.replace(global_batch=GLOBAL_BATCH)) is not None:
        assert name not in seen
        return

    pairs = zip(seen[name], seen[CLEAN.get(name, "clean")], strict=True)
    assert max(farthest(mistaken, clean) for mistaken, clean in pairs) > FAR


@pytest.mark.parametrize("name", [n for n in NAMES if "norm" not in n] + ["clean", "clean-resumed"])
@arms
def test_weights_are_those_of_the_mistake_by_hand(detected: Detected, arm: str, name: str) -> None:
    """After each update, until a guard of `fit` ended it, each replica is where NumPy is."""
    seen = detected.seen[arm]
    if name not in seen:
        pytest.skip(str(obstacle(name, EXACT[arm].spec.replace(global_batch=GLOBAL_BATCH))))
    found = [weights_of(trace) for trace in seen[name]]
    backend = EXACT[arm].spec.backend

    expected = trained_by_hand(
        name,
        backend,
        [weights[0] for weights in found],
        weights_of(seen["clean"][0])[0],
    )

    for process, weights in enumerate(found):
        assert len(weights) >= 2
        for now, wanted in zip(weights, expected, strict=False):
            for a, b in zip(now, wanted[process], strict=True):
                np.testing.assert_allclose(a, b, rtol=RELATIVE, atol=RELATIVE)
    if backend == "mirrored":  # one process has both: their largest difference was noted
        gaps = [gap_by_hand(expected[k : k + 2]) for k in range(len(expected) - 1)]
        noted = seen[name][0].replica_gap
        np.testing.assert_allclose(noted, gaps[: len(noted)], rtol=RELATIVE, atol=RELATIVE)


@arms
def test_guards_of_fit_stop_what_they_can(detected: Detected, arm: str) -> None:
    """Replicas that part and what was fed otherwise end it; all other mistakes go through."""
    parted = {"no_initial_broadcast", "state_not_restored_everywhere"}
    if EXACT[arm].spec.backend != "central_storage":  # which has one copy of the weights
        parted |= {"not_reduced", "partly_reduced"}

    for name, traces in detected.seen[arm].items():
        guards = {trace.error.partition(":")[0] for trace in traces}
        if name in parted:
            assert guards == {"ReplicasDifferError"}, name
        elif name in ("same_shard", "fed_nothing", "different_order"):
            assert guards == {"LedgerError"}, name
        else:
            assert guards == {""}, name


@arms
def test_evaluations_are_those_of_the_mistake_by_hand(detected: Detected, arm: str) -> None:
    """Loss and RMSE of held-out examples: all, cut, as a plain mean, and with padding."""
    x, y = control_data("validation")
    padded = [position % VALIDATION_EXAMPLES for position in range(GLOBAL_BATCH)]
    seen = detected.seen[arm]

    def errors(name: str) -> np.ndarray:
        return by_hand.squared_errors(weights_of(seen[name][0])[-1], x, y)

    clean = errors("clean")
    shares = [clean[:SIZE], clean[SIZE:]]
    padding = errors("padding_counted")[padded]
    expected = {
        "clean": (clean.mean(), np.sqrt(clean.mean())),
        "validation_tail_dropped": (clean[:SIZE].mean(), np.sqrt(clean[:SIZE].mean())),
        "metric_mean_unweighted": (
            np.mean([share.mean() for share in shares]),
            np.mean([np.sqrt(share.mean()) for share in shares]),
        ),
        "padding_counted": (padding.sum() / VALIDATION_EXAMPLES, np.sqrt(padding.mean())),
    }
    for name, values in expected.items():
        for trace in seen[name]:
            last = [trace.evaluation[metric][-1] for metric in ("loss", "rmse")]
            np.testing.assert_allclose(last, values, rtol=RELATIVE)


@arms
def test_batch_norm_sees_one_slice_only(detected: Detected, arm: str) -> None:
    """After one update the replicas' moving variance is of their slices, not of the batch."""
    x, y = control_data("train")
    seen = detected.seen[arm]
    first = by_hand.batches(
        x,
        y,
        order(0, seed=SEED, total=TRAIN_EXAMPLES),
        global_batch=GLOBAL_BATCH,
        replicas=REPLICAS,
    )[0]

    def moved(name: str) -> np.ndarray:
        # kernel, bias, gamma, beta, mean, variance, kernel, bias; of the variance, all replicas'
        return [*seen[name][0].weights.values()][5][1]

    a, b = ([*seen["clean-batch-norm"][0].weights.values()][i][0] for i in (0, 1))
    hidden = [np.tanh(batch.x @ a.reshape(3, 4) + b) for batch in first]
    kept = by_hand.MOMENTUM  # of the variance, which is 1 at first
    whole = kept + (1 - kept) * np.concatenate(hidden).var(axis=0)
    sliced = kept + (1 - kept) * np.mean([h.var(axis=0) for h in hidden], axis=0)
    np.testing.assert_allclose(moved("clean-batch-norm"), whole, rtol=RELATIVE)
    np.testing.assert_allclose(moved("batch_norm_not_synchronised"), sliced, rtol=RELATIVE)


@pytest.mark.parametrize("name", NAMES)
def test_an_asynchronous_mistake_shows(counted: Counted, name: str) -> None:
    """What examples count, or the evaluations, are far from those of the run without it."""
    if obstacle(name, ASYNCHRONOUS.spec.replace(global_batch=GLOBAL_BATCH)) is not None:
        assert name not in counted
        return

    assert farthest(counted[name], counted["clean"]) > FAR


def test_asynchronous_examples_count_as_by_hand(counted: Counted) -> None:
    """One weight for each example ends at what the example counted in two epochs, by arithmetic."""
    unchanged = {"clean", OWN_LOSS, "metric_mean_unweighted", "validation_tail_dropped"}
    names = unchanged | {
        *("gradients_summed", "rate_scaled_twice", "same_shard", "fed_nothing"),
        *("tail_dropped", "padding_counted", "different_order"),
    }

    assert names == counted.keys()
    for name in names:
        (weights,) = counted[name].final.values()
        np.testing.assert_allclose(
            weights[:, 0],
            by_hand.counted(name, seed=SEED, replicas=REPLICAS),
            rtol=RELATIVE,
            err_msg=name,
        )


def test_asynchronous_evaluations_are_those_of_the_mistake(counted: Counted) -> None:
    """The RMSE of the first six, and the mean of those of six and of one, from the weights."""
    outputs = by_hand.counted("clean", seed=SEED, replicas=REPLICAS)[:VALIDATION_EXAMPLES]
    errors = (outputs - np.arange(1.0, VALIDATION_EXAMPLES + 1)) ** 2

    def last(name: str) -> float:
        return float(counted[name].evaluation["rmse"][-1])

    rms = [np.sqrt(part.mean()) for part in (errors[:SIZE], errors[SIZE:])]
    assert last("clean") == pytest.approx(np.sqrt(errors.mean()), rel=RELATIVE)
    assert last("validation_tail_dropped") == pytest.approx(rms[0], rel=RELATIVE)
    assert last("metric_mean_unweighted") == pytest.approx(np.mean(rms), rel=RELATIVE)


def farthest(mistaken: Trace, clean: Trace) -> float:
    """Largest difference of weights and evaluations; a guard may have ended one run earlier."""
    found, right = ({**trace.weights, **trace.evaluation} for trace in (mistaken, clean))
    return max(
        float(np.max(np.abs(one - other)))
        for name in right.keys() & found.keys()
        for one, other in [
            [rows[: min(len(found[name]), len(right[name]))] for rows in (found[name], right[name])]
        ]
        if len(one)
    )


def weights_of(trace: Trace) -> list[Weights]:
    """[update + 1][variable] of the control workload, in their shapes."""
    shapes = ((3, 4), (4,), (4, 1), (1,))
    columns = [
        rows.reshape(-1, *shape) for rows, shape in zip(trace.weights.values(), shapes, strict=True)
    ]
    return [list(weights) for weights in zip(*columns, strict=True)]


def gap_by_hand(pair: Sequence[Sequence[Weights]]) -> float:
    """Largest difference of two replicas after an update, in weights or velocities."""
    before, after = pair
    velocities = [
        [new - old for old, new in zip(was, now, strict=True)]
        for was, now in zip(before, after, strict=True)
    ]
    return max(
        float(np.max(np.abs(a - b)))
        for one, other in (after, velocities)
        for a, b in zip(one, other, strict=True)
    )
