"""The one pipeline: every reader, every size, every policy feeds what its plan says."""

import dataclasses
import itertools
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import (
    BatchPlan,
    InputShard,
    PipelineOptions,
    RefusalError,
)
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import StreamSource, as_source

SEED = 3


def records(folder: Path, counts: tuple[int, ...]) -> StreamSource:
    """Numbered examples in TFRecord files, `counts` in each."""
    number = itertools.count()
    names = []
    for index, count in enumerate(counts):
        name = str(folder / f"{index}.tfrecord")
        with tf.io.TFRecordWriter(name) as writer:
            for _ in range(count):
                writer.write(tf.io.serialize_tensor(tf.constant([float(next(number))])).numpy())
        names.append(name)

    def decode(serialized: Any) -> tuple[Any, Any]:
        x = tf.ensure_shape(tf.io.parse_tensor(serialized, tf.float32), (1,))
        return x, tf.reduce_sum(x)

    return StreamSource(tuple(names), tf.data.TFRecordDataset, counts, decode)


def pipeline(source: Any, batch: int, replicas: int, **options: Any) -> Pipeline:
    """A training pipeline over the source; options of Pipeline and PipelineOptions."""
    training, synchronous = options.pop("training", True), options.pop("synchronous", True)
    return Pipeline(
        source=as_source(source, what="data"),
        preprocess=None,
        options=PipelineOptions(**options),
        plan=BatchPlan(global_batch=batch, num_replicas=replicas),
        seed=SEED,
        training=training,
        synchronous=synchronous,
    )


def fed(pipe: Pipeline, readers: int, epochs: int = 1) -> list[list[np.ndarray]]:
    """For each step the ids of every reader's batches, replica after replica, padding left out."""
    per_reader = pipe.plan.num_replicas // readers
    steps = pipe.shares.steps_per_epoch(readers) * epochs
    batches = []
    for index in range(readers):
        dataset = pipe.dataset(InputShard(index=index, count=readers))
        batches.append(list(dataset.take(steps * per_reader).as_numpy_iterator()))
    out = []
    for step in range(steps):
        mine = [b for reader in batches for b in reader[step * per_reader :][:per_reader]]
        for x, y, weight, _, ids in mine:
            assert len(x) == pipe.plan.per_replica_batch
            np.testing.assert_array_equal(x[ids >= 0, 0], ids[ids >= 0])  # id i is example i
            np.testing.assert_array_equal(y[ids >= 0], ids[ids >= 0])
            assert (weight[ids < 0] == 0).all()
            assert (weight[ids >= 0] > 0).all()
        out.append([ids[ids >= 0] for *_, ids in mine])
    return out


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Example i is (i, i)."""
    numbers = np.arange(count, dtype=np.float32)
    return numbers[:, None], numbers


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("count", [1, 7, 23])
@pytest.mark.parametrize(("replicas", "readers"), [(2, 1), (3, 3), (4, 2)])
def test_global_batches_are_the_same_for_all(
    tmp_path: Path, cache: bool, count: int, replicas: int, readers: int
) -> None:
    """At every number of replicas and readers each step has the ids that one reader has."""
    source = records(tmp_path, (count,))

    alone = fed(pipeline(source, 12, 1, cache=cache), 1, epochs=2)
    shared = fed(pipeline(source, 12, replicas, cache=cache), readers, epochs=2)

    assert [list(np.concatenate(s)) for s in shared] == [list(np.concatenate(s)) for s in alone]
    half = len(alone) // 2
    for epoch in (alone[:half], alone[half:]):
        assert sorted(np.concatenate([np.concatenate(s) for s in epoch])) == list(range(count))
    if count > 7:
        assert [list(s[0]) for s in alone[:half]] != [list(s[0]) for s in alone[half:]]


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("asked", [None, 5])
def test_a_file_that_has_changed_ends_the_reading(
    tmp_path: Path, left: int, asked: int | None
) -> None:
    """Data without an end would be looked for in an empty file without an end."""
    source = dataclasses.replace(records(tmp_path, (9,)), steps_per_epoch=asked)
    dataset = pipeline(source, 4, 1, cache=False).dataset(InputShard())
    records(tmp_path, (left,))

    with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain 9 elements"):
        list(dataset.take(20))


@pytest.mark.parametrize("cache", [True, False])
def test_the_order_is_of_the_seed_of_the_run_alone(cache: bool) -> None:
    """TensorFlow's global seed differs between ranks, and each draws the whole order."""
    orders = []
    for seed in (0, 1, 2):
        tf.random.set_seed(seed)
        data = tf.data.Dataset.from_tensor_slices(examples(23))
        pipe = pipeline(data, 6, 1, cache=cache, shuffle=True)
        orders.append([ids.tolist() for step in fed(pipe, 1) for ids in step])

    assert orders[0] == orders[1] == orders[2]
    assert list(itertools.chain(*orders[0])) != list(range(23))


@pytest.mark.parametrize("count", [5, 12, 17])
def test_weights_make_the_mean_exact(count: int) -> None:
    """Over a global batch of B the weights add up to B, so sum(w·loss)/B is the true mean."""
    pipe = pipeline(examples(count), 6, 3)

    batches = list(pipe.dataset(InputShard(index=0, count=1)).take(3 * 3).as_numpy_iterator())

    for step in range(pipe.shares.steps_per_epoch(1)):
        weights = np.concatenate([b[2] * b[3] for b in batches[step * 3 : step * 3 + 3]])
        assert weights.sum() == pytest.approx(6, rel=1e-6)


@pytest.mark.parametrize("readers", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 20])
def test_asynchronous_slices_leave_no_empty_step(count: int, readers: int) -> None:
    """Every worker's step has an example; together an epoch has each once."""
    pipe = pipeline(examples(count), 6, readers, synchronous=False)
    ids: list[int] = []

    for index in range(readers):
        shard = InputShard(index=index, count=readers)
        batches = list(
            pipe.dataset(shard).take(pipe.shares.reader_batches(shard)).as_numpy_iterator()
        )
        for *_, weight, scale, batch_ids in batches:
            assert (batch_ids >= 0).any()
            assert weight.sum() * scale == pytest.approx(6 // readers)
            ids += [i for i in batch_ids if i >= 0]

    assert sorted(ids) == list(range(count))


@pytest.mark.parametrize("cache", [True, False])
def test_a_process_with_two_replicas_asks_for_as_much_input_as_two_processes(
    tmp_path: Path, cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parallel calls, batches ahead and threads belong to a replica, not to a process."""
    pipe = pipeline(records(tmp_path, (24,)), 12, 2, cache=cache, parallel_map=3, prefetch=5)

    one_process = asked_of_tf_data(pipe, 1, monkeypatch)
    two_processes = asked_of_tf_data(pipe, 2, monkeypatch)

    assert one_process == two_processes == {"calls": 2 * 3, "ahead": 2 * 5, "threads": 2 * 3}


def test_each_thread_finds_its_next_element_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the run says how many are made at once, as above."""
    asked = asked_of_tf_data(pipeline(records(tmp_path, (24,)), 12, 2, cache=False), 1, monkeypatch)

    assert asked["calls"] == 2 * asked["threads"] >= 8


def asked_of_tf_data(pipe: Pipeline, readers: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The sums of what all readers of a training ask of tf.data."""
    asked: Counter[str] = Counter()
    pipe.prepared  # noqa: B018  # what it takes to read the data into memory is not counted
    map_, prefetch = tf.data.Dataset.map, tf.data.Dataset.prefetch

    def noting_map(self: Any, *args: Any, num_parallel_calls: int = 0, **named: Any) -> Any:
        asked["calls"] += num_parallel_calls
        return map_(self, *args, num_parallel_calls=num_parallel_calls or None, **named)

    def noting_prefetch(self: Any, buffer_size: int) -> Any:
        asked["ahead"] += buffer_size
        return prefetch(self, buffer_size)

    with monkeypatch.context() as noting:
        noting.setattr(tf.data.Dataset, "map", noting_map)
        noting.setattr(tf.data.Dataset, "prefetch", noting_prefetch)
        for index in range(readers):
            dataset = pipe.dataset(InputShard(index=index, count=readers))
            asked["threads"] += dataset.options().threading.private_threadpool_size or 0
    return asked


def test_each_replica_of_a_process_has_its_calls_at_once() -> None:
    """Each call waits until all are under way, whatever other threads there are."""
    expected, under_way, everybody = 6, itertools.count(1), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        if next(under_way) == expected:
            everybody.set()
        everybody.wait(timeout=20)
        return x

    plain = pipeline(examples(24), 12, 3, parallel_map=2)
    pipe = dataclasses.replace(
        plain, preprocess=lambda x, y: (tf.numpy_function(wait, [x], tf.float32), y)
    )

    next(iter(pipe.dataset(InputShard())))

    assert everybody.is_set()


@pytest.mark.parametrize("batches", [False, True])
def test_a_reader_decodes_only_what_it_keeps(batches: bool) -> None:
    """The last maps of a data set are done behind the shuffle, on the reader's own elements."""
    decoded: list[float] = []

    def decode(x: Any, y: Any) -> tuple[Any, Any]:
        def noted(one: np.ndarray) -> np.ndarray:
            decoded.append(float(one))
            return one

        return x, tf.ensure_shape(tf.numpy_function(noted, [y], tf.float32), ())

    data = tf.data.Dataset.from_tensor_slices(examples(24)).shuffle(24).map(decode)
    pipe = pipeline(data.batch(6) if batches else data, 12, 2, cache=False, training=False)
    for index, own in ((0, [*range(6), *range(12, 18)]), (1, [*range(6, 12), *range(18, 24)])):
        decoded.clear()

        fed = list(pipe.dataset(InputShard(index=index, count=2)).as_numpy_iterator())

        assert sorted(decoded) == own
        assert [int(y) for batch in fed for y in batch[1]] == own


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("file", [[0, 1, 2, 7, 8], [3, 4, 5, 6]]),
        ("data", [[0, 2, 4, 6, 8], [1, 3, 5, 7]]),
        ("off", [list(range(9)), list(range(9))]),
    ],
)
def test_auto_shard_policies(tmp_path: Path, policy: str, expected: list[list[int]]) -> None:
    """FILE shares the files out, DATA the elements, OFF nothing; all is fed, nothing invented."""
    pipe = pipeline(records(tmp_path, (3, 4, 2)), 4, 2, cache=False, shard=policy, shuffle=False)

    steps = fed(pipe, 2)

    found = [sorted(int(i) for step in steps for i in step[reader]) for reader in range(2)]
    assert found == expected
    assert pipe.shares.epoch_examples(2) == sum(map(len, expected))


def test_policies_of_streams_are_refused_on_arrays() -> None:
    """There are no files to share out, and nothing pretends that there were."""
    pipe = pipeline(examples(9), 4, 2, cache=False, shard="data")

    with pytest.raises(RefusalError, match="on arrays"):
        pipe.shares.steps_per_epoch(2)


def test_unequal_shares_of_an_asynchronous_run_are_refused(tmp_path: Path) -> None:
    """Steps are dealt in turn: the reader with more files would keep some for the next epoch."""
    source = records(tmp_path, (9, 1))
    pipe = pipeline(source, 2, 2, cache=False, shard="file", synchronous=False)

    with pytest.raises(RefusalError, match="nearly equal shares"):
        pipe.shares.steps_per_epoch(2)


def test_the_digest_is_of_the_order_too() -> None:
    """The same examples in another order are other data."""
    x, y = examples(5)
    digests = {pipeline((x[o], y[o]), 2, 1).data_digest for o in ([0, 1, 2, 3, 4], [1, 0, 2, 3, 4])}

    assert len(digests) == 2
    assert "" not in digests


@pytest.mark.parametrize("kind", [bytes, str])
def test_the_digest_of_strings_is_of_what_they_say(kind: type) -> None:
    """The same text in another object is the same; the same letters divided otherwise are not."""

    def digest(*texts: str) -> str:
        made = [(" " + text)[1:].encode() for text in texts]  # new objects
        x = np.array([one if kind is bytes else one.decode() for one in made], dtype=object)
        return pipeline((x, np.arange(len(texts))), 2, 1).data_digest

    assert digest("a fine day", "rain") == digest("a fine day", "rain")
    assert digest("ab", "c") != digest("a", "bc")


def test_the_digest_is_of_the_form_too() -> None:
    """The same bytes in another shape or type are other data."""
    x, y = np.arange(4, dtype=np.int64), np.zeros(4)
    others = (x.reshape(4, 1), x.view(np.uint64))

    digests = {pipeline((one, y), 2, 1).data_digest for one in (x, *others)}

    assert len(digests) == 3


def test_fewer_files_than_readers_are_refused(tmp_path: Path) -> None:
    """FILE cannot give a reader nothing."""
    pipe = pipeline(records(tmp_path, (3,)), 4, 2, cache=False, shard="file")

    with pytest.raises(RefusalError, match="1 files, 2 readers"):
        pipe.shares.steps_per_epoch(2)


@pytest.mark.parametrize("cache", [True, False])
def test_a_filter_is_counted_exactly(tmp_path: Path, cache: bool) -> None:
    """Steps, weights and ids are those of the examples that remain."""
    source = records(tmp_path, (5, 6))
    (tmp_path / "keep.py").write_text("def odd(x, y):\n    return y % 2 == 1\n")
    pipe = pipeline(source, 4, 1, cache=cache, filter=f"{tmp_path}/keep.py:odd")

    dataset = pipe.dataset(InputShard()).take(pipe.shares.steps_per_epoch(1))
    seen = [float(v) for _, y, _, _, ids in dataset.as_numpy_iterator() for v in y[ids >= 0]]

    assert pipe.num_examples == 5
    assert sorted(seen) == [1, 3, 5, 7, 9]


def test_a_filter_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    """An epoch needs an example."""
    (tmp_path / "keep.py").write_text("def none(x, y):\n    return y < 0\n")
    pipe = pipeline(examples(4), 2, 1, filter=f"{tmp_path}/keep.py:none")

    with pytest.raises(RefusalError, match="at least one example"):
        pipe.shares.steps_per_epoch(1)


@pytest.mark.parametrize("cache", [True, False])
def test_a_restart_goes_on_where_it_was(cache: bool) -> None:
    """Epoch 1 of a restarted pipeline is epoch 1 of one that was never stopped."""
    pipe = pipeline(tf.data.Dataset.from_tensor_slices(examples(10)), 4, 1, cache=cache)
    steps = pipe.shares.steps_per_epoch(1)

    whole = [b[4].tolist() for b in pipe.dataset(InputShard()).take(2 * steps).as_numpy_iterator()]
    resumed = [
        b[4].tolist()
        for b in pipe.dataset(InputShard(), first_epoch=1).take(steps).as_numpy_iterator()
    ]

    assert resumed == whole[steps:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tf.data.Dataset.counter(), "must end"),
        (tf.data.Dataset.range(0), "at least one example"),
        ((np.zeros((3, 1)), np.zeros(2)), "same length"),
        ("abc", "arrays, a tf.data.Dataset"),
    ],
)
def test_data_that_cannot_be_an_epoch_are_refused(data: Any, words: str) -> None:
    """Endless, empty, ragged, or no data at all."""
    with pytest.raises(RefusalError, match=words):
        as_source(data, what="train data")


def test_arrays_have_the_type_in_which_keras_computes() -> None:
    """As in `Model.fit`; a data set keeps its own, and so do whole numbers."""
    x, y = np.zeros((6, 2)), np.zeros(6, np.int32)
    arrays, dataset = ((x, y), tf.data.Dataset.from_tensor_slices((x, y)))

    given = [pipeline(one, 3, 1).dataset(InputShard()).element_spec for one in (arrays, dataset)]

    assert [(x.dtype, y.dtype) for x, y, *_ in given] == [
        (tf.float32, tf.int32),
        (tf.float64, tf.int32),
    ]
