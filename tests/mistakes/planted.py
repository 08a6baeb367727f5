"""train.py with a mistake: the one of the catalogue that the folder of the run is named after."""

import re
import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)


def _plant(name: str) -> None:
    """Let the mistake be planted when the backend has started; until then TensorFlow must wait."""
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
