"""What a user's own file imports: `from ringside import Workload, tf`, or `import ringside`.

Nothing is imported until it is used, because most of it brings TensorFlow:

- `scope`, `fit`, `is_chief`: what a training script calls (examples/script.py).
- `shard`: where each process shall read its part of the data only.
- `step`: stands above your own training step, a function with a tape (examples/own_loop.py).
- `gather`: in such a step, or in a loss function, the rows of all replicas.

- `Workload`: a model, its data and its loss; a user's function returns one.
- `QualityTarget`: the validation metric and the value at which training counts as done.
- `tf`: the TensorFlow, with the Keras, under which every backend works.

examples/own_model.py shows a whole workload.

- `compare`, `verify`: these commands, with their results as objects; `load`: those of a folder
  (examples/results.ipynb). None of them brings TensorFlow.
"""

import ast
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside.results import compare, load, verify
    from ringside.script import fit, is_chief, scope, shard
    from ringside_core.keras import tf
    from ringside_core.workloads.step import step
    from ringside_core.workloads.workload import QualityTarget, Workload
    from trainers.rows import gather

__all__ = [
    "QualityTarget",
    "Workload",
    "compare",
    "fit",
    "gather",
    "is_chief",
    "load",
    "scope",
    "shard",
    "step",
    "tf",
    "verify",
]

_RESULTS = "ringside.results"
_HOMES = {
    "QualityTarget": "ringside_core.workloads.workload",
    "Workload": "ringside_core.workloads.workload",
    "compare": _RESULTS,
    "fit": "ringside.script",
    "gather": "trainers.rows",
    "is_chief": "ringside.script",
    "load": _RESULTS,
    "scope": "ringside.script",
    "shard": "ringside.script",
    "step": "ringside_core.workloads.step",
    "tf": "ringside_core.keras",
    "verify": _RESULTS,
}


def _imported_by_main() -> set[str]:
    """What the program that runs imports; its own modules are looked at later."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    try:
        nodes = [*ast.walk(ast.parse(Path(file).read_bytes()))] if file.endswith(".py") else []
    except (OSError, SyntaxError, ValueError):
        return set()
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    return {
        *names,
        *(n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level),
    }


_imported = _imported_by_main()
# For a script that says `import tensorflow` itself, which reads this when it is asked for Keras
# (ringside_core/specs/keras_version.py).
if any(name.partition(".")[0] == "keras" for name in _imported):
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
elif "tensorflow" not in sys.modules:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
if "ringside" in _imported:  # a script, of which several processes may run
    importlib.import_module("ringside_core.seeds").seed_script()


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "tensorflow" not in sys.modules and _HOMES[name] != _RESULTS:
        keras_version = importlib.import_module("ringside_core.specs.keras_version")
        keras_version.use_version_of_main()
    return getattr(importlib.import_module(_HOMES[name]), name)
