"""Arms to certify, by short names."""

from typing import Any

from ringside.certificates.subject import Subject
from ringside_core.specs import Arm, backend_options
from tests.unit.stats.factory import spec_of


def subject(
    backend: str, replicas: int, options: dict[str, object] | None = None, **changes: Any
) -> Subject:
    """An arm and its run; the digits in batches of 48 unless something else is said."""
    typed = backend_options(backend, options or {})
    extra = "".join(f":{key}={value}" for key, value in (options or {}).items())
    label = f"{backend}{extra} ×{replicas}"
    arm = Arm(label=label, group=backend + extra, backend=backend, options=typed, replicas=replicas)
    fields = {"options": typed, "global_batch": 48, "epochs": 1, "save": "record", "resources": {}}
    return Subject(arm, spec_of(backend, replicas, **{**fields, **changes}))


GLOO: dict[str, object] = {"controller": "gloo"}
