"""train.py with a mistake: the one of the catalogue that the folder of the run is named after."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)


def _plant(name: str) -> None:
    """Let the mistake be planted when the backend has started; until then TensorFlow must wait."""
    from ringside.verify import task
    from tests.mistakes.catalogue import MISTAKES

    run_cases = task.run_cases

    def planted(backend: Any, *arguments: Any) -> None:
        MISTAKES[name].plant(backend)
        run_cases(backend, *arguments)

    vars(task)["run_cases"] = planted


if __name__ == "__main__":
    run_dir = sys.argv[sys.argv.index("--run-dir") + 1]
    if found := re.search(r"planted-(\w+)", run_dir):
        _plant(found[1])
    sys.argv[0] = str(ROOT / "train.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
