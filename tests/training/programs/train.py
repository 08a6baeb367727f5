"""Started in place of Ringside's train.py: all programs and cells, by one started backend."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringside_core.specs import RecordInProgress, RunSpec
from tests.training.answering import Answer, answering


def answer(
    spec: RunSpec,
    backend: Any,
    run_dir: Path,
    *,
    programs: list[tuple[str, int]],
    cells: list[tuple[str, str]],
) -> Iterator[Answer]:
    """Train, and tell where each began, where it ended and what it told."""
    from ringside_core.keras import get_weights
    from tests.training.programs.cells import cell
    from tests.training.programs.models import EPOCHS, PROGRAMS, SIZES
    from trainers.prepare import prepare
    from trainers.train import train

    yield {"seed": spec.seed}
    for name, size in programs:
        asked = spec.replace(epochs=EPOCHS, save="record", trained_by=SIZES[size])
        one = RecordInProgress.begun(asked)
        driver = prepare(one, PROGRAMS[name](size), backend, run_dir=run_dir)
        model = driver.training.model
        head = f"{name} {size} "
        yield {f"{head}initial {i}": w for i, w in enumerate(get_weights(model))}
        train(driver)
        yield {f"{head}final {i}": w for i, w in enumerate(get_weights(model))}
        last = one.epochs[-1]
        yield {f"{head}told {key}": value for key, value in last.train.items()}
        yield {f"{head}val {key}": value for key, value in last.validation.items()}
    for way, precision in cells:
        of_cell = cell(spec, backend, run_dir, way, precision)
        yield {f"{way}, {precision}: {key}": value for key, value in of_cell.items()}


if __name__ == "__main__":
    answering(answer)
