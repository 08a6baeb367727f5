"""Damaged checkpoints: each is refused with one message, or read as a position in a training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside_core.archives import read_arrays
from ringside_core.specs import RefusalError
from tests.unit.fuzz.damage import VALUES, damaged_bytes, seeded
from trainers.checkpoint import Position, read, write
from trainers.totals import BegunEpoch

OTHERS = (
    st.sampled_from([-1, 2**70, np.inf, np.nan, "x", "[]", "[" * 100_000, True, [], [1, 2], 1.5])
    | VALUES.map(json.dumps)
    | st.integers(-3, 3).map(lambda number: np.full((2, 2), number))
)


@seeded
@given(data=st.data())
def test_a_damaged_checkpoint_is_refused_or_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes that are others, and whole archives in which a value is another or is missing."""
    file = tmp_path_factory.getbasetemp() / "checkpoint.npz"
    ledger = np.array([6, 15, 7], dtype=np.int64)
    begun = BegunEpoch(batches=1, feed="{}", totals=(np.array([1.5]), ledger))
    write(file, {"weight_0000": np.arange(6.0)}, Position(1, begun))
    arrays: dict[str, Any] = read_arrays(file)
    name = data.draw(st.sampled_from(sorted(arrays)))
    if data.draw(st.booleans()):
        file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
    else:
        other = data.draw(st.none() | OTHERS)
        arrays.pop(name) if other is None else arrays.update({name: np.array(other)})
        np.savez(file, **arrays)

    try:
        _, position = read(file)
    except RefusalError:
        return

    assert position.epochs_done >= 0
    if position.begun is not None:
        assert position.begun.batches >= 0
        assert isinstance(json.loads(position.begun.feed), dict)


def test_a_checkpoint_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    """It is refused, and says why."""
    file = tmp_path / "checkpoint.npz"
    np.savez(file, epochs_done=np.array([object()], dtype=object))

    with pytest.raises(RefusalError, match="allow_pickle=False"):
        read(file)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """Without its position; within an epoch, without what was trained: one message for all."""
    arrays = {"weight_0000": np.arange(6.0)}
    ledger, scalar = np.array([6, 15, 7]), np.zeros(())
    np.savez(tmp_path / "no-position.npz", **arrays)
    np.savez(tmp_path / "odd-position.npz", **arrays, epochs_done=np.zeros(2))
    for name, feed, totals in (
        ("no-json", "{", (scalar, ledger)),
        ("no-dict", "[]", (scalar, ledger)),
        ("no-ledger", "{}", (scalar,)),
        ("odd-ledger", "{}", (scalar, np.zeros(2))),
        ("of-before", "{}", (np.zeros(4, np.int64), scalar)),
    ):
        write(tmp_path / f"{name}.npz", arrays, Position(0, BegunEpoch(1, feed, totals)))
    (tmp_path / "checkpoint.before.npz").unlink(missing_ok=True)

    for path in tmp_path.glob("*.npz"):
        with pytest.raises(RefusalError, match="must name a checkpoint"):
            read(path)
    assert len(list(tmp_path.glob("*.npz"))) == 7
