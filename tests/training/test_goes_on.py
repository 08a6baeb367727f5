"""Epochs of so many updates go on where the last one ended, over pass after pass of the data."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside.verify.checks import training_ledger
from ringside.verify.trace import Trace
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import as_source
from ringside_core.workloads.workload import Workload
from tests.contract.cases import NUM_TRAIN, SEED
from tests.independent import order
from tests.nightly import nightly
from tests.training.momentum import momentum, train_serial
from tests.training.test_pipeline import SEED as OF_PIPELINE
from tests.training.test_pipeline import examples, fed, pipeline, records
from trainers.ledger import LedgerError

pytestmark = pytest.mark.usefixtures("warm")


def going_on(
    source: Any, steps: int, batch: int = 6, replicas: int = 1, **options: Any
) -> Pipeline:
    """A pipeline whose epochs are so many updates."""
    source = dataclasses.replace(as_source(source, what="data"), steps_per_epoch=steps)
    return pipeline(source, batch, replicas, **options)


def stream_of(seed: int, total: int, count: int) -> np.ndarray:
    """The first ids of pass after pass, each in its own order."""
    passes = -(-count // total)
    return np.concatenate([order(p, seed=seed, total=total) for p in range(passes)])[:count]


@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("steps", [1, 3, 9])
@pytest.mark.parametrize("count", [4, 20])
@pytest.mark.parametrize(("replicas", "readers"), [(1, 1), (2, 1), (3, 3)])
def test_positions_of_an_epoch(
    count: int, steps: int, replicas: int, readers: int, synchronous: bool
) -> None:
    """Epoch e holds positions [eSB, (e+1)SB) of the endless order; a batch may be of three."""
    synchronous = synchronous or readers < replicas
    pipe = going_on(examples(count), steps, replicas=replicas, synchronous=synchronous)

    assert pipe.shares.steps_per_epoch(readers) == steps * (1 if synchronous else readers)
    assert pipe.shares.epoch_examples(readers) == steps * 6
    assert pipe.shares.last_batch == 0
    batches = []
    for index in range(readers):
        dataset = pipe.dataset(InputShard(index=index, count=readers))
        whole = list(dataset.take(4 * steps * (replicas // readers)).as_numpy_iterator())
        batches.append(np.array([ids for *_, ids in whole]).reshape(4 * steps, -1))
        assert all((weight * scale == 1).all() for _, _, weight, scale, _ in whole)
    found = np.concatenate(batches, axis=1).ravel()
    np.testing.assert_array_equal(found, stream_of(OF_PIPELINE, count, 4 * steps * 6))


@pytest.mark.parametrize(("replicas", "readers"), [(2, 1), (3, 3)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_stream_goes_on_too(tmp_path: Path, shuffle: bool, replicas: int, readers: int) -> None:
    """Each pass holds each example once, in the same order at every size; unshuffled, as it is."""
    source = records(tmp_path, (13, 7))
    options = {"cache": False, "shuffle": shuffle, "shuffle_buffer": 8}
    shared = going_on(source, 7, replicas=replicas, **options)

    found = np.concatenate([np.concatenate(step) for step in fed(shared, readers, epochs=3)])
    alone = np.concatenate([np.concatenate(s) for s in fed(going_on(source, 7, **options), 1, 3)])

    np.testing.assert_array_equal(found, alone)
    whole = found[: len(found) // 20 * 20].reshape(-1, 20)
    np.testing.assert_array_equal(np.sort(whole), np.tile(np.arange(20), (len(whole), 1)))
    assert (whole == np.arange(20)).all() == (not shuffle)


@pytest.mark.parametrize(("first_epoch", "first_step"), [(0, 2), (1, 0), (3, 4)])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("cache", [True, False])
def test_it_goes_on_after_a_restart(
    tmp_path: Path, cache: bool, readers: int, first_epoch: int, first_step: int
) -> None:
    """Everything of every batch is what the unbroken pipeline gives there."""
    source = examples(20) if cache else records(tmp_path, (13, 7))
    pipe = going_on(source, 5, replicas=2, cache=cache, shuffle_buffer=5)
    begin = (5 * first_epoch + first_step) * (2 // readers)

    for index in range(readers):
        reader = InputShard(index=index, count=readers)
        whole = list(pipe.dataset(reader).take(begin + 20).as_numpy_iterator())
        resumed = pipe.dataset(reader, first_epoch=first_epoch, first_step=first_step)
        pairs = zip(whole[begin:], resumed.take(20).as_numpy_iterator(), strict=True)
        for expected, found in pairs:
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("by_batch", [True, False])
def test_what_is_drawn_belongs_to_the_pass(by_batch: bool) -> None:
    """An example's draw in its second pass is that of the second epoch of one pass each."""
    numbers = np.arange(10, dtype=np.float32)
    data = tf.data.Dataset.from_tensor_slices((numbers, numbers))
    drawing = lambda x, y: (x + tf.random.uniform(tf.shape(x)), y)  # noqa: E731
    data = data.batch(4).map(drawing) if by_batch else data.map(drawing).batch(4)

    def drawn(steps: int | None) -> list[tuple[float, int]]:
        pipe = pipeline(as_source(data, what="data"), 4, 1)
        if steps is not None:
            pipe = going_on(data, steps, batch=4)
        batches = pipe.dataset(InputShard()).take(20).as_numpy_iterator()
        pairs = [zip(x[ids >= 0], ids[ids >= 0], strict=True) for x, _, _, _, ids in batches]
        return [(float(x), int(number)) for pair in pairs for x, number in pair]

    expected, found = drawn(None), drawn(7)

    assert len(found) == 80
    assert found[: len(expected)] == expected[: len(found)]
    assert found[:10] != found[10:20]


def going(steps: int = 5) -> Workload:
    """The linear model with momentum, in epochs of so many updates."""
    workload = momentum()
    train = dataclasses.replace(workload.train, steps_per_epoch=steps)
    return dataclasses.replace(workload, train=train)


def test_the_ledger_holds_what_was_planned(tmp_path: Path) -> None:
    """20 examples in batches of 6, in epochs of 5 updates: counted, and checked, epoch by epoch."""
    kept, _ = train_serial(tmp_path, trained=going, epochs=3)

    expected = stream_of(SEED, NUM_TRAIN, 3 * 30).reshape(3, 5, 1, 6)
    np.testing.assert_array_equal(kept.fed, expected)
    for epoch, ids in zip(kept.epochs, expected, strict=True):
        assert epoch.ledger is not None
        assert (epoch.steps, epoch.examples, epoch.ledger.count) == (5, 30, 30)
        assert epoch.ledger.id_sum == ids.sum()


@pytest.mark.parametrize("changed", ["examples", "order"])
def test_another_feed_than_planned_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """An epoch that begins again with the first pass; an order that is kept."""
    if changed == "examples":
        upstream = Pipeline.dataset

        def again(self: Pipeline, shard: InputShard, **place: Any) -> Any:
            dataset = upstream(self, shard, **place)
            return dataset.take(5).repeat() if self.training else dataset

        monkeypatch.setattr(Pipeline, "dataset", again)
    else:
        monkeypatch.setattr(Pipeline, "_order", lambda self, positions, epoch, total: positions)

    with pytest.raises(LedgerError, match=r"epoch [12] was fed"):
        train_serial(tmp_path, trained=going, epochs=3)


@pytest.mark.parametrize("stop_after", [3, 5, nightly(8)])
@pytest.mark.parametrize("cache", [True, False])
def test_a_training_goes_on_bitwise(tmp_path: Path, cache: bool, stop_after: int) -> None:
    """Broken off within an epoch or at its end, and resumed."""
    options: Any = {"pipeline": {"cache": cache}, "trained": going, "epochs": 3}
    unbroken, weights = train_serial(tmp_path / "whole", **options)

    train_serial(tmp_path, stop_after=stop_after, checkpoint_steps=1, **options)
    resumed, again = train_serial(
        tmp_path / "again", resume_from=str(tmp_path / "checkpoint.npz"), **options
    )

    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)
    done = 3 - len(resumed.epochs)
    for one, other in zip(unbroken.fed[done:], resumed.fed, strict=True):
        np.testing.assert_array_equal(one, other)


def trace_of(ids: np.ndarray, **meta: Any) -> Trace:
    """What a serial run of 10 examples in epochs of 2 updates of 6 was fed."""
    return Trace(
        fed=ids.reshape(-1, 2, 1, 6),
        loss=np.zeros(len(ids) // 6),
        meta={"train_examples": 10, "goes_on": True, **meta},
    )


def test_a_certificate_asks_for_each_example_once_in_each_pass() -> None:
    """Also of what is left after a restart; not in each epoch."""
    right = trace_of(stream_of(SEED, 10, 36))
    check = training_ledger({"rank-0": right}, right, synchronous=True)
    assert check.passed, check.finding
    assert "each of 10 examples once in each pass over them, in all 3 epochs" in check.finding
    later = trace_of(stream_of(SEED, 10, 36)[12:], epochs_before=1)
    assert training_ledger({"rank-0": later}, later, synchronous=True).passed

    ids = stream_of(SEED, 10, 36)
    ids[13] = ids[12]
    wrong = trace_of(ids)
    check = training_ledger({"rank-0": wrong}, wrong, synchronous=True)
    assert not check.passed
    assert "pass 2: example" in check.finding


def test_other_shards_are_refused(tmp_path: Path) -> None:
    """Their readers have passes of their own."""
    pipe = going_on(records(tmp_path, (13, 7)), 3, replicas=2, cache=False, shard="file")

    with pytest.raises(RefusalError, match="same batches under every backend"):
        pipe.shares.steps_per_epoch(2)
