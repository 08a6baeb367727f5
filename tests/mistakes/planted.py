"""train.py with a mistake: the one of the catalogue that the folder of the run is named after."""

import re
import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from ringside_core.specs import RunSpec  # noqa: E402
from ringside_core.specs.keras_version import use_version  # noqa: E402


def _plant(name: str) -> None:
    """Let the mistake be planted when the backend has started, in the Keras of the run."""
    spec = Path(sys.argv[sys.argv.index("--spec") + 1])
    use_version(RunSpec.from_json(spec.read_text("utf-8"), origin=str(spec)).keras)

    from tests.mistakes.catalogue import MISTAKES, note_cases
    from trainers import process

    started = process.started

    @contextmanager
    def planted(*given: Any, **named: Any) -> Any:
        with started(*given, **named) as backend:
            if backend is not None:
                note_cases()
                MISTAKES[name].plant(backend)
            yield backend

    vars(process)["started"] = planted


if __name__ == "__main__":
    run_dir = sys.argv[sys.argv.index("--run-dir") + 1]
    if found := re.search(r"planted-(\w+?)-in", run_dir):
        _plant(found[1])
    sys.argv[0] = str(ROOT / "train.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
