"""What several replicas come to, in processes of their own: one start of each case for all tests.

Runs that leave something out, several steps in one call, gradient accumulation, and statistics of
batch normalisation.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import RecordInProgress, Surroundings, capabilities_of
from tests.contract.cases import EPOCHS, FAMILIES, GLOBAL_BATCH, NUM_TRAIN, PAIRS, Case
from tests.contract.linear import INITIAL_KERNEL, LEARNING_RATE, data, linear
from tests.nightly import daily
from tests.training.replicas.runs import batches, replicas_of, train_launched, train_serial
from tests.verify.zoo import ZOO
from trainers.fit import fit
from trainers.prepare import prepare

pytestmark = pytest.mark.usefixtures("warm")
STEPS = -(-NUM_TRAIN // GLOBAL_BATCH)
ALONE = (Case("multi_worker_mirrored", 1), Case("horovod", 1))
pairs = pytest.mark.parametrize("case", daily(PAIRS, FAMILIES.__contains__), ids=str)
Weights = list[np.ndarray]


def slices(replica: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What replica r of two is fed: (x, y, weight × scale) of each step of the whole run."""
    x, y = data(NUM_TRAIN, 0)
    fed, size = [], GLOBAL_BATCH // 2
    for epoch in range(EPOCHS):
        for ids, true in batches(NUM_TRAIN, GLOBAL_BATCH, epoch):
            own = slice(replica * size, (replica + 1) * size)
            weight = np.array([float(place < true) for place in range(GLOBAL_BATCH)])[own]
            fed.append((x[ids[own]], y[ids[own]], weight[:, None] * GLOBAL_BATCH / true))
    return fed


def descend(fed: list[tuple[np.ndarray, np.ndarray, np.ndarray]], *rates: float) -> Weights:
    """Plain SGD on the mean square error, by hand; the last rate is kept."""
    kernel, bias = INITIAL_KERNEL.copy(), np.zeros(1)
    for step, (x, y, weight) in enumerate(fed):
        rate = rates[min(step, len(rates) - 1)]
        slope = 2 * weight * (x @ kernel + bias - y) / len(x)
        kernel, bias = kernel - rate * x.T @ slope, bias - rate * slope.sum(axis=0)
    return [kernel, bias]


def whole_batches() -> list[Any]:
    """The same of both replicas together."""
    return [
        tuple(np.concatenate(parts) for parts in zip(*step, strict=True))
        for step in zip(slices(0), slices(1), strict=True)
    ]


def assert_close(found: Weights, expected: Weights) -> None:
    """Equal but for rounding in float64."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("case", [*FAMILIES, Case("independent", 2)], ids=str)
def test_without_reduction_each_replica_trains_on_its_own_slices(case: Case) -> None:
    """Strategies leave a replica's gradient divided by two: half the rate on its own loss."""
    family = capabilities_of(case.backend).family
    rate = LEARNING_RATE / 2 if family == "tf.distribute" else LEARNING_RATE

    first, second = replicas_of(case, "no_reduction")

    assert_close(first, descend(slices(0), rate))
    assert_close(second, descend(slices(1), rate))
    assert not np.allclose(first[0], second[0])
    for answer in train_launched(case):
        assert answer["no_reduction"]["deviation"] is None
        assert [e["ledger"]["count"] for e in answer["no_reduction"]["epochs"]] == [NUM_TRAIN] * 2


@pairs
def test_without_input_the_first_batch_is_trained_again_and_again(case: Case) -> None:
    """All updates are those of the first global batch, and no ledger claims anything else."""
    expected = descend([whole_batches()[0]] * (STEPS * EPOCHS), LEARNING_RATE)

    for weights in replicas_of(case, "no_input"):
        assert_close(weights, expected)
    for answer in train_launched(case):
        for epoch in answer["no_input"]["epochs"]:
            assert (epoch["ledger"], epoch["ledger_here"]) == (None, [])
            assert epoch["examples"] == STEPS * GLOBAL_BATCH
            assert epoch["validation_ledger"] is not None


@pairs
def test_the_rate_warms_up(case: Case) -> None:
    """Twice the reference batch: in a straight line to twice the rate, over the first epoch."""
    rates = [LEARNING_RATE * (1 + step / STEPS) for step in range(STEPS + 1)]

    for weights in replicas_of(case, "warmed_up"):
        assert_close(weights, descend(whole_batches(), *rates))


@pairs
def test_several_steps_at_once_change_no_bit(case: Case) -> None:
    """Four updates as three and one: two times, eight updates told, the weights of single ones."""
    for answer in train_launched(case):
        plain, at_once = answer["plain"], answer["three_at_once"]
        assert at_once["final_digest"] == plain["final_digest"]
        assert at_once["deviation"] == 0.0
        for epoch, single in zip(at_once["epochs"], plain["epochs"], strict=True):
            assert (epoch["steps"], epoch["steps_per_time"]) == (STEPS, 3)
            assert len(epoch["step_end_s"]) == 2
            assert epoch["ledger"] == single["ledger"]
            assert epoch["train"] == pytest.approx(single["train"], rel=1e-12)
        told = [tuple(one) for one in at_once["told"]]
        assert told[:4] == [(3, 8), (4, 8), (7, 8), (8, 8)]
        assert set(told[4:]) == {(8, 8)}  # the measurement of the clock


@pytest.mark.parametrize("case", daily(ALONE, lambda case: case == ALONE[1]), ids=str)
def test_an_unused_backend_trains_as_none_does(case: Case, tmp_path: Path) -> None:
    """To the last bit, with the ledger and the proof of any run."""
    record = RecordInProgress.begun(Case("serial", 1).spec("any", save="record"))
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx("float64")
    try:
        with make_backend(record.spec, Surroundings()) as backend:
            fit(prepare(record, linear(), backend, run_dir=tmp_path))
    finally:
        tf.keras.backend.set_floatx(before)

    (answer,) = train_launched(case)

    assert answer["unused"]["strategy"] == "_DefaultDistributionStrategy"
    assert not answer["unused"]["reduces"]
    assert answer["unused"]["final_digest"] == record.final_digest
    assert answer["unused"]["deviation"] == 0.0
    ledgers = [epoch["ledger"] for epoch in answer["unused"]["epochs"]]
    assert ledgers == [epoch.ledger.model_dump() for epoch in record.epochs if epoch.ledger]


@pairs
@pytest.mark.parametrize("passes", [1, 2])
def test_replicas_normalise_by_their_own_slices(case: Case, passes: int) -> None:
    """Real replicas end where virtual ones do, and all of them hold the same moving statistics."""
    expected, _ = train_serial(
        ZOO["batch_norm"](), virtual_replicas=case.replicas, gradient_accumulation_steps=passes
    )

    assert_all_there(replicas_of(case, f"batch_norm-{passes}"), expected, case, 1e-10)


@pairs
@pytest.mark.parametrize(
    ("training", "tolerance"), [("sync_batch_norm-1", 1e-10), ("global_clipnorm-3", 1e-12)]
)
def test_replicas_that_share_all_end_where_one_does(
    case: Case, training: str, tolerance: float
) -> None:
    """Synchronised statistics are of the global batch; three passes reduce once and then clip."""
    whole, _ = train_serial(ZOO[training.rpartition("-")[0]]())

    assert_all_there(replicas_of(case, training), whole, case, tolerance)


def assert_all_there(
    replicas: list[Weights], expected: Weights, case: Case, tolerance: float
) -> None:
    """Every replica has the expected weights."""
    assert len(replicas) == case.replicas
    for weights in replicas:
        for one, other in zip(weights, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
