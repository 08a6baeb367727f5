"""One interface over every way of distributing a Keras training.

`ringside_core/specs/backends.py` has a row for each backend. A backend's module, and with it
TensorFlow or Horovod, is imported when its class is used.
"""

import importlib
from typing import TYPE_CHECKING

from ringside_core.specs import RunSpec, Surroundings, backend_row

if TYPE_CHECKING:
    from backends.base import Backend


def backend_class(name: str) -> "type[Backend]":
    """The class of a backend.

    Raises:
        RefusalError: an unknown name, or a library that is missing or does not fit.
    """
    module, _, attribute = backend_row(name).implementation.partition(":")
    return getattr(importlib.import_module(module), attribute)


def make_backend(spec: RunSpec, surroundings: Surroundings) -> "Backend":
    """The backend of a spec, not yet started."""
    return backend_class(spec.backend)(spec, surroundings)
