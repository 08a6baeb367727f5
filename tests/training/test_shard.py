"""`ringside.shard`: each process reads its rows only, and all together those of a serial run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from tests.training.by_hand import MPIRUN, run, trained_as_by_one_process
from trainers.reading import _iterate as iterate
from trainers.rows import cut
from trainers.shard import digest, own_batches, sharded


@pytest.fixture(autouse=True)
def _read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have let this process read as a training does."""
    monkeypatch.setattr(tf.data.Dataset, "__iter__", iterate)


def backend_of(rank: int, processes: int, replicas: int) -> Any:
    """What `sharded` asks of a backend."""
    synchronous = SimpleNamespace(synchronous=True)
    return SimpleNamespace(
        rank=rank, size=processes, num_replicas=replicas, capabilities=synchronous
    )


def rows(n: int = 24) -> Any:
    """A data set of n numbers."""
    return tf.data.Dataset.range(n)


@pytest.mark.parametrize(("processes", "replicas"), [(2, 2), (3, 3), (2, 4)], ids=str)
def test_replicas_get_their_rows_of_each_global_batch(processes: int, replicas: int) -> None:
    """Rows r, r + R, … of each, the short last one too; 36 rows in batches of 24."""
    here, found = replicas // processes, {}
    for rank in range(processes):
        own = sharded(rows(36), backend_of(rank, processes, replicas))
        batches, parts, multiple = own_batches(own.map(lambda k: 10 * k).batch(24).prefetch(1))
        assert (parts, multiple) == (processes, replicas)
        assert int(batches.cardinality()) == 2
        for local in range(here):
            found[rank * here + local] = [
                cut(batch, local, here)[0].numpy().tolist() for batch in batches
            ]

    for r in range(replicas):
        of_first, of_last = range(r, 24, replicas), range(24 + r, 36, replicas)
        assert found[r] == [[10 * k for k in of_first], [10 * k for k in of_last]]


def test_data_without_an_end_and_cut_batches_are_divided() -> None:
    """`repeat` may stand before it or behind it."""
    backend = backend_of(1, 2, 2)
    before = sharded(rows().repeat(), backend).batch(8, drop_remainder=True)
    behind = sharded(rows(), backend).cache().repeat().batch(8, drop_remainder=True)

    for data in (before, behind):
        batches, *_ = own_batches(data)
        assert int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY
        assert batches.element_spec.shape == [4]
        first = [batch.numpy().tolist() for batch in batches.take(2)]
        assert first == [[1, 3, 5, 7], [9, 11, 13, 15]]


def test_what_is_left_over_is_dropped_as_by_a_serial_run() -> None:
    """22 rows in batches of 8: the last 6 are 3 of each process."""
    own = sharded(rows(22), backend_of(0, 2, 2)).batch(8, drop_remainder=True)

    assert [batch.numpy().tolist() for batch in own_batches(own)[0]] == [
        [0, 2, 4, 6],
        [8, 10, 12, 14],
    ]


def test_what_is_divided_has_a_digest() -> None:
    """Processes that would divide files in another order are refused by it.

    The generator of a shuffle has another name each time, and under MultiWorkerMirrored the task's.
    """
    given = (["0/a", "0/b"], ["1/b", "1/a"], ["1/a", "1/b"])
    parts = [
        sharded(tf.data.TFRecordDataset(names).shuffle(2, 1).repeat(), backend_of(rank, 2, 2))
        for rank, names in zip((0, 1, 1), given, strict=True)
    ]

    first, other, same = (digest(part.batch(2)) for part in parts)

    assert first == same != other
    assert digest(rows()) == 0


def drawn(row: Any) -> Any:
    """A map that draws."""
    return tf.random.uniform([]) + tf.cast(row, tf.float32)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda shard: shard([1, 2]), "takes a tf.data.Dataset"),
        (lambda shard: shard(rows().filter(lambda k: k > 3)), "must know how many rows"),
        (lambda shard: shard(rows(25)), "25 rows for 2 replicas. Add .repeat() or .take(24)"),
        (lambda shard: shard(shard(rows())), "stands once"),
        (lambda shard: shard(rows()), "before the data are batched"),
        (lambda shard: shard(rows(32).batch(8)), "before the data are batched"),
        (lambda shard: shard(rows()).batch(8).take(2), "Take behind it"),
        (lambda shard: shard(rows()).filter(lambda k: k > 3).batch(8), "Filter behind it"),
        (lambda shard: shard(rows()).shuffle(4).batch(8), "Shuffle behind it"),
        (lambda shard: shard(rows()).batch(8).map(lambda k: k), "Map behind it"),
        (lambda shard: shard(rows()).padded_batch(8), "PaddedBatch behind it"),
        (lambda shard: shard(rows()).cache("rows").batch(8), "cache(file) behind it"),
        (lambda shard: shard(rows()).map(drawn).batch(8), "would draw the same in every process"),
        (lambda shard: shard(rows()).batch(7), "batches of 7 rows for 2 replicas"),
    ],
)
def test_what_cannot_be_divided_is_refused(made: Any, said: str) -> None:
    """In one sentence, before anything is read."""
    with pytest.raises(RefusalError) as error:
        own_batches(made(lambda data: sharded(data, backend_of(0, 2, 2))))

    assert said in str(error.value)


def test_two_ranks_train_the_batches_of_a_serial_run(tmp_path: Path) -> None:
    """With a shuffle before it, a map behind it and a short last batch; the rows' hashes agree."""
    serial, two = trained_as_by_one_process("sharded.py", tmp_path)

    assert two == serial


def test_an_evaluation_of_divided_data_is_refused(tmp_path: Path) -> None:
    """Each process would evaluate some rows of its part."""
    done = run("sharded.py", MPIRUN, tmp_path / "two", "evaluated")

    assert "Data that ringside.shard has divided are for ringside.fit to train on." in done.stderr
    assert "Traceback" not in done.stderr
