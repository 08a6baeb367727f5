"""Each deliberate mistake does under a real backend what its sentence says, and nothing else does.

One launch for each backend trains rightly and with every mistake (controls/train.py); NumPy makes
the same mistakes by hand.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Site, execute, make_plan
from ringside.verify.mistakes import (
    EPOCHS,
    GLOBAL_BATCH,
    MISTAKES,
    TRAIN_EXAMPLES,
    VALIDATION_EXAMPLES,
    obstacle,
)
from ringside_core.specs import RunSpec, Topology, capabilities_of
from tests.verify import by_hand
from tests.verify.by_hand import Batch, Weights

# The first question to an arm waits for its trainings, some twenty of them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
DEADLINE_S, SEED, REPLICAS = 120.0, 5, 2
SIZE = GLOBAL_BATCH // REPLICAS
RELATIVE = 1e-10
"""Agreement asked of float64 (DESIGN.md, Parity); a mistake must be far beyond it."""
FAR = 1e-6

Answer = dict[str, np.ndarray]
Start = Callable[["Arm"], dict[str, list[Answer]]]


@dataclass(frozen=True)
class Arm:
    """A backend with two replicas."""

    backend: str
    options: tuple[tuple[str, str], ...] = field(default=())

    def __str__(self) -> str:
        return "-".join([self.backend, *(value for _, value in self.options)])

    @property
    def spec(self) -> RunSpec:
        """The run of the control workload."""
        single = capabilities_of(self.backend).process_model == "single"
        return RunSpec(
            workload="ringside.verify.controls:control_workload",
            backend=self.backend,
            options=dict(self.options),
            topology=Topology(replicas_per_process=REPLICAS)
            if single
            else Topology(processes_per_host=REPLICAS),
            global_batch=GLOBAL_BATCH,
            epochs=EPOCHS,
            precision="float64",
            seed=SEED,
            save="record",
        )


# The ways in which mistakes are made: around one process's strategy, where variables are shared,
# and around Horovod. That they are caught in every arm is asked in test_detection.py.
SYNCHRONOUS = [
    Arm("mirrored"),
    Arm("central_storage"),
    Arm("horovod", (("controller", "gloo"),)),
]
ASYNCHRONOUS = Arm("parameter_server")
NAMES = [mistake.name for mistake in MISTAKES]
arms = pytest.mark.parametrize("arm", SYNCHRONOUS, ids=str)
mistakes = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """All trainings of an arm in fresh processes, once; answers by training, in order of ranks."""

    @cache
    def run(arm: Arm) -> dict[str, list[Answer]]:
        run_dir = tmp_path_factory.mktemp(str(arm))
        site = dataclasses.replace(Site.here(), root=str(HERE / "controls"))
        plan = make_plan(arm.spec, run_dir=run_dir, site=site)
        execution = execute(plan, deadline_s=DEADLINE_S)
        lines = "\n".join(execution.last_lines)
        assert execution.outcome.completed, f"{execution.outcome}\n{lines}"
        answers: dict[str, list[Answer]] = {}
        for path in sorted(run_dir.glob("*.npz")):
            answers.setdefault(path.name.partition("-")[0], []).append(dict(np.load(path)))
        return answers

    return run


@arms
def test_without_a_mistake_nothing_changes(start: Start, arm: Arm) -> None:
    """A backend behind a proxy that replaces nothing trains to the same bytes."""
    answers = start(arm)

    for plain, behind in zip(answers["clean"], answers["clean_proxy"], strict=True):
        assert plain.keys() == behind.keys()
        for key, value in plain.items():
            np.testing.assert_array_equal(behind[key], value)


@mistakes
@pytest.mark.parametrize("arm", [*SYNCHRONOUS, ASYNCHRONOUS], ids=str)
def test_a_mistake_shows(start: Start, arm: Arm, name: str) -> None:
    """Weights or evaluations are far from those of the run without it."""
    answers = start(arm)
    if obstacle(name, arm.spec) is not None:
        assert name not in answers
        return
    right = {
        "batch_norm_not_synchronised": "clean_batch_norm",
        "state_not_restored_everywhere": "clean_restarted",
    }.get(name, "clean")

    largest = max(
        float(np.max(np.abs(wrong[key][:rows] - clean[key][:rows]), initial=0.0))
        for wrong, clean in zip(answers[name], answers[right], strict=True)
        for key in clean
        if key == "evaluation" or key.startswith("weight_")
        for rows in [min(len(wrong[key]), len(clean[key]))]
        if rows  # a guard may have ended it before the first evaluation
    )

    assert largest > FAR


@pytest.mark.parametrize("name", [n for n in NAMES if "norm" not in n] + ["clean_restarted"])
@arms
def test_weights_are_those_of_the_mistake_by_hand(start: Start, arm: Arm, name: str) -> None:
    """After each update, until a guard of `fit` ended it, each replica is where NumPy is."""
    answers = start(arm)
    if name not in answers:
        pytest.skip(str(obstacle(name, arm.spec)))
    seen, clean = weights_seen(answers[name]), weights_seen(answers["clean"])

    expected = trained_by_hand(name, arm, seen[0], clean[0])

    assert len(seen) >= 2
    for found, wanted in zip(seen, expected, strict=False):
        for replica, weights in enumerate(found):
            for a, b in zip(weights, wanted[replica], strict=True):
                np.testing.assert_allclose(a, b, rtol=RELATIVE, atol=RELATIVE)


@arms
def test_guards_of_fit_stop_what_they_can(start: Start, arm: Arm) -> None:
    """Replicas that part and wrong counts end the training; all other mistakes go through."""
    answers = start(arm)
    own_copies = arm.backend != "central_storage"
    parted = {"no_initial_broadcast", "state_not_restored_everywhere"}
    if own_copies:
        parted |= {"not_reduced", "partly_reduced"}

    guards = {name: {str(answer["guard"]) for answer in found} for name, found in answers.items()}

    for name, guard in guards.items():
        if name in parted:
            assert guard == {"ReplicasDifferError"}, name
        elif name in ("same_shard", "fed_nothing"):
            assert guard == {"LedgerError"}, name
        else:
            assert guard == {""}, name


@arms
def test_evaluations_are_those_of_the_mistake_by_hand(start: Start, arm: Arm) -> None:
    """Loss and RMSE of held-out examples: all, cut, as a plain mean, and with padding."""
    x, y = control_data("validation")
    padded = [position % VALIDATION_EXAMPLES for position in range(GLOBAL_BATCH)]
    answers = start(arm)

    def errors(name: str) -> np.ndarray:
        return by_hand.squared_errors(weights_seen(answers[name])[-1][0], x, y)

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
        for answer in answers[name]:
            np.testing.assert_allclose(answer["evaluation"][-1], values, rtol=RELATIVE)


@arms
def test_batch_norm_sees_one_slice_only(start: Start, arm: Arm) -> None:
    """After one update the replicas' moving variance is of their slices, not of the batch."""
    x, y = control_data("train")
    answers = start(arm)
    first = by_hand.batches(
        x,
        y,
        by_hand.order(0, seed=SEED, total=TRAIN_EXAMPLES),
        global_batch=GLOBAL_BATCH,
        replicas=REPLICAS,
    )[0]

    def moved(name: str) -> np.ndarray:
        # kernel, bias, gamma, beta, mean, variance, kernel, bias
        after_first = weights_seen(answers[name])[1]
        return np.asarray(np.mean([weights[5] for weights in after_first], axis=0))

    a, b = weights_seen(answers["clean_batch_norm"])[0][0][:2]
    hidden = [np.tanh(batch.x @ a + b) for batch in first]
    kept = by_hand.MOMENTUM  # of the variance, which is 1 at first
    whole = kept + (1 - kept) * np.concatenate(hidden).var(axis=0)
    sliced = kept + (1 - kept) * np.mean([h.var(axis=0) for h in hidden], axis=0)
    np.testing.assert_allclose(moved("clean_batch_norm"), whole, rtol=RELATIVE)
    np.testing.assert_allclose(moved("batch_norm_not_synchronised"), sliced, rtol=RELATIVE)


def test_asynchronous_examples_count_as_by_hand(start: Start) -> None:
    """One weight for each example ends at what the example counted in two epochs, by arithmetic."""
    answers = start(ASYNCHRONOUS)
    unchanged = {"clean", "clean_proxy", "metric_mean_unweighted", "validation_tail_dropped"}
    names = unchanged | {
        *("gradients_summed", "rate_scaled_twice", "same_shard", "fed_nothing"),
        *("tail_dropped", "padding_counted", "different_order"),
    }

    assert names == answers.keys() - {"clean_batch_norm", "clean_restarted"}
    for name in names:
        found = answers[name][0]["weight_00"][-1, 0, :, 0]
        np.testing.assert_allclose(
            found, by_hand.counted(name, seed=SEED, replicas=REPLICAS), rtol=RELATIVE, err_msg=name
        )


def test_asynchronous_evaluations_are_those_of_the_mistake(start: Start) -> None:
    """The RMSE of the first six, and the mean of those of six and of one, from the weights."""
    answers = start(ASYNCHRONOUS)
    outputs = by_hand.counted("clean", seed=SEED, replicas=REPLICAS)[:VALIDATION_EXAMPLES]
    errors = (outputs - np.arange(1.0, VALIDATION_EXAMPLES + 1)) ** 2

    def last(name: str) -> float:
        return float(answers[name][0]["evaluation"][-1][1])

    rms = [np.sqrt(part.mean()) for part in (errors[:SIZE], errors[SIZE:])]
    assert last("clean") == pytest.approx(np.sqrt(errors.mean()), rel=RELATIVE)
    assert last("validation_tail_dropped") == pytest.approx(rms[0], rel=RELATIVE)
    assert last("metric_mean_unweighted") == pytest.approx(np.mean(rms), rel=RELATIVE)


def control_data(split: str) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the control workload."""
    from ringside.verify.controls import control_workload

    x, y = getattr(control_workload(), split).arrays
    return x, y


def weights_seen(answers: list[Answer]) -> list[list[Weights]]:
    """[update + 1][replica][variable], of all processes."""
    updates = len(answers[0]["weight_00"])
    rows: list[list[Weights]] = [[] for _ in range(updates)]
    for answer in answers:
        columns = [answer[key] for key in sorted(answer) if key.startswith("weight_")]
        for update in range(updates):
            for replica in range(columns[0].shape[1]):
                rows[update].append([column[update, replica] for column in columns])
    return rows


def trained_by_hand(
    name: str, arm: Arm, began: list[Weights], right: list[Weights]
) -> list[list[Weights]]:
    """What each replica should hold after each update.

    Args:
        name: of the mistake.
        arm: where it is made.
        began: the initial weights that were seen, of each replica.
        right: those of the training without a mistake.
    """
    total = TRAIN_EXAMPLES
    if name == "tail_dropped":
        total -= total % GLOBAL_BATCH
    epochs = [fed_by_hand(name, epoch, total) for epoch in range(EPOCHS)]
    starts = [list(right[0]) for _ in range(REPLICAS)]
    if name == "no_initial_broadcast":
        starts = began
    rate = by_hand.RATE * (REPLICAS if name == "rate_scaled_twice" else 1)
    if name not in ("clean_restarted", "state_not_restored_everywhere"):
        return by_hand.train(starts, epochs, combine=combined_by_hand(name, arm), rate=rate)
    first = by_hand.train(starts, epochs[:1])
    before, after = first[-2], first[-1]
    moving = [
        [b - a for a, b in zip(old, new, strict=True)]
        for old, new in zip(before, after, strict=True)
    ]
    if name == "state_not_restored_everywhere":
        moving[1] = [np.zeros_like(m) for m in moving[1]]
    return by_hand.train(after, epochs[1:], velocities=moving)


def fed_by_hand(name: str, epoch: int, total: int) -> list[list[Batch]]:
    """One epoch of what each replica is fed, [update][replica]."""
    x, y = control_data("train")

    def fed(seed: int) -> list[list[Batch]]:
        order = by_hand.order(epoch, seed=seed, total=total)
        return by_hand.batches(x, y, order, global_batch=GLOBAL_BATCH, replicas=REPLICAS)

    updates = fed(SEED)
    if name == "same_shard":
        return [[update[0]] * REPLICAS for update in updates]
    if name == "different_order":
        by_reader = [fed(SEED + reader) for reader in range(REPLICAS)]
        return [
            [by_reader[reader][k][reader] for reader in range(REPLICAS)]
            for k in range(len(updates))
        ]
    if name == "fed_nothing" and epoch == 0:
        empty = updates[1][-1]
        updates[1][-1] = dataclasses.replace(empty, weight=np.zeros_like(empty.weight))
    if name == "local_mean":
        return [
            [dataclasses.replace(b, scale=SIZE / max(1, b.weight.sum())) for b in update]
            for update in updates
        ]
    if name == "padding_counted":
        ones = np.ones(SIZE)
        return [
            [dataclasses.replace(b, weight=ones, scale=1.0) for b in update] for update in updates
        ]
    return updates


def combined_by_hand(name: str, arm: Arm) -> by_hand.Combine:
    """What each replica applies of all replicas' gradients."""

    def summed(local: list[Weights]) -> list[Weights]:
        return [[REPLICAS * g for g in replica] for replica in by_hand.mean(local)]

    def own(local: list[Weights]) -> list[Weights]:
        if arm.backend == "horovod":
            return local
        # A strategy's loss is divided by the replicas, for the sum that does not come.
        parts = [[g / REPLICAS for g in replica] for replica in local]
        return [parts[0]] * REPLICAS if arm.backend == "central_storage" else parts

    def partly(local: list[Weights]) -> list[Weights]:
        pairs = zip(by_hand.mean(local), own(local), strict=True)
        return [[*reduced[:-1], alone[-1]] for reduced, alone in pairs]

    def halves(local: list[Weights]) -> list[Weights]:
        columns: Any = zip(*local, strict=True)
        merged = [
            np.sum([(g / REPLICAS).astype(np.float16) for g in column], axis=0, dtype=np.float16)
            for column in columns
        ]
        return [[half.astype(np.float64) for half in merged]] * REPLICAS

    return {
        "gradients_summed": summed,
        "not_reduced": own,
        "partly_reduced": partly,
        "float16_compression": halves,
    }.get(name, by_hand.mean)
