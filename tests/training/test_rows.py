"""The rows of a global batch: which are a replica's, and the hash that tells them from others."""

from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, Surroundings
from tests.training.momentum import spec_of
from trainers.row_ledger import RowLedger
from trainers.rows import block, cut, row_hash

RNG = np.random.default_rng(5)


def batch_of(n: int) -> dict[str, Any]:
    """A batch of n rows, with a scalar and a table that belong to every row."""
    return {
        "x": RNG.normal(size=(n, 3)),
        "words": np.array([f"word {k}".encode() for k in range(n)], object),
        "label": RNG.integers(0, 9, n),
        "temperature": np.float64(0.5),
        "table": RNG.normal(size=(n + 10, 2)),
    }


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_a_replica_gets_every_nth_row(n: int, size: int) -> None:
    """Rows r::R are a replica's; one without rows gets the last one, and the number 0."""
    given = batch_of(n)
    tensors = tf.nest.map_structure(tf.constant, given)

    for r in range(size):
        part, rows, total = cut(tensors, r, size)

        assert (rows, total) == (len(range(r, n, size)), n)
        first = min(r, n - 1)
        for name in ("x", "words", "label"):
            assert part[name].numpy().tolist() == given[name][first::size].tolist()
        assert part["table"].shape == given["table"].shape
        assert float(part["temperature"]) == 0.5


def test_ragged_and_sparse_rows() -> None:
    """They are cut as their dense forms are."""
    dense = RNG.integers(0, 4, (7, 5))
    ragged = tf.ragged.constant([row[: 1 + k % 3].tolist() for k, row in enumerate(dense)])
    sparse = tf.sparse.from_dense(dense)

    for r in range(3):
        (own_ragged, own_sparse), rows, _ = cut((ragged, sparse), r, 3)

        assert int(rows) == len(range(r, 7, 3))
        assert own_ragged.to_list() == ragged.to_list()[r::3]
        assert (tf.sparse.to_dense(own_sparse).numpy() == dense[r::3]).all()


def test_blocks_join_to_the_batch() -> None:
    """Predictions of all replicas, one after the other, are those of the batch."""
    x = RNG.normal(size=(7, 2))

    parts = [block(tf.constant(x), r, 3) for r in range(3)]

    assert [rows for _, rows in parts] == [2, 2, 3]
    assert (np.concatenate([own.numpy() for own, _ in parts]) == x).all()
    (own, rows), _ = (block(tf.constant(x[:1]), r, 2) for r in range(2))
    assert (own.shape, rows) == ((1, 2), 0)  # some kernels take no empty batch


@pytest.mark.parametrize("size", [2, 3])
def test_hashes_of_all_replicas_add_up(size: int) -> None:
    """The ledger of an arm is that of the serial run, however the batch is divided."""
    given = tf.nest.map_structure(tf.constant, batch_of(7))
    # As many rows as a replica has.
    given["table"] = tf.zeros([4 if size == 2 else 3, 2])

    parts = [cut(given, r, size)[0] for r in range(size)]
    added = sum(int(row_hash(part, r, size, given)) for r, part in enumerate(parts))

    assert (added - int(row_hash(given))) % 2**64 == 0


def test_parts_of_other_rows_are_no_matter_where_nothing_is_divided() -> None:
    """Merged graphs, or one batch of labelled and one of other images: one replica trains them."""
    nodes, edges = tf.zeros([16, 2]), tf.range(6)

    own, rows, n = cut((nodes, nodes, edges, edges), 0, 1)

    assert (len(own), rows, n) == (4, 16, 16)
    swapped = nodes, nodes, edges, tf.reverse(edges, [0])
    assert int(row_hash((nodes, nodes, edges, edges))) != int(row_hash(swapped))
    with pytest.raises(RefusalError, match="as many rows as its first part"):
        cut((nodes, nodes, edges, edges), 0, 2)


@pytest.mark.parametrize("change", ["swap", "value", "word", "twice"])
def test_other_rows_have_another_hash(change: str) -> None:
    """Two rows in another order, a changed value, a changed word, a row in place of another."""
    x, words = np.arange(12.0).reshape(6, 2), np.array(list("abcdef"))
    before = int(row_hash((tf.constant(x), tf.constant(words))))
    if change == "swap":
        x[[1, 4]], words[[1, 4]] = x[[4, 1]], words[[4, 1]]
    elif change == "value":
        x[3, 1] += 1e-9
    elif change == "word":
        words[5] = "g"
    else:
        x[2], words[2] = x[1], words[1]

    assert int(row_hash((tf.constant(x), tf.constant(words)))) != before


@pytest.mark.parametrize(("hashed", "seen"), [(1, [0, 1, 2, 3, 4]), (3, [0, 3]), (0, [])])
def test_every_so_many_th_batch_is_hashed(hashed: int, seen: list[int]) -> None:
    """The first of an epoch among them; all rows are counted, in a graph too."""
    with make_backend(spec_of(), Surroundings()) as backend:
        ledger = RowLedger(backend)
        note = tf.function(lambda x: ledger.note(x, 4, 0, 1, x, hashed=hashed))

        def of_epoch(changed: int) -> tuple[int, int]:
            ledger.begin()
            for k in range(5):
                note(tf.fill([4, 2], 10.0 * k + (k == changed)))
            return ledger.read()

        clean = of_epoch(changed=-1)
        others = [k for k in range(5) if of_epoch(changed=k) != clean]

    assert others == seen
    assert clean[0] == 20


def test_places_of_one_sum_have_other_hashes() -> None:
    """Rows of two parts exchanged; other inner lengths; another index; another shape of a row."""
    x, y = RNG.normal(size=(1000, 1)), RNG.normal(size=(1000, 1))
    moved = x.copy(), y.copy()
    moved[0][977], moved[1][0] = y[0], x[977]
    ragged = [[[1], [2, 3]], [[4]]], [[[1, 2], [3]], [[4]]]
    empty = [[[], [1]], [[2]]], [[[1], []], [[2]]]
    sparse = [
        tf.SparseTensor([[0, *index], [1, 0, 0]], [5, 6], [2, 3, 3]) for index in ([1, 2], [2, 1])
    ]
    row = np.arange(12.0)

    pairs = [
        ((x, y), moved),
        tuple(map(tf.ragged.constant, ragged)),
        tuple(map(tf.ragged.constant, empty)),
        tuple(sparse),
        (row.reshape(2, 2, 3), row.reshape(2, 3, 2)),
    ]

    for pair in pairs:
        first, second = (tf.nest.map_structure(_tensor, given) for given in pair)
        assert int(row_hash(first)) != int(row_hash(second))


def _tensor(given: Any) -> Any:
    return tf.constant(given) if isinstance(given, np.ndarray) else given


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"temperature": tf.constant(0.5)}, "A batch must have rows"),
        # Of static numbers the first part's must be that of most parts.
        ((tf.zeros([8, 6]), tf.zeros([5, 6]), tf.zeros([5])), "as many rows as its first part"),
    ],
)
def test_a_batch_whose_rows_are_unknown_is_refused(batch: Any, words: str) -> None:
    """Single numbers have none."""
    with pytest.raises(RefusalError, match=words):
        cut(batch, 0, 2)
