"""`ringside doctor --matrix`: Keras 3 is right under every backend, and as shipped it is not."""

from typing import Any

import pytest

from ringside.verify.matrix import OF_LOOP, WAYS, Row, tried
from tests.nightly import daily

SERIAL = Row(3, as_shipped=False, backend="serial")
OURS = [
    Row(3, as_shipped=False, backend=backend)
    for backend in (
        "mirrored",
        "multi_worker_mirrored",
        "central_storage",
        "parameter_server",
        "horovod",
    )
]
SHIPPED = Row(3, as_shipped=True, backend="mirrored")
LEGACY = Row(2, as_shipped=False, backend="serial")
ACROSS = Row(3, as_shipped=False, backend="serial", against=2)
Cells = dict[Row, dict[str, str]]


@pytest.fixture(scope="module", name="cells")
def cells_(asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Cells:
    """Of all rows that are asked for; each backend is started once."""
    rows = dict.fromkeys([SERIAL, *(one["row"] for one in asked if "row" in one)])
    if ACROSS in rows:
        rows[LEGACY] = None
    return tried([*rows], tmp_path_factory.mktemp("matrix"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", [*WAYS, *OF_LOOP])
@pytest.mark.parametrize(
    "row",
    daily(OURS, lambda row: row.backend in ("mirrored", "horovod")),
    ids=lambda row: row.backend,
)
def test_keras_3_equals_its_serial_run(cells: Cells, row: Row, way: str) -> None:
    """Or it is refused, where Keras cannot; with an overflow planted on the second replica."""
    cell = cells[row][way]
    refused = {
        "fit": {"multi_worker_mirrored", "parameter_server"},
        "float16": {"central_storage", "parameter_server"},
    }

    if row.backend in refused.get(way, ()):
        assert cell.startswith("refused: ")
    else:
        assert cell.startswith("right "), cell


@pytest.mark.parametrize("way", ["fit", "loop", "own step", "clipping", *OF_LOOP])
def test_the_serial_run_equals_plain_keras_3(cells: Cells, way: str) -> None:
    """Keras' own training without Ringside."""
    assert cells[SERIAL][way].startswith("right "), cells[SERIAL][way]


@pytest.mark.nightly
@pytest.mark.parametrize("row", [ACROSS], ids=str)
def test_both_keras_compute_the_same(cells: Cells, row: Row) -> None:
    """The same program from the same first weights: weights, evaluation, predictions."""
    told = cells[row]

    assert set(told) == {*WAYS, *OF_LOOP} - {"float16"}
    for cell in told.values():
        assert cell.startswith("right "), told


@pytest.mark.nightly
@pytest.mark.parametrize("row", [SHIPPED], ids=str)
def test_as_shipped_it_clips_too_early_and_overlooks_an_overflow(cells: Cells, row: Row) -> None:
    """So the cells can fail; what has nothing to do with it is right."""
    told = cells[row]

    assert told["clipping"].startswith("wrong by ")
    assert told["float16"].startswith(("fails: DivergedError", "wrong", "hangs"))
    assert told["loop"].startswith("right ")
