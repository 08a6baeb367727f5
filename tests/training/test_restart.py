"""A training that goes on in the middle of an epoch is the one that was never broken off."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringside_core.specs import RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.cases import NUM_TRAIN
from tests.contract.linear import data
from tests.nightly import nightly
from tests.training.momentum import momentum, train_serial

CLOSE = 1e-12


def arrays() -> Workload:
    """Rows that Keras shuffles itself, in batches of 6."""
    return dataclasses.replace(momentum(), train=data(NUM_TRAIN, 0), reference_batch=6)


@pytest.mark.parametrize("stop_after", [3, nightly(6), 7])
@pytest.mark.parametrize("trained", [momentum, arrays])
def test_a_serial_run_goes_on_bitwise(
    tmp_path: Path, trained: Callable[[], Workload], stop_after: int
) -> None:
    """Weights, records and ledger of a run broken off in either epoch and resumed."""
    unbroken, weights = train_serial(tmp_path / "whole", save="record", trained=trained)
    done, steps = divmod(stop_after // 2 * 2, 4)

    train_serial(tmp_path, stop_after=stop_after, checkpoint_steps=2, trained=trained)
    resumed, again = train_serial(
        tmp_path / "again", resume_from=str(tmp_path / "checkpoint.npz"), trained=trained
    )

    np.testing.assert_equal(weights, again)
    pairs = zip(unbroken.epochs[done:], resumed.epochs, strict=True)
    for number, (expected, found) in enumerate(pairs):
        assert found.train == pytest.approx(expected.train, rel=CLOSE)
        assert found.validation == pytest.approx(expected.validation, rel=CLOSE)
        assert found.resumed_examples == (0 if number else 6 * steps)
        assert found.examples == NUM_TRAIN - found.resumed_examples
        assert found.steps == (4 if number else 4 - steps)
        assert found.ledger == expected.ledger
        assert found.ledger is not None
        assert found.ledger.rows == NUM_TRAIN


def test_a_run_broken_off_twice_in_one_epoch(tmp_path: Path) -> None:
    """The second checkpoint of an epoch holds what came before the first restart too."""
    _, weights = train_serial(tmp_path / "whole", save="record")

    train_serial(tmp_path / "1", stop_after=5, checkpoint_steps=1)
    train_serial(
        tmp_path / "2",
        stop_after=2,
        checkpoint_steps=1,
        resume_from=str(tmp_path / "1" / "checkpoint.npz"),
    )
    resumed, again = train_serial(
        tmp_path / "3", resume_from=str(tmp_path / "2" / "checkpoint.npz")
    )

    (epoch,) = resumed.epochs
    assert (epoch.steps, epoch.examples, epoch.resumed_examples) == (1, 2, 18)
    np.testing.assert_equal(weights, again)


def test_a_begun_epoch_does_not_go_on_with_others(tmp_path: Path) -> None:
    """Other rows would follow, also for who names the checkpoint (see test_recovery.py)."""
    train_serial(tmp_path, stop_after=3, checkpoint_steps=2)

    with pytest.raises(RefusalError, match=r"must go on as it began.*seed=6, was 5"):
        train_serial(tmp_path, resume_from=str(tmp_path / "checkpoint.npz"), seed=6)
