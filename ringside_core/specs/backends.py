"""The table of backends: one row says all that Ringside knows about a backend without starting it.

A new backend is a class (in `backends/`), a type of options (in `options.py`) and a row here.
No code asks a backend for its name: it asks the row what the backend can do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ringside_core.specs.errors import RefusalError, unknown_name
from ringside_core.specs.noun import Noun
from ringside_core.specs.options import (
    BackendOptions,
    CommunicationOptions,
    CrossDeviceOptions,
    HorovodOptions,
    ParameterServerOptions,
    TPUOptions,
)

Family = Literal["none", "tf.distribute", "horovod"]
ProcessModel = Literal["single", "per_replica", "coordinator"]

# The words for each family in reports.
FAMILIES: Mapping[Family, str] = {
    "none": "No distribution",
    "tf.distribute": "tf.distribute",
    "horovod": "Horovod",
}
# The backend to which all others are compared.
REFERENCE = "serial"
# The backend whose replicas combine nothing: what others reach is held against it.
CEILING = "independent"


class Capabilities(Noun):
    """What one backend is able to do.

    Attributes:
        family: the library that distributes the training.
        process_model: `single`: one process holds all replicas. `per_replica`: each replica has a
            process. `coordinator`: each replica has a process, and there are servers and a
            coordinator too.
        synchronous: all replicas contribute to each update.
        one_model: all replicas train the same one. False: each has its own, and is only timed.
        always_one_replica: more than one replica makes no sense.
        joins: launchers that can start it. `auto` takes the first one.
        accelerator: type of device without which it cannot run, or None.
    """

    family: Family
    process_model: ProcessModel
    synchronous: bool = True
    one_model: bool = True
    always_one_replica: bool = False
    joins: tuple[Literal["tf_config", "horovodrun", "mpirun", "slurm"], ...] = ()
    accelerator: Literal["TPU"] | None = None


@dataclass(frozen=True)
class BackendRow:
    """One backend.

    Attributes:
        name: as a person types it.
        implementation: `module:Class`. The module is imported when the class is used.
        capabilities: what it is able to do.
        options: the type of its options. Their annotations say what `--tuned` tries.
        default_arms: an arm for each, if no backends are named: the options, as they are typed
            after the name and a colon. The empty text: without options.
        compared_by_default: whether the default comparison has it, at its largest size.
    """

    name: str
    implementation: str
    capabilities: Capabilities
    options: type[BackendOptions] = BackendOptions
    default_arms: tuple[str, ...] = ("",)
    compared_by_default: bool = True


_ROWS = (
    BackendRow(
        "serial",
        "backends.serial:Serial",
        Capabilities(family="none", process_model="single", always_one_replica=True),
    ),
    BackendRow(
        "one_device",
        "backends.tf_distribute.one_device:OneDevice",
        Capabilities(family="tf.distribute", process_model="single", always_one_replica=True),
        compared_by_default=False,  # serial within the scope of a strategy
    ),
    BackendRow(
        "mirrored",
        "backends.tf_distribute.mirrored:Mirrored",
        Capabilities(family="tf.distribute", process_model="single"),
        CrossDeviceOptions,
    ),
    BackendRow(
        "central_storage",
        "backends.tf_distribute.central_storage:CentralStorage",
        Capabilities(family="tf.distribute", process_model="single"),
        compared_by_default=False,  # upstream calls it experimental
    ),
    BackendRow(
        "multi_worker_mirrored",
        "backends.tf_distribute.multi_worker_mirrored:MultiWorkerMirrored",
        Capabilities(
            family="tf.distribute", process_model="per_replica", joins=("tf_config", "slurm")
        ),
        CommunicationOptions,
    ),
    BackendRow(
        "parameter_server",
        "backends.tf_distribute.parameter_server:ParameterServer",
        Capabilities(
            family="tf.distribute",
            process_model="coordinator",
            synchronous=False,
            joins=("tf_config", "slurm"),
        ),
        ParameterServerOptions,
        compared_by_default=False,  # asynchronous: to certify it takes as long as all the others
    ),
    BackendRow(
        "horovod",
        "backends.horovod_ring:HorovodRing",
        Capabilities(
            family="horovod", process_model="per_replica", joins=("horovodrun", "mpirun", "slurm")
        ),
        HorovodOptions,
    ),
    BackendRow(
        "independent",
        "backends.independent:Independent",
        Capabilities(
            family="none", process_model="per_replica", one_model=False, joins=("mpirun",)
        ),
        default_arms=(),
    ),
    BackendRow(
        "tpu",
        "backends.tf_distribute.tpu:TPU",
        Capabilities(family="tf.distribute", process_model="single", accelerator="TPU"),
        TPUOptions,
        compared_by_default=False,  # few machines have one
    ),
)
BACKENDS: dict[str, BackendRow] = {row.name: row for row in _ROWS}


def backend_row(name: str) -> BackendRow:
    """The row of a backend.

    Raises:
        RefusalError: an unknown name. The message has the nearest known one.
    """
    if name not in BACKENDS:
        raise unknown_name("backend", name, BACKENDS)
    return BACKENDS[name]


def capabilities_of(backend: str) -> Capabilities:
    """The capabilities of a backend; an unknown name is refused as by `backend_row`."""
    return backend_row(backend).capabilities


def backend_options(backend: str, values: Mapping[str, Any]) -> BackendOptions:
    """Build the options of one backend.

    Raises:
        RefusalError: an unknown backend or option. The message has the nearest known name.
    """
    kind = backend_row(backend).options
    for name in values:
        if name not in kind.model_fields:
            if not kind.model_fields:
                raise RefusalError(f"The backend {backend} has no options.", received=repr(name))
            raise unknown_name(f"option of {backend}", name, kind.model_fields)
    return kind(**values)


def with_typed_options(data: Any) -> Any:
    """The fields of a noun that has `backend` and `options`, its options in the backend's type.

    What is no such thing is left as it is: pydantic refuses it.
    """
    if not isinstance(data, dict):
        return data
    backend, options = data.get("backend", ""), data.get("options") or {}
    if not (isinstance(backend, str) and isinstance(options, dict)):
        return data
    return {**data, "options": backend_options(backend, options)}
