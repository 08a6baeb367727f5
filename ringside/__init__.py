"""What a user's own file imports: `from ringside import Workload, tf`.

Nothing is imported until it is used, because `Workload` and `tf` bring TensorFlow:

- `Workload`: a model, its data and its loss; a user's function returns one.
- `QualityTarget`: the validation metric and the value at which training counts as done.
- `StreamSource`: data that are read from files, such as TFRecord shards.
- `tf`: the TensorFlow, with the Keras, under which every backend works.

examples/own_model.py shows a whole workload.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside_core.keras import tf
    from ringside_core.workloads.source import StreamSource
    from ringside_core.workloads.workload import QualityTarget, Workload

__all__ = ["QualityTarget", "StreamSource", "Workload", "tf"]

_HOMES = {
    "QualityTarget": "ringside_core.workloads.workload",
    "StreamSource": "ringside_core.workloads.source",
    "Workload": "ringside_core.workloads.workload",
    "tf": "ringside_core.keras",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
