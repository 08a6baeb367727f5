"""Backends by name: imported on use; whether one can run here is asked without starting it."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringside_core.specs import RunSpec, Surroundings, capabilities_of

if TYPE_CHECKING:
    from backends.base import Backend

BACKENDS: Mapping[str, str] = {
    "serial": "backends.serial:Serial",
    "one_device": "backends.tf_distribute.one_device:OneDevice",
    "mirrored": "backends.tf_distribute.mirrored:Mirrored",
    "central_storage": "backends.tf_distribute.central_storage:CentralStorage",
    "multi_worker_mirrored": "backends.tf_distribute.multi_worker_mirrored:MultiWorkerMirrored",
    "parameter_server": "backends.tf_distribute.parameter_server:ParameterServer",
    "tpu": "backends.tf_distribute.tpu:TPU",
    "horovod": "backends.horovod_ring:HorovodRing",
}


def backend_class(name: str) -> "type[Backend]":
    """The class behind a name; importing it imports TensorFlow, and Horovod where it is needed.

    Raises:
        RefusalError: unknown name, or a library that is missing or does not fit.
    """
    capabilities_of(name)  # refuses an unknown name
    module, _, attribute = BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def make_backend(spec: RunSpec, surroundings: Surroundings) -> "Backend":
    """The backend of a spec, not yet started."""
    return backend_class(spec.backend)(spec, surroundings)
