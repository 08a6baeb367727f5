"""The stacks by name: what is started for each, its operations, and why it may not run here.

A stack may have settings after its name, options of its backend: `horovod mpi:btl_tcp_flags=9`.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from launch.children import search_path
from ringside_core.readings.machine import gpu_names
from ringside_core.specs import (
    BackendOptions,
    RefusalError,
    backend_options,
    parse_option,
    unknown_name,
)
from ringside_core.specs.communication import Operation

Family = Literal["mpi", "horovod", "tf.distribute", "parameter_server"]
COLLECTIVES: tuple[Operation, ...] = ("allreduce", "broadcast")


def _nothing_known() -> str:
    return ""


@dataclass(frozen=True)
class Stack:
    """One way to combine arrays over processes.

    Attributes:
        family: the software that combines the arrays.
        backend: of the spec that places and starts the processes.
        options: of that backend.
        operations: what it offers.
        obstacle: why it cannot run here, as far as that shows without starting it; else empty.
        needs_nccl: its processes refuse to run without NCCL.
    """

    family: Family
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = COLLECTIVES
    obstacle: Callable[[], str] = _nothing_known
    needs_nccl: bool = False


def no_mpi() -> str:
    """Why no ranks of MPI can be started here, as far as that shows; empty: nothing is known."""
    return _no_mpi4py() or _no_mpirun()


def _no_mpi4py() -> str:
    return "" if find_spec("mpi4py") is not None else "mpi4py is not installed"


def _no_mpirun() -> str:
    found = shutil.which("mpirun", path=search_path(os.environ))
    return "" if found else "mpirun is not installed"


def _no_gpu() -> str:
    if not gpu_names():
        return "NCCL needs NVIDIA GPUs: nvidia-smi names none"
    return ""


def _no_horovod() -> str:
    return "" if find_spec("horovod") is not None else "Horovod is not installed"


def _no_horovod_with_gpu() -> str:
    return _no_horovod() or _no_gpu()


STACKS: Mapping[str, Stack] = {
    # The backend serves only to plan ranks under mpirun; no TensorFlow is imported.
    "mpi": Stack("mpi", "horovod", {"controller": "mpi"}, obstacle=_no_mpi4py),
    "horovod mpi": Stack("horovod", "horovod", {"controller": "mpi"}, obstacle=_no_horovod),
    "horovod gloo": Stack("horovod", "horovod", {"controller": "gloo"}, obstacle=_no_horovod),
    "horovod nccl": Stack("horovod", "horovod", obstacle=_no_horovod_with_gpu, needs_nccl=True),
    "tf.distribute RING": Stack(
        "tf.distribute", "multi_worker_mirrored", {"implementation": "RING"}
    ),
    "tf.distribute AUTO": Stack(
        "tf.distribute", "multi_worker_mirrored", {"implementation": "AUTO"}
    ),
    "tf.distribute NCCL": Stack(
        "tf.distribute", "multi_worker_mirrored", {"implementation": "NCCL"}, obstacle=_no_gpu
    ),
    "parameter_server": Stack("parameter_server", "parameter_server", operations=("push_pull",)),
}


def parse_stacks(text: str) -> tuple[str, ...]:
    """Names with commas between, each with settings after colons; `all`: every one, without any.

    Raises:
        RefusalError: an unknown name or setting, no name, or the same twice.
    """
    if text.strip() == "all":
        return tuple(STACKS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise RefusalError("--stacks must name at least one.", received=repr(text))
    for name in names:
        options_of(name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusalError("Each stack may be named once.", received=f"{twice!r} twice")
    return tuple(names)


def stack_of(name: str) -> Stack:
    """The stack that a name means, with its settings or without.

    Raises:
        RefusalError: there is none.
    """
    known = name.partition(":")[0]
    if known not in STACKS:
        raise unknown_name("stack", known, STACKS)
    return STACKS[known]


def options_of(name: str) -> BackendOptions:
    """The options of the stack's backend: those that make it the stack, and its settings.

    Raises:
        RefusalError: an unknown stack or setting, or one that would make it another stack.
    """
    stack = stack_of(name)
    settings = dict(parse_option(pair) for pair in name.split(":")[1:])
    if clash := sorted(set(settings) & set(stack.options)):
        raise RefusalError(
            "A setting of a stack must leave it the stack that it is.",
            received=name,
            advice=f"{clash[0]} is chosen by the name: {', '.join(STACKS)}.",
        )
    return backend_options(stack.backend, {**stack.options, **settings})


def obstacle(name: str) -> str:
    """Why a stack cannot run on this machine, as far as that is seen without starting it."""
    stack = stack_of(name)
    needs_mpi = stack.options.get("controller") == "mpi"
    return (_no_mpirun() if needs_mpi else "") or stack.obstacle()
