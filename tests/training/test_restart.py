"""A training that goes on in the middle of an epoch is the one that was never broken off."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.cases import NUM_TRAIN
from tests.independent import splitmix64
from tests.nightly import nightly
from tests.training.momentum import momentum, planned, train_serial
from tests.training.test_pipeline import examples, pipeline, records

BROKEN = Path(__file__).parent / "broken"
CLOSE = 1e-12
pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.parametrize(("first_epoch", "first_step"), [nightly(0, 1), (1, 0), (1, 3)])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("shard", ["batch", "stream", "data", "file", "off"])
def test_a_pipeline_goes_on_within_an_epoch(
    tmp_path: Path, shard: str, readers: int, first_epoch: int, first_step: int
) -> None:
    """Everything of every batch, padding included, is what the unbroken pipeline gives there."""
    policy = "batch" if shard == "stream" else shard
    source = examples(20) if shard == "batch" else records(tmp_path, (13, 7))
    pipe = pipeline(source, 6, 2, cache=shard == "batch", shard=policy, shuffle_buffer=5)
    begin = (pipe.shares.steps_per_epoch(readers) * first_epoch + first_step) * (2 // readers)

    for index in range(readers):
        reader = InputShard(index=index, count=readers)
        whole = list(pipe.dataset(reader).take(begin + 20).as_numpy_iterator())
        resumed = pipe.dataset(reader, first_epoch=first_epoch, first_step=first_step)

        for expected, found in zip(
            whole[begin:], resumed.take(20).as_numpy_iterator(), strict=True
        ):
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("stop_after", [3, nightly(6), 7])
@pytest.mark.parametrize("cache", [True, False])
def test_a_serial_run_goes_on_bitwise(tmp_path: Path, cache: bool, stop_after: int) -> None:
    """Weights, records and ledger of a run broken off in either epoch and resumed."""
    options = {"cache": cache}
    unbroken, weights = train_serial(tmp_path / "whole", pipeline=options, save="record")
    done, steps = divmod(stop_after // 2 * 2, 4)
    before = planned(done, 1)[:steps].size

    train_serial(tmp_path, stop_after=stop_after, checkpoint_steps=2, pipeline=options)
    resumed, again = train_serial(
        tmp_path / "again", resume_from=str(tmp_path / "checkpoint.npz"), pipeline=options
    )

    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)
    pairs = zip(unbroken.epochs[done:], resumed.epochs, strict=True)
    for number, (expected, found) in enumerate(pairs):
        assert found.train == pytest.approx(expected.train, rel=CLOSE)
        assert found.validation == pytest.approx(expected.validation, rel=CLOSE)
        assert found.resumed_examples == (0 if number else before)
        assert found.examples == NUM_TRAIN - found.resumed_examples
        assert found.steps == (4 if number else 4 - steps)
        assert found.ledger is not None
        assert_each_once(found.ledger.count, found.ledger.id_sum, found.ledger.id_hash)
    for one, other in zip(unbroken.fed[done:], resumed.fed, strict=True):
        np.testing.assert_array_equal(one, other)


def dropping() -> Workload:
    """A model that draws in each update."""
    workload = momentum()

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [
                layers.Input(workload.model().input_shape[1:]),
                layers.Dense(8),
                layers.Dropout(0.5),
                layers.GaussianNoise(0.1),
                layers.Dense(1),
            ]
        )

    return dataclasses.replace(workload, model=model)


@pytest.mark.parametrize(("trained_by", "stop_after"), [("fit", 3), ("loop", 5)])
def test_random_layers_go_on(tmp_path: Path, trained_by: str, stop_after: int) -> None:
    """They draw what the unbroken run draws from there on, and not the first numbers again."""
    changes: dict[str, Any] = {"trained": dropping, "trained_by": trained_by}
    unbroken, weights = train_serial(tmp_path / "whole", save="record", **changes)

    train_serial(tmp_path, stop_after=stop_after, checkpoint_steps=1, **changes)
    resumed, again = train_serial(
        tmp_path / "again", resume_from=str(tmp_path / "checkpoint.npz"), **changes
    )

    assert resumed.epochs[-1].train == pytest.approx(unbroken.epochs[-1].train, rel=CLOSE)
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)


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
    np.testing.assert_array_equal(resumed.fed[0], planned(1, 1))
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)


def other(**changes: Any) -> Callable[[], Workload]:
    """The workload with something else."""
    return lambda: dataclasses.replace(momentum(), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 6}, "seed=6, was 5"),
        ({"global_batch": 12}, "global_batch=12, was 6"),
        ({"pipeline": {"shuffle": False}}, "shuffle=False, was True"),
        ({"ledger": "full"}, "full ledger of a begun epoch"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2, was 1"),
        ({"trained": other(metrics=lambda: ["mse"])}, r"metrics=\['mse'\], was \['mae'\]"),
        ({"trained": other(loss="mae")}, "loss=mae, was mean_squared_error"),
        ({"trained": other(name="x")}, "workload=x, was linear"),
    ],
)
def test_a_begun_epoch_does_not_go_on_with_others(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """Other examples would follow, or a list without its beginning: both are refused."""
    train_serial(tmp_path, stop_after=3, checkpoint_steps=2, ledger="digest")

    with pytest.raises(RefusalError, match=words):
        train_serial(
            tmp_path,
            resume_from=str(tmp_path / "checkpoint.npz"),
            **{"ledger": "digest", **changes},
        )


def assert_each_once(count: int, id_sum: int, id_hash: str) -> None:
    """The digest is that of the ids 0…19, by Python's own integers."""
    assert count == NUM_TRAIN
    assert id_sum == sum(range(NUM_TRAIN))
    assert id_hash == f"{sum(map(splitmix64, range(NUM_TRAIN))) % 2**64:016x}"
