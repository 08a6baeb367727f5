"""What `ringside input` changes: an author's own calls of `tf.data`, and the data given to fit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.specs.input_change import InputStage, possible
from trainers import data_stages
from trainers.data_graph import kind, operations_of, parts_of
from trainers.data_stages import rows_per_second, stages
from trainers.fit_call import FitCall
from trainers.input_changes import FILES, change_calls, changed
from trainers.reading import Reading
from trainers.reading import _iterate as iterate

ROWS = 20


@pytest.fixture(autouse=True)
def _as_upstream() -> Iterator[None]:
    """Changes are for the life of a process; here they end with the test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("map", "batch", "interleave"):
            patch.setattr(tf.data.Dataset, name, getattr(tf.data.Dataset, name))
        for name in FILES:
            of = getattr(tf.data, name)
            patch.setattr(of, "__init__", of.__init__)
        patch.setattr(tf.data.Dataset, "__iter__", iterate)  # others read as a training does
        yield


def data() -> Any:
    """Rows that are mapped one by one, in batches of 8, 8 and 4."""
    return tf.data.Dataset.range(ROWS).map(lambda k: (tf.cast(k, tf.float32), 2 * k)).batch(8)


def call(x: Any, **arguments: Any) -> FitCall:
    """A fit of these data."""
    return FitCall(None, {"x": x, **arguments})


def kinds(x: Any) -> list[str]:
    """Of all parts, the last first."""
    return [kind(part) for part in parts_of(x)]


def rows_of(x: Any) -> list[list[Any]]:
    """All rows, batch by batch."""
    return [[part.tolist() for part in batch] for batch in x.as_numpy_iterator()]


@pytest.mark.parametrize("change", ["parallel_map", "parallel_map_fixed", "unordered"])
def test_maps_run_in_parallel(change: str) -> None:
    """Each that its author has left alone; one with a number of its own keeps that."""
    plain = data()
    change_calls(change)
    own = data().map(lambda *row: row, num_parallel_calls=3)

    assert "ParallelMap" not in kinds(plain)
    assert kinds(own).count("ParallelMap") == 2
    _, mapped = (part for part in parts_of(own) if kind(part) == "ParallelMap")
    assert mapped._deterministic == ("false" if change == "unordered" else "default")
    if change != "unordered":
        assert rows_of(own) == rows_of(plain)


def test_a_map_within_interleave_runs_in_parallel() -> None:
    """TensorFlow's autograph calls it, in the author's function."""

    def of_file(number: Any) -> Any:
        return tf.data.Dataset.range(3).map(lambda k: k + number)

    change_calls("parallel_map")
    found = tf.data.Dataset.range(2).interleave(of_file)

    assert "ParallelMapDatasetV2" in operations_of(found)


def test_batches_are_mapped() -> None:
    """The same rows; the function sees batches."""
    plain = rows_of(data())
    change_calls("batch_first")

    assert kinds(data())[:2] == ["Map", "Batch"]
    assert rows_of(data()) == plain


def test_files_are_read_side_by_side(tmp_path: Path) -> None:
    """All rows, in another order."""
    names = [str(tmp_path / f"{k}.tfrecord") for k in range(3)]
    for name in names:
        with tf.io.TFRecordWriter(name) as writer:
            for k in range(4):
                writer.write(f"{name[-10]}{k}".encode())
    plain = list(tf.data.TFRecordDataset(names).as_numpy_iterator())
    change_calls("interleave")
    beside = tf.data.TFRecordDataset(names)

    assert kind(beside._impl) == "ParallelInterleave"
    assert sorted(beside.as_numpy_iterator()) == sorted(plain)


@pytest.mark.parametrize("change", ["prefetch", "cache", "cache_file", "snapshot"])
@pytest.mark.parametrize("endless", [False, True])
def test_a_part_more(change: str, endless: bool) -> None:
    """The batches of two epochs are the same. What keeps data without an end keeps an epoch."""
    x, arguments = (data().repeat(), {"steps_per_epoch": 3}) if endless else (data(), {})
    found = changed(call(x, **arguments), change).arguments["x"]

    twice = rows_of(found.take(6) if endless else found.concatenate(found))
    assert twice == 2 * rows_of(data())
    assert (int(found.cardinality()) == tf.data.INFINITE_CARDINALITY) == endless


def test_arrays_of_a_data_set() -> None:
    """One epoch, in its order; the batch is that of its batches."""
    given = changed(call(data()), "arrays").arguments

    assert given["x"].tolist() == list(range(ROWS))
    assert given["y"].tolist() == [2 * k for k in range(ROWS)]
    assert (given["batch_size"], given["shuffle"]) == (8, False)


def test_a_data_set_of_arrays() -> None:
    """The batch is that of fit; Keras shuffles no data set."""
    x, y = np.arange(ROWS), np.arange(ROWS) * 2
    found = changed(call(x, y=y, batch_size=8), "dataset").arguments

    assert rows_of(found["x"]) == [
        [list(x[k : k + 8]), list(y[k : k + 8])] for k in range(0, ROWS, 8)
    ]
    assert set(found) == {"x"}


@pytest.mark.parametrize(("change", "x"), [("cache", np.zeros(3)), ("dataset", data())])
def test_a_change_that_the_data_cannot_have(change: str, x: Any) -> None:
    """It says which can."""
    with pytest.raises(RefusalError, match=f"The input change {change} needs"):
        changed(call(x, batch_size=2), change)


def slow(k: Any) -> Any:
    """Some milliseconds of computing."""
    start = tf.cast(k, tf.float32) + tf.ones((150, 150))
    end = tf.while_loop(lambda n, _: n < 20, lambda n, m: (n + 1, m @ m / 1e4), (0, start))[1]
    return tf.reduce_sum(end)


def counted() -> Iterator[int]:
    """Some milliseconds of Python."""
    for k in range(1000):
        yield sum(range(100_000)) * 0 + k


@pytest.mark.parametrize(
    ("made", "named", "of_kind"),
    [
        (lambda: tf.data.Dataset.range(1000).map(slow), "map(slow)", "map"),
        (
            lambda: tf.data.Dataset.from_generator(
                counted, output_signature=tf.TensorSpec([], tf.int64)
            ).map(lambda k: k + 1),
            "flat_map(flat_map_fn)",
            "python",
        ),
        (
            lambda: (
                tf.data.Dataset.from_tensor_slices([FILE] * 50)
                .map(tf.io.read_file)
                .map(tf.strings.length)  # a batch of lengths: to copy what was read takes as long
            ),
            "",
            "read",
        ),
    ],
    ids=["map", "python", "read"],
)
def test_the_slow_part_is_named(
    made: Any, named: str, of_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its function, and by what it does: a map, Python or reading."""
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_bytes(bytes(2 * 10**7))
    found = [InputStage(**one) for one in stages(made().batch(4).prefetch(2))]

    worst = max(found, key=lambda one: one.seconds)
    assert worst.kind == of_kind
    assert named in worst.name
    assert found[-1].name == "prefetch"


FILE = "a-large-file"


def test_what_data_can_have() -> None:
    """By their parts."""
    parts = stages(data())

    able = possible([InputStage(**one) for one in parts])
    assert {"parallel_map", "batch_first", "cache", "arrays"} <= set(able)
    generators = InputStage(name="interleave(of_file)", kind="python", seconds=0.0, draws=False)
    assert "interleave" in possible([generators]) and "interleave" not in able
    assert not {"interleave", "dataset"} & set(able)
    arrays = InputStage(name="ndarray", kind="arrays", seconds=0.0, draws=False)
    assert possible([arrays]) == ["dataset"]


def test_how_fast_data_are_read_counts_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of batches; data that fail later than at their first batch have no speed, and end nothing."""
    monkeypatch.setattr(data_stages, "_seconds", lambda data: 0.5)
    assert rows_per_second(data(), 8) == 8 / 0.5
    assert rows_per_second(data().cache(), 8) is None  # kept behind the first epoch
    monkeypatch.undo()

    def rows() -> Iterator[int]:
        yield from range(12)
        raise ValueError("a damaged file")

    damaged = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int32))

    assert rows_per_second(damaged.batch(8), 8) is None
    assert rows_per_second(tf.data.Dataset.range(0).batch(8), 8) is None


def test_data_in_memory_are_read_once() -> None:
    """In no epoch again: where a first batch costs much, that would be taken for the training's."""
    read = []

    def rows() -> Iterator[float]:
        for number in range(ROWS):
            read.append(number)
            yield float(number)

    kept = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([])).batch(8)
    place = Reading(again=True, held=True, of_epoch=3)
    epochs = [[batch.tolist() for batch in map(np.asarray, place.iterator(kept))] for _ in "12"]

    assert epochs == 2 * [3 * [[float(k) for k in range(8)]]]
    assert read.count(0) == 1
